"""The attempt record: what is refused, and that files come whole, sorted and alike."""

import json

import pytest

from scripts.study.attempts import Attempt, AttemptsError, correctness, read_attempts, write_attempts


def attempt(task_id="task-1", **changes):
    """A scored attempt with any field changed."""
    fields = {
        "suite": "held",
        "task_id": task_id,
        "task_sha256": "a" * 64,
        "attempt": 0,
        "harness": "pi",
        "harness_version": "1.6.0",
        "policy": "base",
        "policy_sha256": "b" * 64,
        "base_model": "owner/model",
        "status": "scored",
        "solved": True,
        "rewards": {"correctness": 1.0, "tool_efficiency": None},
        "stop": "finished",
        "tool_calls": 3,
        "tool_calls_by_name": {"bash": 2, "read": 1},
        "model_calls": 4,
        "prompt_tokens": 900,
        "completion_tokens": 80,
        "wall_s": 2.5,
        "sampling": {"temperature": 0.8},
        "limits": {"call_budget": 15},
        "engine": {"name": "vllm"},
        "sandbox": {"environment": "bubblewrap"},
    }
    return Attempt(**{**fields, **changes})


BROKEN = {"status": "infrastructure", "solved": None, "stop": None, "rewards": {}}


def lines(*rows):
    return "".join(json.dumps(row.model_dump(mode="json")) + "\n" for row in rows)


def test_rows_come_back_sorted_with_numbers_as_numbers(tmp_path):
    path = tmp_path / "eval" / "held.jsonl"
    rows = [attempt("task-10"), attempt("task-9", attempt=1), attempt("task-9")]
    write_attempts(path, rows)
    assert [row.key for row in read_attempts(path)] == [("task-9", 0), ("task-9", 1), ("task-10", 0)]
    assert {row.key: row for row in read_attempts(path)} == {row.key: row for row in rows}
    assert [entry.name for entry in path.parent.iterdir()] == ["held.jsonl"]


def test_files_hold_the_schema_version_under_its_short_name(tmp_path):
    write_attempts(tmp_path / "a.jsonl", [attempt()])
    row = json.loads((tmp_path / "a.jsonl").read_text())
    assert row["schema"] == 1
    assert "schema_version" not in row


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"solved": False}, "solved is False, but the correctness is 1.0"),
        ({"solved": None}, "solved is None"),
        ({"rewards": {"correctness": None}}, "must be there"),
        ({"stop": None}, "must be there"),
        ({"tool_calls": 4}, "sums to another number"),
        ({**BROKEN}, "error must say why"),
        ({**BROKEN, "solved": False, "error": {"type": "E", "message": "m"}}, "solved must be null"),
        ({"policy": "selected"}, "policy"),
        ({"task_sha256": "abc"}, "task_sha256"),
        ({"attempt": "0"}, "attempt"),
        ({"surprise": 1}, "surprise"),
    ],
)
def test_a_record_at_odds_with_itself_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        attempt(**changes)


def test_an_infrastructure_ending_is_never_wrong():
    row = attempt(**BROKEN, error={"type": "EngineDied", "message": "gone"})
    assert row.solved is None


def test_correctness_falls_back_to_reward_and_null_is_not_zero():
    assert correctness({"correctness": 0.5, "reward": 1.0}) == 0.5
    assert correctness({"correctness": None, "reward": 1.0}) is None
    assert correctness({"reward": 1.0}) == 1.0
    assert correctness({"submission": 1.0}) is None


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_non_finite_rewards_are_refused_with_file_and_row(tmp_path, value):
    path = tmp_path / "held.jsonl"
    text = lines(attempt(), attempt("task-2"))
    path.write_text(text[: text.rindex("1.0")] + value + text[text.rindex("1.0") + 3 :])
    with pytest.raises(AttemptsError, match=r"held\.jsonl, row 2: rewards\.correctness.*finite"):
        read_attempts(path)


def test_a_truncated_line_is_refused(tmp_path):
    path = tmp_path / "held.jsonl"
    path.write_text(lines(attempt(), attempt("task-2"))[:-1])
    with pytest.raises(AttemptsError, match="row 2: the line is truncated"):
        read_attempts(path)
    path.write_text(lines(attempt())[:-9] + "\n")
    with pytest.raises(AttemptsError, match="row 1: Invalid JSON"):
        read_attempts(path)


def test_duplicates_are_refused(tmp_path):
    path = tmp_path / "held.jsonl"
    path.write_text(lines(attempt(), attempt("task-2"), attempt()))
    with pytest.raises(AttemptsError, match=r"row 3: task task-1, attempt 0 is there already, in .*row 1"):
        read_attempts(path)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("suite", "other"),
        ("policy", "step-6"),
        ("harness", "opencode"),
        ("policy_sha256", "c" * 64),
        ("harness_version", "1.7.0"),
    ],
)
def test_rows_of_two_measurements_are_refused(tmp_path, field, value):
    path = tmp_path / "held.jsonl"
    path.write_text(lines(attempt(), attempt("task-2", **{field: value})))
    with pytest.raises(AttemptsError, match=f"row 2: {field} is"):
        read_attempts(path)
    with pytest.raises(AttemptsError, match=f"row 2: {field} is"):
        write_attempts(tmp_path / "new.jsonl", [attempt(), attempt("task-2", **{field: value})])
    assert not (tmp_path / "new.jsonl").exists()


def test_an_empty_or_missing_file_is_refused(tmp_path):
    with pytest.raises(AttemptsError, match="cannot be read"):
        read_attempts(tmp_path / "none.jsonl")
    (tmp_path / "empty.jsonl").write_text("")
    with pytest.raises(AttemptsError, match="no attempts"):
        read_attempts(tmp_path / "empty.jsonl")
