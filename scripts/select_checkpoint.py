"""Select the checkpoint that is published, and copy its adapter to ``selected/``.

    python -m scripts.select_checkpoint --settings '{"on":"validation","confidence":0.95}' --harness pi \\
        --attempts results/eval/pi/step-*/demo-validation.jsonl --adapters results/adapters/pi \\
        --out results/select/pi.json --out-adapter results/adapters/pi/selected
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from scripts.stats.selection import Choice, On, SelectionError, choose
from scripts.study.attempts import Attempt, AttemptsError, read_attempts
from scripts.study.config import ConfigError, Section
from scripts.study.files import folder_written_whole, write_json
from scripts.study.fingerprints import file_sha256
from scripts.study.jobs import read_settings


class SelectJob(Section):
    """Settings of this program."""

    on: On
    confidence: Annotated[float, Field(gt=0.5, lt=1)] = 0.95
    standard_errors: Annotated[float, Field(ge=0)] = 0.0


def saved_steps(adapters: Path) -> list[int]:
    """Steps of the complete adapters below a folder, ascending."""
    found = (re.fullmatch(r"step-([0-9]+)", path.parent.name) for path in adapters.glob("step-*/adapter_config.json"))
    return sorted(int(match[1]) for match in found if match)


def read_candidates(paths: Sequence[Path], harness: str) -> tuple[dict[str, list[Attempt]], list[dict[str, Any]]]:
    """Attempts by policy, and what was read from where.

    :raises AttemptsError: a bad file, a file of another harness, or two files for one policy and suite.
    """
    attempts: dict[str, list[Attempt]] = {}
    sources: dict[tuple[str, str], dict[str, Any]] = {}
    for path in paths:
        rows = read_attempts(path)
        head = rows[0]
        if head.harness != harness:
            raise AttemptsError(f"{path}: row 1: harness is {head.harness!r}, but --harness is {harness!r}")
        place = (head.policy, head.suite)
        if place in sources:
            raise AttemptsError(f"{path}: {head.policy} on {head.suite} is already in {sources[place]['path']}")
        sources[place] = {"path": str(path), "rows": len(rows), "sha256": file_sha256(path)}
        attempts.setdefault(head.policy, []).extend(rows)
    return attempts, list(sources.values())


def select(job: SelectJob, harness: str, paths: Sequence[Path], adapters: Path) -> tuple[Choice, dict[str, Any]]:
    """The choice, and the JSON value that records it.

    :raises SelectionError: no choice is possible, or the chosen checkpoint or one of the candidates has no adapter.
    """
    steps = saved_steps(adapters)
    attempts, sources = read_candidates(paths, harness)
    missing = sorted(policy for policy in attempts if policy not in {f"step-{step}" for step in steps})
    if missing:
        raise SelectionError(f"{adapters}: no complete adapter {missing[0]} for its attempts; train it again")
    unmeasured = [f"step-{step}" for step in steps if attempts and f"step-{step}" not in attempts]
    if unmeasured and job.on != "final":
        raise SelectionError(f"{adapters}: {', '.join(unmeasured)} not measured; give --attempts of every checkpoint")
    choice = choose(job.on, attempts, job.confidence, steps, job.standard_errors)
    suites = sorted({row.suite for rows in attempts.values() for row in rows})
    return choice, {"harness": harness, "suites": suites, **choice.model_dump(mode="json"), "sources": sources}


def describe(choice: Choice) -> str:
    """A line per candidate, for the terminal."""
    lines = [
        f"{'*' if c.policy == choice.selected else ' '} {c.policy}: solved {c.solved} of {c.n}"
        + (f", {c.tool_calls:.2f} tool calls when solved" if c.tool_calls is not None else "")
        for c in choice.candidates
    ]
    return "\n".join([*lines, f"selected {choice.selected}. {choice.rule}"])


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; 0, or 1 after a one-line error."""
    parser = argparse.ArgumentParser(description="Select the checkpoint that is published.")
    parser.add_argument("--settings", required=True, help="JSON or a file with it: on, confidence, standard_errors")
    parser.add_argument("--harness", required=True)
    parser.add_argument("--attempts", type=Path, nargs="*", default=[], help="files of attempts of every checkpoint")
    parser.add_argument("--adapters", type=Path, required=True, help="folder with the adapters step-<n>")
    parser.add_argument("--out", type=Path, required=True, help="JSON with candidates, choice and rule")
    parser.add_argument("--out-adapter", type=Path, required=True, help="copy of the chosen adapter's folder")
    options = parser.parse_args(argv)
    try:
        job = read_settings(SelectJob, options.settings)
        choice, record = select(job, options.harness, options.attempts, options.adapters)
    except (ConfigError, AttemptsError, SelectionError) as error:
        print(error, file=sys.stderr)
        return 1
    with folder_written_whole(options.out_adapter) as work:
        shutil.copytree(options.adapters / choice.selected, work, dirs_exist_ok=True)
    write_json(options.out, record)
    print(describe(choice), file=sys.stderr)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
