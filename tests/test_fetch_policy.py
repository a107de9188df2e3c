import json

import pytest

from scripts import fetch_policy
from scripts.study.policy_facts import PolicyError, count_parameters, read_facts


def make_model(folder, readme=None):
    folder.mkdir()
    header = json.dumps({"__metadata__": {"format": "pt"}, "w": {"dtype": "F32", "shape": [4, 5]}}).encode()
    (folder / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(80))
    (folder / "config.json").write_text("{}")
    (folder / "tokenizer.json").write_text("{}")
    if readme is not None:
        (folder / "README.md").write_text(readme)
    return folder


def run(tmp_path, **job):
    job = {"source": "path", "hub_id": "owner/model", "license": "mit"} | job
    paths = ["--out", str(tmp_path / "base"), "--facts", str(tmp_path / "base.json")]
    return fetch_policy.main(["--settings", json.dumps(job), *paths])


def test_folder_is_taken_and_described(tmp_path):
    model = make_model(tmp_path / "model", readme="---\nlicense: mit\n---\n")
    (model / "optimizer.pt").write_text("stays away")
    template = tmp_path / "own.jinja"
    template.write_text("own template")
    assert run(tmp_path, path=str(model), chat_template=str(template)) == 0
    facts = read_facts(tmp_path / "base.json")
    assert (facts.parameters, facts.source, facts.revision, facts.recipe) == (20, "path", None, None)
    assert (tmp_path / "base/chat_template.jinja").read_text() == "own template"
    assert "optimizer.pt" not in facts.files


@pytest.mark.parametrize(
    ("readme", "message"),
    [
        ("---\nlicense: apache-2.0\n---\n", "policy.license is 'mit', but the card of owner/model says 'apache-2.0'"),
        ("---\nlicense: mit\nlicense_link: x\n---\n", "policy.license_link is None"),
        ("---\n[broken\n---\n", "front matter is no YAML"),
    ],
)
def test_license_is_held_against_the_card(tmp_path, capsys, readme, message):
    assert run(tmp_path, path=str(make_model(tmp_path / "model", readme))) == 1
    assert message in capsys.readouterr().err
    assert not (tmp_path / "base").exists()


@pytest.mark.parametrize("readme", [None, "# No metadata\n", "---\ntags: [x]\n---\n"])
def test_card_without_license_is_no_obstacle(tmp_path, readme):
    assert run(tmp_path, path=str(make_model(tmp_path / "model", readme))) == 0


@pytest.mark.parametrize(
    ("job", "message"),
    [
        ({"path": "/nowhere"}, "policy.path: '/nowhere' is no folder"),
        ({"source": "hub"}, "policy.revision"),
        ({"source": "demo"}, "build_policy makes it"),
    ],
)
def test_wrong_sources_are_explained(tmp_path, capsys, job, message):
    assert run(tmp_path, **job) == 1
    assert message in capsys.readouterr().err


def test_folder_without_weights_is_no_model(tmp_path, capsys):
    model = make_model(tmp_path / "model")
    (model / "model.safetensors").unlink()
    assert run(tmp_path, path=str(model)) == 1
    assert "no *.safetensors" in capsys.readouterr().err


def test_broken_weights_are_named(tmp_path):
    (tmp_path / "model.safetensors").write_bytes(b"abc")
    with pytest.raises(PolicyError, match=r"model\.safetensors: no safetensors file"):
        count_parameters(tmp_path)
