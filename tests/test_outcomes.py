"""Our own records as outcomes."""

from __future__ import annotations

from scripts.study.outcomes import from_attempts
from tests.paired_rows import attempt


def test_fields_are_carried_over() -> None:
    flagged = attempt("t", True, flags=["raw_tool_markup"])
    error = {"type": "EngineDied", "message": ""}
    broken = attempt("u", None, status="infrastructure", rewards={}, stop=None, error=error)
    first, second = from_attempts([flagged, broken])
    assert (first.task_id, first.scored, first.solved, first.tool_calls, first.stop) == ("t", True, True, 3, "finished")
    assert (first.raw_tool_markup, second.raw_tool_markup) == (True, False)
    assert (second.scored, second.solved, second.error) == (False, None, "EngineDied")
    assert '"temperature": 0.8' in (first.conditions or "")
    assert first.conditions is second.conditions
