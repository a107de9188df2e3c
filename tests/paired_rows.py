"""Rows of attempts for the tests of comparisons."""

from __future__ import annotations

from typing import Any

from scripts.study.attempts import Attempt
from scripts.study.outcomes import Outcome, Results


def outcome(task: str, solved: bool | None, calls: int | None = 3, attempt: int = 0, **fields: Any) -> Outcome:
    """One row; ``solved`` None is an attempt without a grade."""
    if solved is None:
        fields.setdefault("error", "EngineDied")
    return Outcome(task, attempt, solved is not None, solved, calls, **fields)


def results(path: str, rows: list[Outcome], kind: str = "attempts") -> Results:
    """One side."""
    return Results(rows, path, kind)


def sides(outcomes: list[tuple[bool | None, bool | None]], **fields: Any) -> tuple[Results, Results]:
    """Both sides from pairs of outcomes, tasks t0, t1, ..."""
    base = [outcome(f"t{i}", pair[0], 4, **fields) for i, pair in enumerate(outcomes)]
    adapter = [outcome(f"t{i}", pair[1], 2 + i % 3, **fields) for i, pair in enumerate(outcomes)]
    return results("a", base), results("b", adapter)


def attempt(task: str, solved: bool | None, policy: str = "base", **changes: Any) -> Attempt:
    """A whole record."""
    values: dict[str, Any] = {
        "suite": "demo-heldout",
        "task_id": task,
        "task_sha256": "0" * 64,
        "attempt": 0,
        "harness": "pi",
        "harness_version": "1.6.0",
        "policy": policy,
        "policy_sha256": "1" * 64,
        "base_model": "harness-cards/demo-policy",
        "status": "scored",
        "solved": solved,
        "rewards": {"correctness": float(bool(solved))},
        "stop": "finished",
        "tool_calls": 3,
        "tool_calls_by_name": {"bash": 3},
        "model_calls": 4,
        "prompt_tokens": 100,
        "completion_tokens": 20,
        "wall_s": 1.5,
        "sampling": {"temperature": 0.8},
        "limits": {},
        "engine": {},
        "sandbox": {},
    }
    return Attempt(**{**values, **changes})
