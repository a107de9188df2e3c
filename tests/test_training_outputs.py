import json

import pytest

from scripts.study.config import Engine, Rollout, Sandbox, Training
from scripts.study.jobs import Serving, TrainJob
from scripts.training import outputs
from scripts.training.plan import Plan, PlannedTask
from scripts.training.records import append_line, read_lines
from scripts.training.work_folder import mark_complete


@pytest.fixture
def plan(tmp_path, monkeypatch):
    monkeypatch.setattr(outputs, "PACKAGES", ("pydantic",))
    job = TrainJob(
        harness="pi", seed=0, hardware="cpu", serving=Serving(dtype="float32"), engine=Engine(), sandbox=Sandbox(),
        rollout=Rollout(), training=Training(steps=3, checkpoint_every=2),
    )  # fmt: skip
    folder = tmp_path / "work"
    for step in (2, 3):
        checkpoint = folder / f"checkpoint-{step}"
        checkpoint.mkdir(parents=True)
        (checkpoint / "adapter_model.safetensors").write_bytes(b"weights %d" % step)
        config = {"base_model_name_or_path": str(tmp_path / "base"), "r": 16, "revision": None}
        config["target_modules"] = ["v_proj", "q_proj"]
        (checkpoint / "adapter_config.json").write_text(json.dumps(config))
        (checkpoint / "optimizer.pt").write_bytes(b"private")
        mark_complete(checkpoint, step)
    for step in (1, 2, 3):
        append_line(folder / "steps.jsonl", {"step": step, "seconds": 10.0, "rollout_ids": [f"r{step}"]})
    for number in (1, 2, 3, 4):
        line = {"id": f"r{number}", "t": float(number), "suite": "s", "task_id": f"t{number % 2}", "status": "scored",
                "policy_version": 0, "reward": 1.0, "correctness": 1.0, "tool_calls": 1, "model_calls": 2,
                "stop": "finished", "error": None, "dropped": None, "prompt_tokens": 1, "completion_tokens": 1,
                "wall_s": 1.0, "harness_version": "1.6.0"}  # fmt: skip
        append_line(folder / "rollouts.jsonl", line)
    append_line(folder / "launches.jsonl", {"t": 0.0, "from_step": 0})
    append_line(folder / "launches.jsonl", {"t": 1.0, "from_step": 2})
    return Plan(
        job=job, base=tmp_path / "base", suites=tmp_path / "suites", folder=folder, resume=None,
        tasks=[PlannedTask(suite="s", task_id=f"t{number}") for number in range(5)],
        engine_url="http://engine", server_url="http://server",
    )  # fmt: skip


def write(plan, tmp_path):
    return outputs.write_outputs(
        plan, "owner/base", tmp_path / "train", tmp_path / "adapters", {"engine": {"name": "v"}}
    )


def test_target_modules_are_in_order(plan, tmp_path):
    write(plan, tmp_path)
    config = json.loads((tmp_path / "adapters" / "step-3" / "adapter_config.json").read_text())
    assert config["target_modules"] == ["q_proj", "v_proj"]


def test_outputs_are_adapters_and_records_without_local_paths(plan, tmp_path):
    facts = write(plan, tmp_path)
    assert sorted(path.name for path in (tmp_path / "adapters").iterdir()) == ["step-2", "step-3"]
    folder = tmp_path / "adapters" / "step-3"
    assert sorted(path.name for path in folder.iterdir()) == ["adapter_config.json", "adapter_model.safetensors"]
    assert (folder / "adapter_model.safetensors").read_bytes() == b"weights 3"
    assert json.loads((folder / "adapter_config.json").read_text())["base_model_name_or_path"] == "owner/base"
    assert str(tmp_path) not in (folder / "adapter_config.json").read_text()
    assert [line["step"] for line in read_lines(tmp_path / "train" / "train.jsonl")] == [1, 2, 3]
    assert [line["step"] for line in read_lines(tmp_path / "train" / "rollouts.jsonl")] == [1, 2, 3, None]
    assert json.loads((tmp_path / "train" / "training.json").read_text()) == facts
    assert (facts["steps"], facts["wall_s"], facts["launches"], facts["resumed"]) == (3, 30.0, 2, 1)
    assert facts["tasks_trained_by_step"] == {"2": 2, "3": 2}
    assert (facts["rollouts"], facts["trained"], facts["tasks"], facts["engine"]) == (4, 3, 5, {"name": "v"})


def test_a_missing_checkpoint_is_an_error_and_nothing_is_declared(plan, tmp_path):
    (plan.folder / "checkpoint-2" / "complete.json").unlink()
    with pytest.raises(outputs.OutputsError, match="no complete checkpoint of step 2"):
        write(plan, tmp_path)
    assert not (tmp_path / "adapters").exists()
    assert not (tmp_path / "train").exists()


@pytest.mark.parametrize("extra", [3, 5])
def test_a_step_twice_or_out_of_order_is_an_error(plan, tmp_path, extra):
    append_line(plan.steps, {"step": extra, "seconds": 1.0, "rollout_ids": []})
    with pytest.raises(outputs.OutputsError, match="not there once each"):
        write(plan, tmp_path)


def test_a_local_path_anywhere_in_an_adapters_config_is_refused(plan, tmp_path):
    path = plan.folder / "checkpoint-2" / "adapter_config.json"
    path.write_text(json.dumps({"base_model_name_or_path": "x", "auto_mapping": {"library": ["/somewhere/here"]}}))
    with pytest.raises(outputs.OutputsError, match=r"auto_mapping\.library\.0"):
        write(plan, tmp_path)
