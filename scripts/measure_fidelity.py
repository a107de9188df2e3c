"""Measure how close the GGUF files come to the evaluated adapter, on recorded turns that it has not been trained on.

Teacher-forced: both models see the tokens that the engine saw and sampled, and their distributions of the next token
are compared at every token of the replies. Runs in the policy environment, which computes the reference in float32;
the GGUF side is computed by llama-cpp-python, once with the adapter at scale 1 and, as a control, once at 0.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from scripts.gguf.divergence import Divergence, compare
from scripts.gguf.reference_logits import logits_file, save_reference
from scripts.gguf.turns import TurnsError, choose_turns, read_turns
from scripts.rollout.processes import OwnedProcess, end_with_workflow
from scripts.study.attempts import AttemptsError
from scripts.study.files import write_json
from scripts.study.fingerprints import file_sha256

NOTICEABLE = 1e-3
"""Mean divergence in nats from which on an adapter changes its base noticeably, beyond the rounding of F16."""


class FidelityError(RuntimeError):
    """The GGUF files are not what was evaluated, or cannot be measured."""


def summarize(folder: Path, turns: int, scale: float) -> dict[str, Any]:
    """Divergence over all turns between the reference and llama.cpp with the adapter at a scale."""
    total = Divergence()
    for number in range(turns):
        reference = np.load(logits_file(folder, number, "reference"))
        total += compare(reference, np.load(logits_file(folder, number, f"scale-{scale:g}")))
    return total.summary()


def check_adapter_counts(at_one: dict[str, Any], at_zero: dict[str, Any]) -> None:
    """Refuse GGUF files in which the adapter does nothing, or something else.

    :raises FidelityError: the adapter changes its base noticeably, but llama.cpp at scale 1 is not much closer to it
        than at scale 0.
    """
    if at_zero["kl_mean"] > NOTICEABLE and at_one["kl_mean"] > 0.5 * at_zero["kl_mean"]:
        raise FidelityError(
            f"llama.cpp with the adapter differs from what was evaluated (mean KL {at_one['kl_mean']:.2g} nats) about"
            f" as much as without it ({at_zero['kl_mean']:.2g}): the GGUF adapter is not applied, or not this one"
        )


def describe_files(paths: Sequence[Path]) -> list[dict[str, Any]]:
    """Name, size in bytes and SHA-256 of each file."""
    return [{"name": path.name, "bytes": path.stat().st_size, "sha256": file_sha256(path)} for path in paths]


def llama_cpp_versions(gguf_python: Path) -> dict[str, str]:
    """What the marker of the environment ``gguf`` says of llama.cpp; empty where there is none."""
    marker = gguf_python.parent.parent / "built.json"
    packages = json.loads(marker.read_text())["packages"] if marker.exists() else {}
    return {name: packages[name] for name in ("llama-cpp-python", "llama.cpp") if name in packages}


def measure(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Compute everything in a work folder.

    :raises FidelityError: see there.
    """
    turns = choose_turns(read_turns(args.attempts, args.outdir), args.turns)
    if not turns:
        raise FidelityError("none of the attempts has a recorded turn; evaluate the selected adapter first")
    start = time.monotonic()

    def report(done: int) -> None:
        if done == len(turns) or done % 8 == 0:
            print(
                f"reference: turn {done} of {len(turns)}, {time.monotonic() - start:.0f} s", file=sys.stderr, flush=True
            )

    save_reference(args.base, args.adapter, turns, folder, report)
    command = [str(args.gguf_python), "-m", "scripts.gguf.candidate_logits", "--base", str(args.base_gguf)]
    command += ["--adapter", str(args.adapter_gguf), "--turns", str(folder), "--threads", str(args.threads)]
    env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    with OwnedProcess(command, args.log, env=env, name="llama.cpp") as process:
        while True:
            try:
                status = process.wait(10)
                break
            except subprocess.TimeoutExpired:
                print(f"llama.cpp: {process.tail(1)}", file=sys.stderr, flush=True)
    if status:
        raise FidelityError(f"llama.cpp failed; the last lines of {args.log}:\n{process.tail()}")
    candidate = json.loads((folder / "candidate.json").read_text())
    listed = json.loads((folder / "turns.json").read_text())
    pairs = zip(listed, candidate["tokens"], strict=True)
    same = sum(turn["tokens"] == tokens for turn, tokens in pairs)
    at_one, at_zero = (summarize(folder, len(turns), scale) for scale in (1.0, 0.0))
    check_adapter_counts(at_one, at_zero)
    return {
        "schema": 1,
        "turns": len(turns),
        "tokens": at_one["tokens"],
        "scale_1": at_one,
        "scale_0": at_zero,
        "tokenization": {"texts": len(turns), "same": same},
        "reference": "transformers and PEFT, float32",
        "versions": {"llama-cpp-python": candidate["llama_cpp_python"], **llama_cpp_versions(args.gguf_python)},
        "files": describe_files([args.base_gguf, args.adapter_gguf]),
    }


def main(argv: list[str] | None = None) -> int:
    """Command line; run it from the repository's root."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--base", type=Path, required=True, help="folder of the base model")
    parser.add_argument("--adapter", type=Path, required=True, help="folder of the evaluated adapter")
    parser.add_argument("--base-gguf", type=Path, required=True, help="GGUF file of the base")
    parser.add_argument("--adapter-gguf", type=Path, required=True, help="GGUF file of the adapter")
    parser.add_argument("--attempts", type=Path, nargs="+", required=True, help="JSONL of the adapter's attempts")
    parser.add_argument("--outdir", type=Path, required=True, help="folder that the attempts' traces are relative to")
    parser.add_argument("--turns", type=int, default=48, help="recorded turns to measure on")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--gguf-python", type=Path, default=Path(".envs/gguf/bin/python"))
    parser.add_argument("--log", type=Path, required=True, help="file for llama.cpp's output")
    parser.add_argument("--out", type=Path, required=True, help="JSON file to write")
    args = parser.parse_args(argv)
    end_with_workflow()
    args.out.parent.mkdir(parents=True, exist_ok=True)
    try:
        with tempfile.TemporaryDirectory(dir=args.out.parent, prefix=".fidelity-") as folder:
            write_json(args.out, measure(args, Path(folder)))
    except (FidelityError, TurnsError, AttemptsError) as error:
        print(f"measure_fidelity: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
