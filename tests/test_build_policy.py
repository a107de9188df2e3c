import json

import pytest

from scripts import build_policy
from scripts.study.config import parse_study
from scripts.study.files import folder_written_whole
from scripts.study.jobs import policy_job
from scripts.study.policy_facts import read_facts
from tests.recorded_request import write_request

SUITES = {"a": {"role": "train", "seed": 1, "limit": 1}, "b": {"role": "heldout", "seed": 2, "limit": 1}}
CARD = {"owner": "o", "model_name": "m", "title": "M", "alias": "m", "task_family": "tasks"}
TINY = {"hidden_size": 32, "layers": 1, "transcripts": 40, "steps": 4, "batch_tokens": 1024, "threads": 1}


def settings(**policy):
    study = {"suites": SUITES, "selection": {"on": "final"}, "policy": {"demo": TINY} | policy, "card": CARD}
    return policy_job(parse_study(study)).model_dump_json()


def run(tmp_path, text):
    prompts = write_request(tmp_path / "pi.json")
    out, facts = str(tmp_path / "base"), str(tmp_path / "base.json")
    return build_policy.main(["--settings", text, "--prompts", str(prompts), "--out", out, "--facts", facts])


def test_built_policy_loads_and_its_facts_hold(tmp_path):
    pytest.importorskip("torch")
    pytest.importorskip("trl")
    from transformers import AutoModelForCausalLM, AutoTokenizer

    assert run(tmp_path, settings()) == 0
    folder, facts = tmp_path / "base", read_facts(tmp_path / "base.json")
    model = AutoModelForCausalLM.from_pretrained(folder)
    assert facts.parameters == sum(parameter.numel() for parameter in model.parameters())
    assert model.dtype.is_floating_point
    sampling = json.loads((folder / "generation_config.json").read_text())
    assert (sampling["temperature"], sampling["top_p"], sampling["top_k"]) == (0.8, 1.0, 0)
    assert sampling["eos_token_id"] == AutoTokenizer.from_pretrained(folder).eos_token_id
    assert facts.hub_id == "harness-cards/demo-policy"
    assert facts.recipe["settings"]["steps"] == 4
    assert facts.recipe["harnesses"]["pi"]["version"] == "1.6.0"
    assert {"config.json", "model.safetensors", "tokenizer.json", "chat_template.jinja"} <= set(facts.files)
    assert len({path.stat().st_mode for path in folder.iterdir()}) == 1
    first = facts.sha256
    assert run(tmp_path, settings()) == 0
    assert read_facts(tmp_path / "base.json").sha256 == first


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"chat_template": "x.jinja"}, "policy.chat_template"),
        ({"source": "path", "path": "x", "hub_id": "o/m", "license": "mit"}, "source must be demo"),
    ],
)
def test_settings_that_cannot_be_built_name_the_key(tmp_path, capsys, change, message):
    assert run(tmp_path, settings(**change)) == 1
    assert message in capsys.readouterr().err
    assert not (tmp_path / "base").exists()


def test_killed_build_leaves_no_model(tmp_path):
    """What a kill leaves is a folder of another name; the next build starts anew and removes it."""
    (tmp_path / ".base.unfinished").mkdir()
    (tmp_path / ".base.unfinished" / "model.safetensors").write_text("half")
    assert not (tmp_path / "base").exists()
    with folder_written_whole(tmp_path / "base") as folder:
        assert not list(folder.iterdir())
    assert [path.name for path in tmp_path.iterdir()] == ["base"]


def test_job_of_another_source_ignores_recipe_seed_and_sampling():
    pinned = {"source": "hub", "hub_id": "o/m", "revision": "0" * 40, "license": "mit"}
    study = {"suites": SUITES, "selection": {"on": "final"}, "policy": pinned, "card": CARD}
    one, two = parse_study(study | {"seed": 1}), parse_study(study | {"seed": 2})
    assert policy_job(one) == policy_job(two)
    assert policy_job(one).demo is None
