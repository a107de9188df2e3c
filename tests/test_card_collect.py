"""Facts gathered from a study's outputs, and what is said when one is missing."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from scripts import collect_card
from scripts.card.collect import collect
from scripts.card.facts import CardError, read_card
from scripts.study.config import parse_study
from tests.sample_study import Sample, sample_config, shared_sample, write_study


@pytest.fixture(scope="module")
def sample() -> Sample:
    return shared_sample()


@pytest.fixture
def copied(sample: Sample, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sample.outdir, tmp_path / "out"))


def test_facts(sample: Sample) -> None:
    card = sample.card
    assert card.checkpoint.step == 12
    assert [candidate.step for candidate in card.checkpoint.candidates] == [6, 12]
    assert card.training.tasks_trained == 24
    assert card.training.rollouts == 25
    assert card.training.unscored == {"NoTurns": 1}
    assert card.harness.version == "1.6.0"
    assert card.versions == {"trl": "1.16.0", "vllm": "0.31.0", "llama-cpp-python": "0.3.36", "harbor": "0.25.0"}
    files = {source.file for source in card.sources.values() if source.file}
    assert not [name for name in files if not (sample.outdir / name).is_file()]
    main = card.comparisons[0]
    assert sum(main.calls_base.values()) == main.comparison.n == 39
    assert [file.name for file in card.files][:2] == ["adapter_model.safetensors", "adapter_config.json"]


def test_tasks_are_counted_up_to_the_checkpoint(copied: Path) -> None:
    record = json.loads((copied / "select/pi.json").read_text())
    (copied / "select/pi.json").write_text(json.dumps(record | {"step": 6, "selected": "step-6"}))
    card = collect(parse_study(sample_config()), copied, "pi", "config/config.yaml")
    assert card.training.tasks_trained == 12


def test_no_path_of_this_machine_is_gathered(sample: Sample) -> None:
    assert str(sample.outdir) not in sample.card.model_dump_json()


@pytest.mark.parametrize(
    "missing",
    [
        "compare/pi/sample-heldout/selected.json",
        "select/pi.json",
        "train/pi/train.jsonl",
        "train/pi/rollouts.jsonl",
        "train/pi/training.json",
        "policy/base.json",
        "policy/base/chat_template.jinja",
        "suites/sample-train.jsonl",
        "suites/disjoint.json",
        "eval/pi/base/sample-heldout.jsonl",
        "adapters/pi/selected/adapter_model.safetensors",
        "gguf/base-F16.gguf",
        "gguf/pi/fidelity.json",
    ],
)
def test_a_missing_output_is_named(copied: Path, missing: str) -> None:
    (copied / missing).unlink()
    with pytest.raises(CardError, match=missing.replace(".", r"\.")) as caught:
        collect(parse_study(sample_config()), copied, "pi", "config/config.yaml")
    assert "no JSON" not in str(caught.value)


def test_a_broken_output_is_named(copied: Path) -> None:
    path = copied / "compare/pi/sample-heldout/selected.json"
    path.write_text("{}")
    with pytest.raises(CardError, match=r"selected\.json: "):
        collect(parse_study(sample_config()), copied, "pi", "config/config.yaml")
    path.write_text("{")
    with pytest.raises(CardError, match="no JSON"):
        collect(parse_study(sample_config()), copied, "pi", "config/config.yaml")


def test_another_harness_is_refused(sample: Sample) -> None:
    with pytest.raises(CardError, match="its harnesses: pi"):
        collect(sample.study, sample.outdir, "opencode", "config/config.yaml")


@pytest.mark.parametrize("instruction", ["Sum it.\nThen write it.", "x" * 301, "Sum /home/user/input/a.csv.", ""])
def test_an_instruction_that_is_no_example_is_left_out(copied: Path, instruction: str) -> None:
    (copied / "suites/sample-heldout/tasks/sample-heldout-0000/instruction.md").write_text(instruction)
    card = collect(parse_study(sample_config()), copied, "pi", "config/config.yaml")
    assert not card.serving.example_is_task
    assert card.serving.example.endswith("sales.csv?")


def test_without_gguf(tmp_path: Path) -> None:
    study = write_study(tmp_path, gguf={"enabled": False})
    shutil.rmtree(tmp_path / "gguf")
    card = collect(study, tmp_path, "pi", "config/config.yaml")
    assert card.gguf is None
    assert card.repositories.gguf is None
    assert {file.repository for file in card.files} == {"adapter"}


def test_an_outdir_of_this_machine_is_not_printed(sample: Sample) -> None:
    study = sample.study.model_copy(update={"outdir": str(sample.outdir)})
    assert collect(study, sample.outdir, "pi", "config/config.yaml").target == "OUTDIR/card_pi.md"


def test_program(sample: Sample, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "card.json"
    arguments = ["--outdir", str(sample.outdir), "--harness", "pi", "--out", str(out)]
    assert collect_card.main(["--study", sample.study.model_dump_json(), *arguments]) == 0
    assert read_card(out) == sample.card
    assert collect_card.main(["--study", '{"suites": {}}', *arguments]) == 1
    assert "suites: none has role train" in capsys.readouterr().err
    assert collect_card.main(["--study", str(tmp_path / "none.yaml"), *arguments]) == 1
    assert "none.yaml" in capsys.readouterr().err
