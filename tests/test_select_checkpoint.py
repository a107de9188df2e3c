"""The selecting program: what it writes, copies and refuses."""

import json

import pytest

from scripts import select_checkpoint
from scripts.study.attempts import write_attempts
from tests.test_selection import rows


@pytest.fixture
def study(tmp_path):
    """Two checkpoints with adapters and attempts; the later one solves more."""
    for step, outcomes in ((6, [1, 0]), (12, [1, 1])):
        folder = tmp_path / "adapters" / f"step-{step}"
        folder.mkdir(parents=True)
        (folder / "adapter_config.json").write_text("{}")
        (folder / "adapter_model.safetensors").write_bytes(b"%d" % step)
        write_attempts(tmp_path / "eval" / f"step-{step}" / "val.jsonl", rows(f"step-{step}", outcomes))
    return tmp_path


def run(study, *, on="validation", harness="pi", steps=(6, 12)):
    files = [str(study / "eval" / f"step-{step}" / "val.jsonl") for step in steps]
    places = ["--adapters", str(study / "adapters"), "--out", str(study / "select" / "pi.json")]
    places += ["--out-adapter", str(study / "adapters" / "selected")]
    settings = json.dumps({"on": on})
    return select_checkpoint.main(["--settings", settings, "--harness", harness, "--attempts", *files, *places])


def test_the_best_is_recorded_with_the_rule_and_copied(study, capsys):
    assert run(study) == 0
    record = json.loads((study / "select" / "pi.json").read_text())
    assert (record["selected"], record["step"], record["harness"], record["suites"]) == ("step-12", 12, "pi", ["val"])
    assert "validation" in record["rule"]
    assert [(source["rows"], len(source["sha256"])) for source in record["sources"]] == [(2, 64), (2, 64)]
    copied = study / "adapters" / "selected"
    assert (copied / "adapter_model.safetensors").read_bytes() == b"12"
    assert sorted(path.name for path in copied.iterdir()) == ["adapter_config.json", "adapter_model.safetensors"]
    assert "* step-12: solved 2 of 2" in capsys.readouterr().err


def test_a_second_choice_replaces_the_copy(study):
    assert run(study) == 0
    write_attempts(study / "eval" / "step-12" / "val.jsonl", rows("step-12", [0, 0]))
    assert run(study) == 0
    assert (study / "adapters" / "selected" / "adapter_model.safetensors").read_bytes() == b"6"


def test_final_needs_no_attempts(study):
    assert run(study, on="final", steps=()) == 0
    assert json.loads((study / "select" / "pi.json").read_text())["selected"] == "step-12"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ({"harness": "opencode"}, "harness is 'pi', but --harness is 'opencode'"),
        ({"steps": (6,)}, "step-12 not measured"),
        ({"steps": (6, 12, 12)}, "step-12 on val is already in"),
        ({"on": "best"}, "--settings: on"),
    ],
)
def test_faults_are_one_line_and_write_nothing(study, capsys, call, message):
    assert run(study, **call) == 1
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not (study / "select").exists()
    assert not (study / "adapters" / "selected").exists()


def test_an_adapter_that_is_gone_is_an_error(study, capsys):
    (study / "adapters" / "step-12" / "adapter_config.json").unlink()
    assert run(study) == 1
    assert "no complete adapter step-12" in capsys.readouterr().err
