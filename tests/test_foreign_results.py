"""Results of Harbor and OpenEnv; with their packages at hand also what those really write."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from scripts.study.foreign_results import read_results
from scripts.study.outcomes import OutcomesError


def trial(name: str, task: str, **changes: Any) -> dict[str, Any]:
    """A trial's result.json, without the fields that are not read."""
    return {
        "id": name,
        "task_name": f"org/{task}",
        "trial_name": name,
        "task_id": {"path": f"/somewhere/tasks/{task}"},
        "source": "suite",
        "task_checksum": f"sum-{task}",
        "config": {"anything": 1},
        "agent_info": {"name": "pi", "version": "1.6.0", "model_info": {"name": "policy", "provider": "local"}},
        "verifier_result": {"rewards": {"correctness": 1.0}},
        "exception_info": None,
        **changes,
    }


def write_trial(job: Path, value: dict[str, Any], calls: list[int] | None = None) -> None:
    folder = job / value["trial_name"]
    (folder / "agent").mkdir(parents=True)
    (folder / "result.json").write_text(json.dumps(value))
    if calls is not None:
        steps = [{"source": "agent", "tool_calls": [{"function_name": "bash"}] * count or None} for count in calls]
        (folder / "agent" / "trajectory.json").write_text(json.dumps({"schema_version": "ATIF-v1.6", "steps": steps}))


def failed(kind: str) -> dict[str, Any]:
    return {"exception_type": kind, "exception_message": "", "exception_traceback": "", "occurred_at": "2026-01-01"}


def test_harbor_job(tmp_path: Path) -> None:
    job = tmp_path / "job"
    write_trial(job, trial("a__1", "a"), [1, 2, 0])
    write_trial(job, trial("a__2", "a", verifier_result={"rewards": {"reward": 0.5}}), [1])
    write_trial(job, trial("b__1", "b", exception_info=failed("AgentTimeoutError")), [4])
    write_trial(job, trial("c__1", "c", exception_info=failed("ApiError")))
    write_trial(job, trial("d__1", "d", verifier_result=None, exception_info=failed("RewardFileNotFoundError")))
    write_trial(job, trial("e__1", "e", verifier_result={"rewards": {"correctness": None, "reward": 1}}))
    write_trial(job, trial("g__1", "g"))
    (job / "f__1").mkdir()
    (job / "f__1" / "config.json").write_text(json.dumps({"task": {"path": "/somewhere/tasks/f"}}))
    (job / "result.json").write_text("{}")
    found = read_results(job)
    assert found.kind == "harbor"
    rows = {(row.task_id, row.attempt): row for row in found.rows}
    assert [(r.scored, r.solved, r.tool_calls, r.stop) for r in (rows["a", 0], rows["a", 1], rows["b", 0])] == [
        (True, True, 3, "finished"),
        (True, False, 1, "finished"),
        (True, True, 4, "timeout"),
    ]
    assert [(rows[task, 0].scored, rows[task, 0].error) for task in "cdf"] == [
        (False, "ApiError"),
        (False, "RewardFileNotFoundError"),
        (False, "unfinished trial"),
    ]
    assert (rows["g", 0].solved, rows["g", 0].tool_calls) == (True, None)
    assert (rows["e", 0].scored, rows["e", 0].error) == (False, "no grade")
    assert rows["a", 0].harness == "pi"
    assert rows["a", 0].policy == "policy"
    assert rows["a", 0].suite == "suite"
    assert rows["a", 0].task_sha256 == "harbor:sum-a"
    assert found.notes == (
        f"1 trials of {job} never finished.",
        f"1 graded trials of {job} have no trajectory, so their tool calls are not known.",
    )


def refused(path: Path) -> str:
    with pytest.raises(OutcomesError) as error:
        read_results(path)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_harbor_faults(tmp_path: Path) -> None:
    job = tmp_path / "twice"
    write_trial(job, trial("x", "a"))
    copy = trial("y", "a")
    write_trial(job, {**copy, "id": "x"})
    assert "trial x is there already" in refused(job)
    broken = tmp_path / "broken"
    write_trial(broken, trial("x", "a"))
    (broken / "x" / "result.json").write_text(json.dumps(trial("x", "a"))[:-40])
    assert "x/result.json" in refused(broken)
    endless = tmp_path / "endless"
    write_trial(endless, trial("x", "a", verifier_result={"rewards": {"correctness": float("nan")}}))
    assert "non-finite number NaN" in refused(endless)
    overflow = tmp_path / "overflow"
    write_trial(overflow, trial("x", "a"))
    file = overflow / "x" / "result.json"
    file.write_text(file.read_text().replace('"correctness": 1.0', '"correctness": 1e999'))
    assert "verifier_result.rewards.correctness" in refused(overflow)
    assert "no such thing" not in refused(tmp_path / "nothing.jsonl")
    (tmp_path / "empty").mkdir()
    assert "give a job folder" in refused(tmp_path / "empty")


def rollout(session: str, task: str, **changes: Any) -> dict[str, Any]:
    return {
        "session_id": session,
        "task_name": task,
        "dataset": "suite",
        "harness": "pi",
        "reward": 1.0,
        "rewards": {"correctness": 1.0},
        "n_turns": 2,
        "turns": [
            {"turn": 0, "role": "agent", "text": "", "tool_calls": [{"name": "bash"}, {"name": "read"}]},
            {"turn": 1, "role": "agent", "text": "done", "discarded": True, "tool_calls": [{"name": "bash"}]},
            {"turn": 2, "role": "auxiliary", "text": "title", "tool_calls": [{"name": "x"}]},
        ],
        **changes,
    }


ROLLOUTS = [
    rollout("1", "a"),
    rollout("2", "a", rewards={}, reward=0.0, budget_stop_count=1),
    rollout("3", "b", ok=False, exception_type="AgentTimeoutError"),
    rollout("4", "c", n_turns=0, turns=[], reward=0.0, rewards={}),
    rollout("5", "d", findings=["[FATAL] turn_mismatch: lost a turn"]),
    rollout("6", "e", reward=None, rewards={}, ok=False, exception_type="FileNotFoundError"),
    rollout("7", "f", turns=[{"role": "agent", "text": "<tool_call>{}", "tool_calls": []}], n_turns=1),
    rollout("8", "g", turns=[]),
]


def test_openenv_rules_of_what_counts(tmp_path: Path) -> None:
    file = tmp_path / "rollouts.jsonl"
    file.write_text("".join(json.dumps(value) + "\n" for value in ROLLOUTS))
    found = read_results(file)
    assert found.kind == "openenv"
    assert found.sha256 is not None
    rows = {(row.task_id, row.attempt): row for row in found.rows}
    assert [(r.solved, r.tool_calls, r.stop) for r in (rows["a", 0], rows["a", 1], rows["b", 0])] == [
        (True, 2, "finished"),
        (False, 2, "call_budget"),
        (True, 2, "timeout"),
    ]
    assert [(rows[task, 0].scored, rows[task, 0].error) for task in "cde"] == [
        (False, "no turns"),
        (False, "fatal finding"),
        (False, "FileNotFoundError"),
    ]
    assert (rows["a", 0].raw_tool_markup, rows["f", 0].raw_tool_markup) == (False, True)
    assert (rows["g", 0].tool_calls, rows["g", 0].raw_tool_markup) == (None, None)


def test_openenv_layouts(tmp_path: Path) -> None:
    (tmp_path / "list.json").write_text(json.dumps(ROLLOUTS))
    folder = tmp_path / "folder"
    folder.mkdir()
    for value in ROLLOUTS:
        (folder / f"{value['session_id']}.json").write_text(json.dumps(value))
    assert read_results(tmp_path / "list.json").rows == read_results(folder).rows


def test_openenv_faults(tmp_path: Path) -> None:
    file = tmp_path / "rollouts.jsonl"
    line = json.dumps(ROLLOUTS[0]) + "\n"
    file.write_text(line + line)
    assert "row 2: session 1 is there already" in refused(file)
    file.write_text(line + line[:-30])
    assert "row 2: the line is truncated" in refused(file)
    file.write_text(line.replace('"reward": 1.0', '"reward": Infinity'))
    assert "non-finite number Infinity" in refused(file)
    file.write_text(json.dumps(rollout("1", "")) + "\n")
    assert "neither task_name nor task_id" in refused(file)
    file.write_text('{"something": "else"}\n')
    assert "neither an attempt (no `schema`) nor an OpenEnv rollout" in refused(file)


def test_what_harbor_really_writes(tmp_path: Path) -> None:
    """A trial result of the package's own classes."""
    pytest.importorskip("harbor")
    from harbor.models.task.id import LocalTaskId
    from harbor.models.trial.config import TaskConfig, TrialConfig
    from harbor.models.trial.result import AgentInfo, ExceptionInfo, ModelInfo, TrialResult
    from harbor.models.verifier.result import VerifierResult

    try:
        raise TimeoutError("late")
    except TimeoutError as error:
        info = ExceptionInfo.from_exception(error).model_copy(update={"exception_type": "AgentTimeoutError"})
    result = TrialResult(
        task_name="org/a",
        trial_name="a__x",
        trial_uri="file:///a__x",
        task_id=LocalTaskId(path=Path("/tasks/a")),
        task_checksum="sum",
        config=TrialConfig(task=TaskConfig(path=Path("/tasks/a"))),
        agent_info=AgentInfo(name="pi", version="1", model_info=ModelInfo(name="policy")),
        verifier_result=VerifierResult(rewards={"correctness": 1}),
        exception_info=info,
    )
    (tmp_path / "a__x").mkdir()
    (tmp_path / "a__x" / "result.json").write_text(result.model_dump_json(indent=4))
    row = read_results(tmp_path).rows[0]
    assert (row.task_id, row.scored, row.solved, row.stop, row.policy) == ("a", True, True, "timeout", "policy")


def test_harbors_table_of_failures_is_the_one_used() -> None:
    """The failures after which Harbor holds a grade valid."""
    policies = pytest.importorskip("harbor.models.trial.error_policy").ERROR_POLICIES
    from scripts.study.foreign_results import AGENT_ENDED

    assert {name for name, policy in policies.items() if policy.reward_valid} == set(AGENT_ENDED)


def test_what_openenv_really_writes(tmp_path: Path) -> None:
    models = pytest.importorskip("openenv.harbor.models")
    turn = models.HarborTurn(turn=0, text="", tool_calls=[{"name": "bash", "arguments": "{}"}])
    result = models.HarborRolloutResult(
        session_id="s",
        task_name="a",
        dataset="d",
        harness="pi",
        reward=1.0,
        rewards={"correctness": 1.0},
        n_turns=1,
        turns=[turn],
    )
    (tmp_path / "r.json").write_text(result.model_dump_json())
    row = read_results(tmp_path / "r.json").rows[0]
    assert (row.task_id, row.scored, row.solved, row.tool_calls) == ("a", True, True, 1)


@pytest.mark.parametrize("steps", [[{"tool_calls": 5}], ["text"]])
def test_a_trajectory_of_another_shape_is_refused(tmp_path: Path, steps: list[Any]) -> None:
    write_trial(tmp_path, trial("x", "a"), [1])
    (tmp_path / "x" / "agent" / "trajectory.json").write_text(json.dumps({"steps": steps}))
    assert "step 1: its `tool_calls` are no list" in refused(tmp_path)


def test_a_trial_without_a_task_and_bottomless_json_are_refused(tmp_path: Path) -> None:
    write_trial(tmp_path, trial("x", "a", task_id={"path": ""}))
    assert "no name of a task" in refused(tmp_path)
    deep = tmp_path / "deep.json"
    deep.write_text("[" * 100_000)
    assert "must be whole" in refused(deep)
