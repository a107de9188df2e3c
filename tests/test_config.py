"""The config model: every shipped config is valid, the schema does not drift, faults name their key."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest
import yaml

from scripts import document_config
from scripts.study.config import ConfigError, Study, parse_study
from scripts.study.jobs import (
    EvaluateJob,
    evaluate_job,
    evaluate_running,
    evaluate_settings,
    read_evaluate_job,
    read_settings,
    read_train_job,
    train_job,
    train_running,
    train_settings,
)

ROOT = Path(__file__).parent.parent
STUDIES = ["config", "smoke", "twil"]


def load(name: str) -> dict:
    return yaml.safe_load((ROOT / "config" / f"{name}.yaml").read_text())


@pytest.mark.parametrize("name", STUDIES)
def test_shipped_config_is_valid(name: str) -> None:
    study = parse_study(load(name), name)
    assert study.suites_of("train")
    assert study.suites_of("heldout")
    assert study.training.checkpoints[-1] == study.training.steps


def test_schema_and_documentation_are_current(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--mend"):
        assert document_config.main([]) == 0
    for path, text in document_config.documents(ROOT).items():
        assert path.read_text() == text, f"{path.name} is stale: run pytest tests/test_config.py --mend"


def test_every_key_is_described() -> None:
    """A key without a description would be a blank in the table."""
    schema = Study.model_json_schema()
    for section in schema["$defs"].values():
        for key, field in section["properties"].items():
            assert field.get("description") or "$ref" in field, key


def test_yaml_reads_on_as_true_and_we_do_not() -> None:
    data = load("config")
    data["selection"] = yaml.safe_load("{on: final}")
    assert parse_study(data).selection.on == "final"


def test_example_in_the_readme_is_valid() -> None:
    text = (ROOT / "README.md").read_text().split("```yaml\n")[1].split("```")[0]
    study = parse_study(yaml.safe_load(text.replace("<40-digit commit>", "'" + "1" * 40 + "'")), "README.md")
    assert study.outdir == "results/mine"


def test_twil_is_the_published_study() -> None:
    study = parse_study(load("twil"))
    training, rollout = study.training, study.rollout
    assert (training.lora.rank, training.lora.alpha, training.lora.target_modules) == (32, 64, "all-linear")
    assert (training.learning_rate, training.steps, training.rollouts_per_task) == (1e-5, 100, 8)
    assert training.checkpoints == list(range(10, 101, 10))
    assert (training.microbatches, training.token_budget, training.max_staleness) == (4, 65536, 4)
    assert (rollout.temperature, rollout.call_budget, rollout.agent_timeout_s) == (0.8, 30, 1200)
    assert training.bonus_weight == 0.1
    heldout = study.suites["smoldataenvs-heldout"]
    assert (heldout.min_index, heldout.limit, heldout.difficulty) == (1000, 150, ["easy", "medium"])
    assert study.suites["traj2envs-heldout"].limit == 40


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (["training", "learning_rate"], "1e-5", "training.learning_rate: '1e-5' is text, not a number"),
        (["training", "learning_rat"], 1e-5, "training.learning_rat: unknown key"),
        (["engine", "max_lora_rank"], 8, "training.lora.rank 16 exceeds engine.max_lora_rank 8"),
        (["training", "lora"], {"use_rslora": True}, "lora.use_rslora: llama.cpp scales"),
        (["training", "lora"], {"use_dora": True}, "lora.use_dora: vLLM cannot serve"),
        (["training", "lora"], {"modules_to_save": ["lm_head"]}, "lora.modules_to_save"),
        (["training", "lora"], {"rank_pattern": {"q_proj": 4}}, "lora.rank_pattern"),
        (["training", "lora"], {"target_modules": ["q_proj", "lm_head"]}, "'lm_head' is skipped or aborts"),
        (["training", "lora"], {"target_modules": ["embed_tokens"]}, "'embed_tokens' is skipped or aborts"),
        (["harnesses"], ["emacs"], "harnesses: emacs not known"),
        (["suites", "demo-train", "seed"], 303, "demo-train and demo-heldout have the same seed"),
        (["suites", "demo-validation", "role"], "train", "no suite has role validation"),
        (["policy"], {"source": "hub"}, "policy: source is hub: set `revision`"),
        (["policy"], {"license": "other"}, "set `license_name` and `license_link`"),
        (["training", "steps"], 2.5, "training.steps"),
        (["training", "steps"], True, "training.steps"),
        (["rollout", "temperature"], float("nan"), "rollout.temperature"),
        (["rollout", "temperature"], 0.0, "rollout.temperature: 0 cannot be trained on"),
        (["rollout", "top_p"], 0.9, "rollout: top_p 0.9 and top_k 0 truncate the distribution"),
        (["rollout", "top_k"], 20, "rollout: top_p 1.0 and top_k 20 truncate the distribution"),
        (["rollout", "max_output_tokens"], 8192, "rollout.max_output_tokens 8192 leaves no room for a prompt"),
        (["harnesses"], ["pi", "pi"], "harnesses: one of them is named twice"),
        (["outdir"], "", "outdir: String should have at least 1 character"),
        (["policy", "demo"], {"hidden_size": 100}, "policy.demo.hidden_size: Input should be a multiple of 32"),
        (["suites", "demo-train", "difficulty"], [], "suites.demo-train.difficulty: List should have at least 1 item"),
        (["suites", "demo-train", "max_index"], 0, "suites.demo-train: max_index 0 leaves no task from min_index 0 on"),
        (["training", "lora"], {"target_modules": []}, "lora.target_modules: names no module"),
        (["hardware"], "cuda", "engine.kv_cache_gib, engine.enforce_eager, card.hardware: set them"),
        (["policy"], {"source": "path", "path": "m", "hub_id": "o/m"}, "policy.license, card.owner, card.model_name"),
        (["card"], {"owner": "a/b"}, "card.owner: String should match"),
        (["card"], {"model_name": "my model"}, "card.model_name: String should match"),
        (["card"], {"gguf_base_repo": "base.gguf"}, "card.gguf_base_repo: String should match"),
    ],
)
def test_fault_names_the_key(path: list[str], value: object, message: str) -> None:
    data = copy.deepcopy(load("config"))
    place = data
    for key in path[:-1]:
        place = place.setdefault(key, {})
    place[path[-1]] = value
    with pytest.raises(ConfigError, match="config.yaml: ") as caught:
        parse_study(data, "config.yaml")
    assert message in str(caught.value)


def test_job_settings_are_narrow() -> None:
    """A key that a job doesn't use leaves its settings, and so its results, alone."""
    data = load("config")
    before = parse_study(data)
    for section, key, value in [
        ("card", "title", "x"),
        ("comparison", "margin_points", 3.0),
        ("gguf", "enabled", False),
    ]:
        data.setdefault(section, {})[key] = value
    after = parse_study(data)
    assert train_job(before, "pi") == train_job(after, "pi")
    assert evaluate_job(before, "pi") == evaluate_job(after, "pi")
    data.setdefault("training", {})["learning_rate"] = 1e-3
    assert train_job(before, "pi") != train_job(parse_study(data), "pi")
    assert evaluate_job(before, "pi") == evaluate_job(parse_study(data), "pi")


@pytest.mark.parametrize(
    ("settings", "running"), [(train_settings, train_running), (evaluate_settings, evaluate_running)]
)
def test_what_only_decides_how_soon_a_job_is_done_is_no_part_of_its_settings(settings, running) -> None:
    """A rule takes the settings as a param; a longer patience must not throw a finished training away."""
    data = load("config")
    before = parse_study(data)
    for section, key, value in [
        ("engine", "start_timeout_s", 900.0),
        ("engine", "max_lora_rank", 64),
        ("sandbox", "preflight_tasks", 3),
        ("training", "no_progress_timeout_s", 5.0),
        ("evaluation", "concurrency", 9),
    ]:
        data.setdefault(section, {})[key] = value
    after = parse_study(data)
    assert settings(before, "pi") == settings(after, "pi")
    assert running(before) != running(after)
    data["rollout"] = {"call_budget": 7}
    assert settings(before, "pi") != settings(parse_study(data), "pi")


def test_job_is_whole_again_from_its_two_parts() -> None:
    study = parse_study(load("twil"))
    assert read_train_job(train_settings(study, "pi"), train_running(study)) == train_job(study, "pi")
    assert read_evaluate_job(evaluate_settings(study, "pi"), evaluate_running(study)) == evaluate_job(study, "pi")
    with pytest.raises(ConfigError, match="--running: training.steps: belongs into --settings"):
        read_train_job(train_settings(study, "pi"), '{"training": {"steps": 3}}')


def test_settings_survive_the_command_line(tmp_path: Path) -> None:
    job = evaluate_job(parse_study(load("twil")), "pi")
    text = job.model_dump_json()
    file = tmp_path / "settings.json"
    file.write_text(text)
    assert read_settings(EvaluateJob, text) == job == read_settings(EvaluateJob, str(file))
    with pytest.raises(ConfigError, match="nothing.json: No such file"):
        read_settings(EvaluateJob, "nothing.json")
    with pytest.raises(ConfigError, match="--settings: typo: unknown key"):
        read_settings(EvaluateJob, json.dumps({**json.loads(text), "typo": 1}))
