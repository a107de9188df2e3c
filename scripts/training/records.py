"""What a training run leaves on record: a line per rollout and a line per optimizer step.

Both files grow line by line in the work folder, so that a killed run keeps them. The declared outputs are made of them
at the end. A rollout's line is written by the worker when the rollout ends; the optimizer step that trained on it is
known later, to the trainer, and stands in the step's line as ``rollout_ids``. :func:`joined` brings the two together.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from scripts.study.files import write_atomic

Line = dict[str, Any]

ROLLOUT_FIELDS = (
    "t",
    "step",
    "suite",
    "task_id",
    "policy_version",
    "reward",
    "correctness",
    "tool_calls",
    "model_calls",
    "status",
    "stop",
    "error",
    "dropped",
    "prompt_tokens",
    "completion_tokens",
    "wall_s",
)
"""Fields of a line of ``rollouts.jsonl``, in order.

``t`` is its end in Unix seconds; ``step`` the optimizer step that trained on it, null if none did (no grade, too old,
or the step was lost with a killed run); ``policy_version`` the optimizer steps behind the policy that it sampled from;
``status`` is scored, infrastructure or failed (nothing came back that can be judged); ``dropped`` says why a scored
rollout cannot be trained on, or is null; ``wall_s`` is in seconds.
"""


class RecordsError(ValueError):
    """A record cannot be read; the message names file and row."""


def append_line(path: Path, line: Line) -> None:
    """Append one JSON line in a single write, so that lines of two processes never mix; NaN is refused."""
    data = (json.dumps(line, ensure_ascii=False, allow_nan=False) + "\n").encode()
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    try:
        os.write(handle, data)
    finally:
        os.close(handle)


def read_lines(path: Path) -> list[Line]:
    """All whole lines; a torn last line (its writer was killed) is left out. A missing file has none.

    :raises RecordsError: another line is no JSON object.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return []
    lines = []
    for number, text in enumerate(data[: data.rfind(b"\n") + 1].splitlines(), start=1):
        try:
            line = json.loads(text)
        except ValueError:
            line = None
        if not isinstance(line, dict):
            raise RecordsError(
                f"{path} row {number}: no JSON object; move the training's work folder away to start anew"
            )
        lines.append(line)
    return lines


def mend(path: Path) -> None:
    """Cut a torn last line off, so that the next append starts a line of its own."""
    if path.exists():
        data = path.read_bytes()
        whole = data.rfind(b"\n") + 1
        if whole != len(data):
            os.truncate(path, whole)


def drop_steps_after(path: Path, step: int) -> int:
    """Remove the lines of later steps, which a run that resumes from ``step`` takes again.

    :return: how many were removed.
    """
    lines = read_lines(path)
    kept = [line for line in lines if line["step"] <= step]
    if path.exists():
        write_lines(path, kept)
    return len(lines) - len(kept)


def write_lines(path: Path, lines: Iterable[Line]) -> None:
    """Write a file of JSON lines whole or not at all."""
    write_atomic(path, "".join(json.dumps(line, ensure_ascii=False, allow_nan=False) + "\n" for line in lines))


class LineTail:
    """Reads what another process appends to a file, whole lines only, each once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._position = 0

    def read(self) -> list[Line]:
        """Lines that came since the last call."""
        try:
            with self.path.open("rb") as file:
                file.seek(self._position)
                data = file.read()
        except FileNotFoundError:
            return []
        whole = data.rfind(b"\n") + 1
        self._position += whole
        return [json.loads(line) for line in data[:whole].splitlines()]


def joined(rollouts: Sequence[Line], steps: Sequence[Line]) -> list[Line]:
    """Lines of ``rollouts.jsonl``: the worker's lines with the step that trained on each, in order of their end."""
    step_of: dict[str, int] = {}
    for line in steps:
        for rollout_id in line["rollout_ids"]:
            step_of.setdefault(rollout_id, line["step"])
    rows = [{**line, "step": step_of.get(line["id"])} for line in rollouts]
    return [{field: row[field] for field in ROLLOUT_FIELDS} for row in sorted(rows, key=lambda row: row["t"])]


def step_rows(steps: Iterable[Line]) -> list[Line]:
    """Lines of ``train.jsonl``: without the ids, which mean nothing outside the work folder."""
    return [{key: value for key, value in line.items() if key != "rollout_ids"} for line in steps]


def tasks_trained_by_step(rows: Iterable[Line], checkpoints: Iterable[int]) -> dict[int, int]:
    """How many distinct tasks the steps up to each checkpoint trained on.

    :param rows: lines of ``rollouts.jsonl``.
    """
    first: dict[tuple[str, str], int] = {}
    for row in rows:
        if row["step"] is not None:
            key = (row["suite"], row["task_id"])
            first[key] = min(row["step"], first.get(key, row["step"]))
    return {step: sum(1 for value in first.values() if value <= step) for step in checkpoints}


def causes(lines: Iterable[Line]) -> tuple[int, dict[str, int], dict[str, int]]:
    """Count endings.

    :param lines: lines of rollouts.
    :return: how many are scored; unscored ones by type of error; failed or dropped ones by cause.
    """
    scored = 0
    unscored: Counter[str] = Counter()
    failed: Counter[str] = Counter()
    for line in lines:
        error = (line.get("error") or {}).get("type") or "unknown"
        if line["status"] == "scored":
            scored += 1
            if line.get("dropped"):
                failed[line["dropped"]] += 1
        elif line["status"] == "infrastructure":
            unscored[error] += 1
        else:
            failed[error] += 1
    return scored, dict(sorted(unscored.items())), dict(sorted(failed.items()))
