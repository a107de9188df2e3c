"""What a comparison needs of an attempt, whatever format it was recorded in.

Our own records, Harbor's trials and OpenEnv's rollouts all become ``Outcome`` rows; a field that a format does not hold
is None and stays unknown.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from scripts.study.attempts import Attempt

RAW_TOOL_MARKUP = "raw_tool_markup"


class OutcomesError(ValueError):
    """Results cannot be used; the message names the file, the row and what to do."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One attempt at one task."""

    task_id: str
    attempt: int
    scored: bool
    solved: bool | None
    """Null unless scored."""
    tool_calls: int | None
    suite: str | None = None
    harness: str | None = None
    harness_version: str | None = None
    policy: str | None = None
    base_model: str | None = None
    task_sha256: str | None = None
    stop: str | None = None
    raw_tool_markup: bool | None = None
    """Tool-call markup was left in the text; null where nobody looked."""
    error: str | None = None
    """Class of the error of an attempt that is not scored."""
    conditions: str | None = None
    """How it was run, as JSON: sampling, limits, engine, sandbox."""


class Results(NamedTuple):
    """All rows of one side and where they came from."""

    rows: list[Outcome]
    path: str
    kind: str
    """attempts, harbor or openenv."""
    sha256: str | None = None
    notes: tuple[str, ...] = ()


def from_attempts(rows: Iterable[Attempt]) -> list[Outcome]:
    """Outcomes of our own records."""
    seen: dict[str, str] = {}
    outcomes = []
    for row in rows:
        found = _conditions(row)
        text = repr(found)
        if text not in seen:
            # Rows that differ in the order of keys alone were made alike.
            seen[text] = json.dumps(found, sort_keys=True)
        outcomes.append(
            Outcome(
                task_id=row.task_id,
                attempt=row.attempt,
                scored=row.status == "scored",
                solved=row.solved,
                tool_calls=row.tool_calls,
                suite=row.suite,
                harness=row.harness,
                harness_version=row.harness_version,
                policy=row.policy,
                base_model=row.base_model,
                task_sha256=row.task_sha256,
                stop=row.stop,
                raw_tool_markup=RAW_TOOL_MARKUP in row.flags,
                error=row.error.type if row.error else None,
                conditions=seen[text],
            )
        )
    return outcomes


def _conditions(row: Attempt) -> dict[str, Any]:
    return {"sampling": row.sampling, "limits": row.limits, "engine": row.engine, "sandbox": row.sandbox}
