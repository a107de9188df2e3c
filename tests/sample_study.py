"""A small results folder, consistent in itself, for tests of the card. Its outcomes are made up: no results.

The comparisons and the selection in it come from the real programs' functions.
"""

from __future__ import annotations

import json
import random
import struct
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from scripts.card.collect import collect
from scripts.card.facts import Card
from scripts.stats.comparison import Selection, compare, index_tasks
from scripts.stats.selection import choose
from scripts.study.attempts import Attempt, write_attempts
from scripts.study.config import Study, parse_study
from scripts.study.files import write_atomic, write_json
from scripts.study.fingerprints import file_sha256, text_sha256
from scripts.study.outcomes import Results, from_attempts

STEPS = (6, 12)
SIZES = {"sample-train": 24, "sample-validation": 16, "sample-heldout": 40, "sample-other": 12}


def sample_config(**changes: Any) -> dict[str, Any]:
    """Config of the sample study; ``changes`` replace whole sections."""
    config: dict[str, Any] = {
        "name": "sample",
        "suites": {
            "sample-train": {"role": "train", "seed": 1, "limit": SIZES["sample-train"]},
            "sample-validation": {"role": "validation", "seed": 2, "limit": SIZES["sample-validation"]},
            "sample-heldout": {
                "role": "heldout",
                "seed": 3,
                "limit": SIZES["sample-heldout"],
                "title": "Sample tables",
            },
            "sample-other": {"role": "heldout", "seed": 4, "limit": SIZES["sample-other"], "title": "other tables"},
        },
        "training": {"steps": 12, "checkpoint_every": 6},
    }
    return config | changes


def sample_attempt(suite: str, number: int, policy: str, solved: bool | None, calls: int) -> Attempt:
    """One attempt; ``solved`` None is an attempt that broke down."""
    task = f"{suite}-{number:04d}"
    return Attempt(
        suite=suite,
        task_id=task,
        task_sha256=text_sha256(task),
        attempt=0,
        harness="pi",
        harness_version="1.6.0",
        policy=policy,
        policy_sha256=text_sha256(policy),
        base_model="harness-cards/demo-policy",
        status="infrastructure" if solved is None else "scored",
        solved=solved,
        rewards={} if solved is None else {"correctness": float(solved)},
        stop=None if solved is None else "finished",
        tool_calls=calls,
        tool_calls_by_name={"bash": calls} if calls else {},
        model_calls=calls + 1,
        prompt_tokens=900,
        completion_tokens=40,
        wall_s=1.5,
        sampling={"temperature": 0.8},
        limits={"call_budget": 15},
        engine={"name": "vllm", "version": "0.31.0", "flags": []},
        sandbox={"environment": "bubblewrap", "versions": {"harbor": "0.25.0"}},
        error={"type": "NoTurns", "message": "no turn was captured"} if solved is None else None,
    )


def attempts_of(suite: str, policy: str, rate: float, mean_calls: float, broken: int = 0) -> list[Attempt]:
    """Attempts on all tasks of a suite; the same suite and policy give the same ones."""
    chance = random.Random(f"{suite} {policy}")
    rows = []
    for number in range(SIZES[suite]):
        solved: bool | None = chance.random() < rate
        calls = max(1, round(chance.gauss(mean_calls, 0.8)))
        rows.append(sample_attempt(suite, number, policy, None if number < broken else solved, calls))
    return rows


def write_lines(path: Path, rows: list[dict[str, Any]]) -> None:
    """JSON lines."""
    write_atomic(path, "".join(json.dumps(row) + "\n" for row in rows))


def safetensors(metadata: dict[str, str]) -> bytes:
    """A safetensors file with one number in it."""
    header = json.dumps(
        {"__metadata__": metadata, "base.lora_A.weight": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}
    ).encode()
    return struct.pack("<Q", len(header)) + header + struct.pack("<f", 1.0)


def gguf(values: dict[str, str]) -> bytes:
    """A GGUF file without tensors, with text values in its header."""

    def text(value: str) -> bytes:
        return struct.pack("<Q", len(value.encode())) + value.encode()

    body = b"".join(text(key) + struct.pack("<I", 8) + text(value) for key, value in values.items())
    return b"GGUF" + struct.pack("<IQQ", 3, 0, len(values)) + body


def write_study(outdir: Path, **changes: Any) -> Study:
    """Write all outputs that a card is made of; returns the study's config."""
    study = parse_study(sample_config(**changes))
    for suite, size in SIZES.items():
        rows = []
        for number in range(size):
            task = f"{suite}-{number:04d}"
            folder = f"suites/{suite}/tasks/{task}"
            write_atomic(outdir / folder / "instruction.md", f"What is the sum of amount in {suite}.csv?\n")
            rows.append(
                {
                    "suite": suite,
                    "role": study.suites[suite].role,
                    "task_id": task,
                    "index": number,
                    "path": folder,
                    "sha256": text_sha256(task),
                    "difficulty": "easy" if number % 2 else "medium",
                    "cluster": None,
                }
            )
        write_lines(outdir / f"suites/{suite}.jsonl", rows)

    choice = choose(
        "validation",
        {f"step-{n}": attempts_of("sample-validation", f"step-{n}", 0.6 + n / 40, 4 - n / 6) for n in STEPS},
        steps=STEPS,
    )
    record = {"harness": "pi", "suites": ["sample-validation"], **choice.model_dump(mode="json"), "sources": []}
    write_json(outdir / "select/pi.json", record)

    for suite in study.suites_of("heldout"):
        sides = {}
        rates = {"base": (0.7, 4.0), choice.selected: (0.9, 2.0)}
        for policy, (rate, calls) in rates.items():
            rows_of = attempts_of(suite, policy, rate, calls, broken=1 if policy == "base" else 0)
            path = outdir / "eval/pi" / ("base" if policy == "base" else "selected") / f"{suite}.jsonl"
            write_attempts(path, rows_of)
            sides[policy] = Results(from_attempts(rows_of), str(path), "attempts", file_sha256(path))
        index = [json.loads(line) for line in (outdir / f"suites/{suite}.jsonl").read_text().splitlines()]
        base, adapter = sides.values()
        comparison = compare(
            base,
            adapter,
            study.comparison.model_copy(update={"bootstrap_draws": 200}),
            index_tasks(index),
            Selection(on=study.selection.on, candidate_count=len(STEPS)),
        )
        write_atomic(outdir / f"compare/pi/{suite}/selected.json", comparison.model_dump_json(indent=1) + "\n")

    write_json(outdir / "suites/disjoint.json", {"disjoint": True})
    write_training(outdir)
    write_policy(outdir)
    return study


def write_training(outdir: Path) -> None:
    """The training's records: 12 steps, two tasks new in each."""
    steps, rollouts = [], []
    for step in range(1, 13):
        steps.append(
            {
                "step": step,
                "t": 1000.0 + step,
                "reward": 0.5 + step / 40,
                "correctness": 0.5 + step / 50,
                "tool_calls": 4 - step / 6,
                "staleness_mean": 0.4,
                "staleness_max": 1,
            }
        )
        for number in (2 * step - 2, 2 * step - 1):
            rollouts.append(
                {
                    "t": 1000.0 + step,
                    "step": step,
                    "suite": "sample-train",
                    "task_id": f"sample-train-{number:04d}",
                    "status": "scored",
                    "error": None,
                    "reward": 1.0,
                }
            )
    rollouts.append(
        {
            "t": 1013.0,
            "step": None,
            "suite": "sample-train",
            "task_id": "sample-train-0000",
            "status": "infrastructure",
            "error": {"type": "NoTurns", "message": "no turn was captured"},
            "reward": None,
        }
    )
    write_lines(outdir / "train/pi/train.jsonl", steps)
    write_lines(outdir / "train/pi/rollouts.jsonl", rollouts)
    write_json(
        outdir / "train/pi/training.json",
        {"steps": 12, "wall_s": 840.0, "resumed": 0, "versions": {"trl": "1.16.0"}, "sync": "adapter"},
    )


def write_policy(outdir: Path) -> None:
    """Base model's facts, adapter and GGUF files."""
    write_json(outdir / "policy/base.json", {"sha256": text_sha256("base"), "parameters": 1040000})
    write_atomic(
        outdir / "policy/base/chat_template.jinja",
        "{% for message in messages %}{% generation %}{{ message.content }}{% endgeneration %}{% endfor %}",
    )
    adapter = outdir / "adapters/pi/selected"
    write_json(
        adapter / "adapter_config.json",
        {"base_model_name_or_path": "harness-cards/demo-policy", "r": 16, "lora_alpha": 32},
    )
    write_atomic(adapter / "adapter_model.safetensors", safetensors({"format": "pt"}))
    write_atomic(outdir / "gguf/base-F16.gguf", gguf({"general.architecture": "qwen3"}))
    write_atomic(outdir / "gguf/pi/adapter-F16.gguf", gguf({"general.type": "adapter"}))
    write_json(
        outdir / "gguf/pi/fidelity.json",
        {
            "turns": 48,
            "tokens": 1234,
            "tokenization": {"texts": 48, "same": 48},
            "versions": {"llama-cpp-python": "0.3.36"},
            "scale_1": {"top1_agreement": 0.998, "kl_mean": 1.2e-5, "kl_max": 0.0031},
            "scale_0": {"top1_agreement": 0.81, "kl_mean": 0.42, "kl_max": 6.3},
        },
    )


@dataclass(frozen=True)
class Sample:
    """The study, its outputs and the facts of its card."""

    study: Study
    outdir: Path
    card: Card


@cache
def _sample() -> tuple[Sample, tempfile.TemporaryDirectory[str]]:
    folder = tempfile.TemporaryDirectory(prefix="sample-study-")
    outdir = Path(folder.name)
    study = write_study(outdir)
    return Sample(study, outdir, collect(study, outdir, "pi", "config/config.yaml")), folder


def shared_sample() -> Sample:
    """One sample study for all tests of a session; they must not change its files."""
    return _sample()[0]
