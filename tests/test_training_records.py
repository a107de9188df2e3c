import json

import pytest

from scripts.training import records


def rollout(number, t=None, suite="s", task="t", **extra):
    return {
        "id": f"r{number}", "t": float(number if t is None else t), "suite": suite, "task_id": task,
        "policy_version": 0, "reward": 1.0, "correctness": 1.0, "tool_calls": 2, "model_calls": 3, "status": "scored",
        "stop": "finished", "error": None, "dropped": None, "prompt_tokens": 10, "completion_tokens": 5, "wall_s": 1.0,
        **extra,
    }  # fmt: skip


def test_a_torn_last_line_is_left_out_and_mended(tmp_path):
    path = tmp_path / "steps.jsonl"
    records.append_line(path, {"step": 1})
    with path.open("a") as file:
        file.write('{"step": 2, "rew')
    assert records.read_lines(path) == [{"step": 1}]
    records.mend(path)
    records.append_line(path, {"step": 2})
    assert records.read_lines(path) == [{"step": 1}, {"step": 2}]


def test_a_broken_line_in_the_middle_is_an_error_that_names_the_row(tmp_path):
    path = tmp_path / "steps.jsonl"
    path.write_text('{"step": 1}\n{"step"\n{"step": 3}\n')
    with pytest.raises(records.RecordsError, match=r"steps\.jsonl row 2"):
        records.read_lines(path)


def test_nan_never_gets_into_a_record(tmp_path):
    with pytest.raises(ValueError):
        records.append_line(tmp_path / "steps.jsonl", {"kl": float("nan")})


def test_a_missing_file_is_an_empty_record(tmp_path):
    assert records.read_lines(tmp_path / "none.jsonl") == []
    records.mend(tmp_path / "none.jsonl")
    assert records.drop_steps_after(tmp_path / "none.jsonl", 0) == 0
    assert not (tmp_path / "none.jsonl").exists()


def test_steps_after_the_checkpoint_are_dropped(tmp_path):
    path = tmp_path / "steps.jsonl"
    for step in range(1, 6):
        records.append_line(path, {"step": step})
    assert records.drop_steps_after(path, 3) == 2
    assert [line["step"] for line in records.read_lines(path)] == [1, 2, 3]


def test_a_tail_gives_each_whole_line_once(tmp_path):
    path = tmp_path / "rollouts.jsonl"
    tail = records.LineTail(path)
    assert tail.read() == []
    records.append_line(path, {"id": "a"})
    with path.open("a") as file:
        file.write('{"id": "b"')
    assert tail.read() == [{"id": "a"}]
    with path.open("a") as file:
        file.write("}\n")
    assert tail.read() == [{"id": "b"}]
    assert tail.read() == []


def test_rollouts_get_the_step_that_trained_on_them():
    steps = [{"step": 1, "rollout_ids": ["r1", "r2"]}, {"step": 2, "rollout_ids": ["r2", "r3"]}]
    rows = records.joined([rollout(3), rollout(1), rollout(2), rollout(4)], steps)
    assert [(row["t"], row["step"]) for row in rows] == [(1.0, 1), (2.0, 1), (3.0, 2), (4.0, None)]
    assert tuple(rows[0]) == records.ROLLOUT_FIELDS
    json.dumps(rows, allow_nan=False)


def test_tasks_are_counted_once_and_only_up_to_the_checkpoint():
    rollouts = [rollout(1, task="a"), rollout(2, task="a"), rollout(3, task="b"), rollout(4, task="c"),
                rollout(5, suite="other", task="a")]  # fmt: skip
    steps = [{"step": 1, "rollout_ids": ["r1", "r2"]}, {"step": 2, "rollout_ids": ["r3"]},
             {"step": 4, "rollout_ids": ["r5"]}]  # fmt: skip
    rows = records.joined(rollouts, steps)
    assert records.tasks_trained_by_step(rows, [1, 2, 3, 4]) == {1: 1, 2: 2, 3: 2, 4: 3}


def test_rollouts_of_steps_that_were_thrown_away_count_as_not_trained(tmp_path):
    path = tmp_path / "steps.jsonl"
    records.append_line(path, {"step": 1, "rollout_ids": ["r1"]})
    records.append_line(path, {"step": 2, "rollout_ids": ["r2"]})
    records.drop_steps_after(path, 1)
    rows = records.joined([rollout(1, task="a"), rollout(2, task="b")], records.read_lines(path))
    assert [row["step"] for row in rows] == [1, None]
    assert records.tasks_trained_by_step(rows, [1, 2]) == {1: 1, 2: 1}


def test_causes_tell_unscored_from_failed():
    lines = [
        rollout(1),
        rollout(2, dropped="too_long"),
        rollout(3, status="infrastructure", error={"type": "NoTurns", "message": ""}),
        rollout(4, status="failed", error={"type": "ConnectionError", "message": ""}),
        rollout(5, status="failed", error=None),
    ]
    assert records.causes(lines) == (2, {"NoTurns": 1}, {"ConnectionError": 1, "too_long": 1, "unknown": 1})


def test_declared_step_lines_carry_no_ids():
    assert records.step_rows([{"step": 1, "rollout_ids": ["x"], "reward": 0.5}]) == [{"step": 1, "reward": 0.5}]
