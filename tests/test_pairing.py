"""Joining two sides: what is paired, what is counted as missing, what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from scripts.stats.pairing import PairingError, Task, pair_up
from tests.paired_rows import outcome, results, sides


def test_pairs_and_missing_tasks() -> None:
    base = results("a", [outcome("t1", True), outcome("t2", False), outcome("t3", None), outcome("t5", True)])
    adapter = results("b", [outcome("t1", True), outcome("t2", True), outcome("t3", True), outcome("t4", True)])
    pairing = pair_up(base, adapter, [Task(f"t{i}") for i in range(1, 7)])
    assert [pair.task.task_id for pair in pairing.pairs] == ["t1", "t2"]
    assert pairing.dropped["base"] == {"infrastructure: EngineDied": 1, "missing": 2}
    assert pairing.dropped["adapter"] == {"missing": 2}
    assert pairing.all_outcomes == [(1, 1), (0, 1), (None, 1), (None, 1), (1, None), (None, None)]
    assert pairing.tasks_in_suite == 6


def test_attempts_are_averaged_within_the_task() -> None:
    base = results("a", [outcome("t", True, 4), outcome("t", False, 8, 1), outcome("t", None, 9, 2)])
    adapter = results("b", [outcome("t", True, 1), outcome("t", True, 2, 1)])
    pairing = pair_up(base, adapter)
    pair = pairing.pairs[0]
    assert (pair.base, pair.adapter) == (0.5, 1.0)
    assert (pair.base_calls, pair.base_calls_solved, pair.adapter_calls_solved) == (6, 4, 1.5)
    assert pairing.attempts_per_task == 2
    assert pairing.notes == ["1 tasks of the base have attempts without a grade; their other attempts count."]


def refused(base: Any, adapter: Any, tasks: Any = None) -> str:
    with pytest.raises(PairingError) as error:
        pair_up(base, adapter, tasks)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_duplicates_are_refused() -> None:
    twice = results("a", [outcome("t", True), outcome("t", False)])
    assert refused(twice, results("b", [outcome("t", True)])).startswith(
        "a: 1 rows are duplicates, the first is task t"
    )


@pytest.mark.parametrize(("field", "words"), [("suite", "suite"), ("harness", "harness"), ("base_model", "base model")])
def test_rows_of_another_kind_are_refused(field: str, words: str) -> None:
    base = results("a", [outcome("t", True, **{field: "x"}), outcome("u", True, **{field: "x"})])
    adapter = results("b", [outcome("t", True, **{field: "y"})])
    assert f"rows of more than one {words}: x (2 rows, first in a), y (1 rows, first in b)" in refused(base, adapter)


def test_rows_of_another_policy_are_refused() -> None:
    base = results("a", [outcome("t", True, policy="base"), outcome("u", True, policy="step-3")])
    assert "base (1 rows), step-3 (1 rows)" in refused(base, results("b", [outcome("t", True)]))


def test_sides_mixed_up() -> None:
    base, adapter = sides([(True, True)], policy="base")
    assert "are the sides mixed up?" in refused(base, adapter)


def test_unknown_tasks_and_another_index_are_refused() -> None:
    base, adapter = sides([(True, True), (True, False)], suite="s")
    assert "1 tasks are not in the suite's index, first t1" in refused(base, adapter, [Task("t0")])
    index = [Task("t0", suite="other"), Task("t1", suite="other")]
    assert "the rows are of suite s, the index of other" in refused(base, adapter, index)


def test_a_task_with_another_content_is_refused() -> None:
    base, adapter = sides([(True, True)], task_sha256="0" * 64)
    assert "another content, the first is t0" in refused(base, adapter, [Task("t0", sha256="1" * 64)])
    other = results("b", [outcome("t0", True, task_sha256="2" * 64)])
    assert "b differs from a" in refused(base, other)
    harbor = results("b", [outcome("t0", True, task_sha256="harbor:xyz")], "harbor")
    assert pair_up(base, harbor).pairs


def test_no_task_in_common_is_refused() -> None:
    assert "no task in common (1 and 1 tasks)" in refused(
        results("a", [outcome("t", True)]), results("b", [outcome("u", True)])
    )
    assert "no attempts in it" in refused(results("a", []), results("b", [outcome("u", True)]))


def test_differences_in_conditions_are_noted() -> None:
    base = results("a", [outcome("t", True, harness_version="1", conditions="{}")])
    adapter = results("b", [outcome("t", True, harness_version="2", conditions='{"x": 1}')])
    notes = pair_up(base, adapter).notes
    assert "version differs: 1 for the base, 2 for the adapter" in notes[0]
    assert "2 different conditions" in notes[1]


def test_a_retry_of_an_attempt_without_a_grade_is_one_attempt() -> None:
    base, _ = sides([(True, True)])
    retried = results("b", [outcome("t0", None), outcome("t0", True, attempt=1)], "harbor")
    pairing = pair_up(base, retried)
    assert (pairing.attempts_per_task, pairing.pairs[0].adapter) == (1, 1.0)


def test_the_same_results_on_both_sides_are_refused() -> None:
    base, _ = sides([(True, True)])
    assert "are the same results" in refused(base, base)
    assert "are the same results" in refused(base._replace(sha256="0"), base._replace(path="copy", sha256="0"))
