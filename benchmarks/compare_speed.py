"""Time of the paired comparison against the number of attempts a side, with every interval and 10,000 bootstrap draws.

    python -m benchmarks.compare_speed [--n 100 1000 10000 100000] [--attempts 1]

Files are written, read, checked, paired and compared as by ``scripts.compare_paired``.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from scripts.stats.comparison import compare
from scripts.stats.pairing import Task
from scripts.study.attempts import Attempt, write_attempts
from scripts.study.config import Comparison as Settings
from scripts.study.foreign_results import read_results


def make_rows(policy: str, n: int, attempts: int, rate: float, calls: float, seed: int) -> list[Attempt]:
    """Attempts of an imagined policy: n in all, so many per task."""
    rng = np.random.default_rng(seed)
    rows = []
    for number in range(n):
        solved, made = bool(rng.random() < rate), int(1 + rng.poisson(calls))
        rows.append(
            Attempt(
                suite="speed",
                task_id=f"task-{number // attempts}",
                task_sha256="0" * 64,
                attempt=number % attempts,
                harness="pi",
                harness_version="1.6.0",
                policy=policy,
                policy_sha256="1" * 64,
                base_model="harness-cards/demo-policy",
                status="scored",
                solved=solved,
                rewards={"correctness": float(solved)},
                stop="finished",
                tool_calls=made,
                tool_calls_by_name={"bash": made},
                model_calls=made + 1,
                prompt_tokens=1000,
                completion_tokens=100,
                wall_s=2.0,
                sampling={"temperature": 0.8},
                limits={},
                engine={},
                sandbox={},
            )
        )
    return rows


def measure(n: int, attempts: int, settings: Settings) -> tuple[float, float]:
    """Seconds of reading both files and of comparing them, with clusters of ten tasks."""
    with tempfile.TemporaryDirectory() as folder:
        base, adapter = Path(folder) / "base.jsonl", Path(folder) / "adapter.jsonl"
        write_attempts(base, make_rows("base", n, attempts, 0.75, 4, 1))
        write_attempts(adapter, make_rows("step-90", n, attempts, 0.8, 2, 2))
        tasks = [Task(f"task-{i}", "easy", f"source-{i // 10}") for i in range(-(-n // attempts))]
        start = time.perf_counter()
        sides = read_results(base), read_results(adapter)
        middle = time.perf_counter()
        compare(*sides, settings, tasks)
        return middle - start, time.perf_counter() - middle


def main(argv: Sequence[str] | None = None) -> int:
    """Print one row for each n."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compare_speed", description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, nargs="+", default=[100, 1000, 10_000, 100_000], help="attempts a side")
    parser.add_argument("--attempts", type=int, default=1, help="attempts per task")
    parser.add_argument("--draws", type=int, default=10_000, help="bootstrap draws")
    arguments = parser.parse_args(argv)
    print("| attempts a side | read both files (s) | compare (s) |\n|---|---|---|", flush=True)
    for n in arguments.n:
        read, compared = measure(n, arguments.attempts, Settings(bootstrap_draws=arguments.draws))
        print(f"| {n:,} | {read:.2f} | {compared:.2f} |", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
