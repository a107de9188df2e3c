import json

import pytest

from scripts import train_adapter
from scripts.study.config import Engine, Rollout, Sandbox, Training
from scripts.study.jobs import Serving, TrainJob
from scripts.study.suite_index import SuiteError, TaskRow, write_index


def job(**parts):
    parts = {"engine": Engine(), "rollout": Rollout(), "training": Training(), "hardware": "cpu", **parts}
    return TrainJob(harness="pi", seed=0, serving=Serving(dtype="float32"), sandbox=Sandbox(), **parts)


def task(name, role="train", suite="s"):
    return TaskRow(suite=suite, role=role, task_id=name, index=0, path=f"suites/{suite}/tasks/{name}", sha256="0" * 64,
                   difficulty="easy", cluster=None)  # fmt: skip


def test_the_order_of_tasks_depends_on_the_seed_and_on_nothing_else():
    tasks = [task(f"t{number}") for number in range(20)]
    order = train_adapter.training_order(tasks, 3)
    assert order == train_adapter.training_order(tasks[::-1], 3)
    assert order != train_adapter.training_order(tasks, 4)
    assert sorted(planned.task_id for planned in order) == sorted(row.task_id for row in tasks)


def test_only_training_suites_are_trained_on(tmp_path):
    write_index(tmp_path / "a.jsonl", [task("t1")])
    write_index(tmp_path / "b.jsonl", [task("t2", role="heldout", suite="b")])
    write_index(tmp_path / "c.jsonl", [])
    assert [row.task_id for row in train_adapter.read_training_tasks([tmp_path / "a.jsonl"])] == ["t1"]
    with pytest.raises(SuiteError, match="b/t2 has role heldout"):
        train_adapter.read_training_tasks([tmp_path / "a.jsonl", tmp_path / "b.jsonl"])
    with pytest.raises(SuiteError, match="no task"):
        train_adapter.read_training_tasks([tmp_path / "c.jsonl"])


def test_progress_says_how_far_how_good_and_how_long():
    steps = [
        {"step": 3, "seconds": 20.0, "unscored": {}, "failed": {}, "reward": 0.5, "correctness": 0.5, "tool_calls": 3.0,
         "rollouts": 8, "wait_s": 10.0},
        {"step": 4, "seconds": 40.0, "unscored": {"NoTurns": 1}, "failed": {"x": 2}, "reward": 0.61,
         "correctness": 0.57, "tool_calls": 2.5, "rollouts": 9, "wait_s": None},
    ]  # fmt: skip
    assert train_adapter.progress_line(steps, 10) == (
        "train: step 4/10  reward 0.610  correct 0.57  tool calls 2.50  "
        "rollouts 9 (3 lost)  40 s (0 s waiting)  3.0 min left"
    )


def test_several_gpus_are_spread_over_processes():
    plan = train_adapter.Path("plan.json")
    assert "torch.distributed.run" not in train_adapter.trainer_command(plan, 1, "cuda")
    assert "torch.distributed.run" not in train_adapter.trainer_command(plan, 4, "cpu")
    spread = train_adapter.trainer_command(plan, 4, "cuda")
    assert spread[spread.index("--nproc-per-node") + 1] == "4"
    assert spread[-3:] == ["-m", "scripts.training.run_trainer", "plan.json"]


def test_engine_and_trainer_see_gpus_of_their_own(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6")
    engine, trainer = train_adapter.gpus_of(job(hardware="cuda", engine=Engine(tensor_parallel=2)))
    assert (engine, trainer) == (["4", "5"], ["6"])
    assert train_adapter.trainer_environment(job(hardware="cuda"), trainer)["CUDA_VISIBLE_DEVICES"] == "6"
    assert train_adapter.gpus_of(job()) == ([], [])
    assert train_adapter.trainer_environment(job(), [])["CUDA_VISIBLE_DEVICES"] == ""


@pytest.fixture
def arguments(tmp_path):
    write_index(tmp_path / "train.jsonl", [task("t1")])
    (tmp_path / "base.json").write_text(json.dumps({"hub_id": "owner/base", "sha256": "0" * 64}))

    def make(settings):
        text = settings if isinstance(settings, str) else settings.model_dump_json()
        paths = {"base": "base", "base-facts": "base.json", "index": "train.jsonl", "outdir": ".",
                 "harbor-python": "py", "agents-dir": "agents", "work": "work", "log-dir": "logs"}  # fmt: skip
        return [
            "--settings",
            text,
            *(word for key, name in paths.items() for word in (f"--{key}", str(tmp_path / name))),
        ]

    return make


def refusal(capsys, arguments):
    assert train_adapter.main(arguments) == 1
    said = capsys.readouterr().err
    assert "Traceback" not in said
    return said


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (job(rollout=Rollout(top_p=0.9)), "top_p 0.9"),
        (job(rollout=Rollout(temperature=0.0)), "rollout.temperature"),
        (job(engine=Engine(extra_args=["--data-parallel-size", "2"])), "one replica only"),
        (job(hardware="cuda"), "expected 2 GPUs"),
        (job(), "no config.json"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_starts(capsys, arguments, monkeypatch, tmp_path, settings, said):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setattr(train_adapter, "run", lambda *_: pytest.fail("something was started"))
    assert said in refusal(capsys, arguments(settings))
    assert not (tmp_path / "logs").exists()


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        ("use_rslora", True, "wrong factor"),
        ("use_dora", True, "cannot serve DoRA"),
        ("modules_to_save", ["lm_head"], "whole modules"),
        ("rank_pattern", {"q_proj": 8}, "one rank"),
        ("alpha_pattern", {"q_proj": 8}, "one alpha"),
        ("target_modules", ["q_proj", "lm_head"], "GGUF conversion"),
        ("target_modules", "embed_tokens", "GGUF conversion"),
    ],
)
def test_adapters_that_cannot_be_carried_are_refused_with_the_reason(capsys, arguments, key, value, why):
    settings = json.loads(job().model_dump_json())
    settings["training"]["lora"][key] = value
    said = refusal(capsys, arguments(json.dumps(settings)))
    assert "training" in said
    assert why in said


def test_a_base_without_facts_is_refused(capsys, arguments, tmp_path):
    (tmp_path / "base.json").write_text(json.dumps({"hub_id": "owner/base"}))
    assert "no sha256" in refusal(capsys, arguments(job()))
