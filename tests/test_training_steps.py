import time

import pytest

from scripts.study.config import Engine, Rollout, Sandbox, Training
from scripts.study.jobs import Serving, TrainJob
from scripts.training.plan import Plan, PlannedTask
from scripts.training.records import append_line, read_lines
from scripts.training.step_recorder import NoProgress, StepRecorder


@pytest.fixture
def plan(tmp_path):
    job = TrainJob(
        harness="pi", seed=0, hardware="cpu", serving=Serving(dtype="float32"), engine=Engine(), sandbox=Sandbox(),
        rollout=Rollout(), training=Training(no_progress_timeout_s=0.2),
    )  # fmt: skip
    return Plan(
        job=job, base=tmp_path, suites=tmp_path, tasks=[PlannedTask(suite="s", task_id="t")], folder=tmp_path,
        resume=None, engine_url="http://engine", server_url="http://server",
    )  # fmt: skip


def rollout(plan, name, version=0, status="scored", calls=2, reward=1.0, dropped=None, error=None):
    append_line(
        plan.rollouts,
        {
            "id": name, "t": time.time(), "suite": "s", "task_id": "t", "policy_version": version, "reward": reward,
            "correctness": reward, "tool_calls": calls, "model_calls": calls + 1, "status": status, "stop": "finished",
            "error": error, "dropped": dropped, "prompt_tokens": 1, "completion_tokens": 1, "wall_s": 1.0,
        },
    )  # fmt: skip


def test_a_step_is_described_by_the_rollouts_that_it_trained_on(plan):
    recorder = StepRecorder(plan)
    rollout(plan, "a", version=0, calls=4, reward=0.0)
    rollout(plan, "b", version=1, calls=2)
    rollout(plan, "later", version=1, calls=9)
    rollout(plan, "lost", status="failed", error={"type": "ConnectionError", "message": ""}, reward=None)
    recorder.packed([("a", -1.0), ("b", 1.0)])
    recorder.packed([("later", 0.0)])  # the loader is a micro-batch ahead of the trainer
    recorder.trained()
    line = recorder.write(2, {"loss": 0.5, "ratio": 1.0, "kl": float("nan"), "batch/trained_tokens_per_step": 7.0})
    assert read_lines(plan.steps) == [line]
    assert line["rollout_ids"] == ["a", "b"]
    assert (line["reward"], line["tool_calls"], line["rollouts"], line["informative"]) == (0.5, 3.0, 2, 1.0)
    assert (line["staleness_mean"], line["staleness_max"]) == (0.5, 1)
    assert (line["scored"], line["unscored"], line["failed"]) == (3, {}, {"ConnectionError": 1})
    assert (line["importance_ratio"], line["kl"], line["tokens"]) == (1.0, None, 7)
    recorder.trained()
    following = recorder.write(3, {"loss": 0.1})
    assert (following["rollout_ids"], following["informative"], following["scored"]) == (["later"], 0.0, 0)


def test_a_rollout_whose_samples_fall_into_two_steps_counts_in_the_first(plan):
    recorder = StepRecorder(plan)
    rollout(plan, "forked")
    recorder.packed([("forked", 1.0)])
    recorder.packed([("forked", 1.0)])
    recorder.trained()
    assert recorder.write(1, {})["rollout_ids"] == ["forked"]
    recorder.trained()
    assert recorder.write(2, {})["rollout_ids"] == []


def test_rollouts_of_an_earlier_run_are_not_counted_again(plan):
    rollout(plan, "old")
    recorder = StepRecorder(plan)
    rollout(plan, "new")
    recorder.packed([("new", 1.0)])
    recorder.trained()
    assert recorder.write(1, {})["scored"] == 1


def test_without_anything_to_train_on_the_training_ends_and_says_what_came_instead(plan):
    recorder = StepRecorder(plan)
    recorder.begin()
    for _ in range(3):
        rollout(plan, "x", status="infrastructure", reward=None, error={"type": "NoTurns", "message": ""})
    rollout(plan, "long", dropped="too_long")
    recorder.check_progress()
    time.sleep(0.25)
    rollout(plan, "y", status="infrastructure", reward=None, error={"type": "NoTurns", "message": ""})
    with pytest.raises(NoProgress, match=r"no_progress_timeout_s.*1 were graded, 4 \(NoTurns\).*1 \(too_long\)"):
        recorder.check_progress()


def test_a_graded_rollout_or_a_micro_batch_is_progress(plan):
    recorder = StepRecorder(plan)
    recorder.begin()
    time.sleep(0.25)
    rollout(plan, "a")
    recorder.check_progress()
    time.sleep(0.25)
    recorder.packed([("a", 1.0)])
    recorder.check_progress()
    time.sleep(0.25)
    with pytest.raises(NoProgress):
        recorder.check_progress()
