"""The whole comparison: figures, edges, and that it is valid JSON without NaN."""

from __future__ import annotations

import json

import pytest

from scripts.stats.comparison import Selection, compare
from scripts.stats.comparison_table import signed, span, to_markdown
from scripts.stats.pairing import Task
from scripts.stats.records import Comparison
from scripts.study.config import Comparison as Settings
from tests.paired_rows import outcome, results, sides

QUICK = Settings(bootstrap_draws=500)
PI = [(True, True)] * 112 + [(True, False)] * 7 + [(False, True)] * 12 + [(False, False)] * 15


def test_published_row_from_its_attempts() -> None:
    found = compare(*sides(PI), QUICK)
    assert found.table is not None
    assert found.table.model_dump() == {"both": 112, "base_only": 7, "adapter_only": 12, "neither": 15}
    assert found.n == 146
    assert f"{found.base.rate_percent:.1f} {found.adapter.rate_percent:.1f}" == "81.5 84.9"
    assert f"{found.difference_points:+.1f} ± {found.intervals['normal'].half_width_points:.1f}" == "+3.4 ± 5.8"
    assert found.intervals["tango"].low_points == pytest.approx(-2.63, abs=0.01)
    assert found.non_inferiority.shown is True
    assert found.calls.tasks == 112
    assert found.calls.base_total == 448
    assert found.calls.low_percent < found.calls.change_percent < found.calls.high_percent
    assert found.bounds.dropped_pairs == 0
    assert found.bounds.worst_points == found.bounds.best_points == pytest.approx(found.difference_points)
    assert found.selection.optimism_points is None
    assert "not known" in (found.selection.reason or "")


EDGES = {
    "no pair": [(True, None), (None, True)],
    "one pair": [(True, True)],
    "one discordant pair": [(True, False)],
    "no discordant pair": [(True, True)] * 20 + [(False, False)] * 15,
    "all discordant": [(False, True)] * 35,
    "no task both solved": [(True, False)] * 5 + [(False, True)] * 6 + [(False, False)] * 4,
}


@pytest.mark.parametrize("name", list(EDGES))
def test_edges_have_a_value_or_a_reason(name: str) -> None:
    found = compare(*sides(EDGES[name]), QUICK)
    text = found.model_dump_json()
    assert "NaN" not in text
    assert "Infinity" not in text
    assert Comparison.model_validate_json(text) == found
    for interval in found.intervals.values():
        if interval.low_points is None:
            assert interval.reason
        else:
            assert interval.low_points < interval.high_points
    for value, reason in [
        (found.mcnemar.exact, found.mcnemar.reason),
        (found.calls.change_percent, found.calls.reason),
        (found.calls.low_percent, found.calls.reason),
        (found.power.detectable_points, found.power.reason),
        (found.non_inferiority.shown, found.non_inferiority.reason),
    ]:
        assert value is not None or reason
    assert to_markdown(found)


def test_zero_base_calls() -> None:
    base = results("a", [outcome("t", True, 0), outcome("u", True, 0)])
    adapter = results("b", [outcome("t", True, 1), outcome("u", False, 0)])
    found = compare(base, adapter, QUICK)
    assert (found.calls.base_total, found.calls.adapter_total, found.calls.change_percent) == (0, 1, None)
    assert "no tool call" in (found.calls.reason or "")


def test_unknown_tool_calls() -> None:
    base = results("a", [outcome("t", True, None), outcome("u", True, 3)])
    found = compare(base, results("b", [outcome("t", True), outcome("u", True)]), QUICK)
    assert found.calls.reason == "1 of the 2 tasks that both solved have no tool-call count"
    assert found.base.mean_tool_calls is None


def test_several_attempts() -> None:
    base = results("a", [outcome(f"t{i}", i % 2 == 0, 4, k) for i in range(12) for k in range(2)])
    adapter = results("b", [outcome(f"t{i}", (i + k) % 3 > 0, 3, k) for i in range(12) for k in range(2)])
    found = compare(base, adapter, QUICK)
    assert found.n == 12
    assert found.attempts_per_task == 2
    assert found.table is None
    assert "several attempts" in (found.intervals["tango"].reason or "")
    assert found.intervals["student"].low_points is not None
    assert found.non_inferiority.interval == "student"
    assert found.by_difficulty == []
    assert found.base.attempts == 24


def test_missing_pairs_difficulty_and_clusters() -> None:
    base, adapter = sides([(True, True), (True, False), (False, True), (None, True)])
    tasks = [Task(f"t{i}", ["hard", "easy", "easy", "easy"][i], f"source-{i % 2}", None, "s") for i in range(4)]
    found = compare(base, adapter, QUICK, [*tasks, Task("t4", "easy", "source-0")])
    assert found.tasks_in_suite == 5
    assert found.n == 3
    assert found.base.dropped == {"infrastructure: EngineDied": 1, "missing": 1}
    assert found.adapter.dropped == {"missing": 1}
    assert found.bounds.dropped_pairs == 2
    assert found.bounds.worst_points == pytest.approx(100 * (0 - 1 + 1 + 0 - 1) / 5)
    assert found.bounds.best_points == pytest.approx(100 * (0 - 1 + 1 + 1 + 1) / 5)
    assert [(row.difficulty, row.base_only, row.adapter_only) for row in found.by_difficulty] == [
        ("easy", 1, 1),
        ("hard", 0, 0),
    ]
    assert found.clusters == 2
    assert found.intervals["cluster"].label == "cluster-robust by source data set"
    assert found.tasks[1].model_dump() == {
        "task_id": "t1",
        "difficulty": "easy",
        "cluster": "source-1",
        "base_solved": 1.0,
        "adapter_solved": 0.0,
        "base_tool_calls": 4.0,
        "adapter_tool_calls": 3.0,
    }


def test_flags_and_endings_are_counted() -> None:
    base = results("a", [outcome("t", True, stop="finished", raw_tool_markup=False)])
    rows = [
        outcome("t", False, stop="call_budget", raw_tool_markup=True),
        outcome("u", False, stop="timeout", raw_tool_markup=False),
    ]
    found = compare(base, results("b", rows), QUICK)
    assert found.adapter.stops == {"call_budget": 1, "timeout": 1}
    assert (found.base.raw_tool_markup, found.adapter.raw_tool_markup) == (0, 1)


def test_optimism_of_a_checkpoint_picked_on_these_tasks() -> None:
    base, adapter = sides(PI)
    shifted = results("c", [outcome(row.task_id, not row.solved) for row in adapter.rows])
    near = results("d", [outcome(r.task_id, r.solved if i % 10 else not r.solved) for i, r in enumerate(adapter.rows)])
    found = compare(base, adapter, QUICK, selection=Selection("heldout", [adapter, near, shifted]))
    assert found.selection.method == "bootstrap"
    assert found.selection.candidates == 3
    assert 0 <= found.selection.optimism_points < 5
    counts = compare(base, adapter, QUICK, selection=Selection("heldout", candidate_count=10)).selection
    assert counts.method == "analytic"
    assert counts.low_points < counts.optimism_points < counts.high_points
    assert counts.optimism_points == pytest.approx(3.248, abs=0.001)
    assert compare(base, adapter, QUICK, selection=Selection("heldout")).selection.optimism_points is None
    assert compare(base, adapter, QUICK, selection=Selection("validation")).selection.optimism_points == 0


def test_same_input_same_comparison() -> None:
    assert compare(*sides(PI), QUICK, seed=4) == compare(*sides(PI), QUICK, seed=4)


def test_settings_are_used() -> None:
    narrow = compare(*sides(PI), Settings(confidence=0.8, margin_points=1.0, bootstrap_draws=200))
    assert narrow.confidence == 0.8
    assert narrow.intervals["normal"].half_width_points == pytest.approx(5.845 * 1.28155 / 1.95996, abs=0.002)
    assert narrow.non_inferiority.shown is (narrow.intervals["tango"].low_points > -1)


def test_markdown() -> None:
    text = to_markdown(compare(*sides(PI), QUICK))
    assert "| unnamed | 146 | 81.5% | 84.9% | +3.4 ± 5.8 | -25% (112 tasks) |" in text
    assert "| Tango score | -2.6 to +9.8 |" in text
    assert "| At most 5 points worse (tango) | shown |" in text
    assert "112 / 7 / 12 / 15" in text


def test_numbers_in_words() -> None:
    assert [signed(value) for value in (3.42, -0.67, -0.01, 0.0, None)] == ["+3.4", "-0.7", "0.0", "0.0", "–"]
    assert span(-1.0, 2.0, "%") == "-1.0% to +2.0%"


def test_json_is_plain() -> None:
    assert json.loads(compare(*sides(PI), QUICK).model_dump_json())["schema_version"] == 1
