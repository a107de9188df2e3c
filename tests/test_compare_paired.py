"""The program, from files to the comparison."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scripts.compare_paired import main
from scripts.stats.records import Comparison
from scripts.study.attempts import write_attempts
from scripts.study.suite_index import TaskRow, write_index
from tests.paired_rows import attempt

QUICK = '{"bootstrap_draws": 300}'


@pytest.fixture
def files(tmp_path: Path) -> Path:
    write_attempts(tmp_path / "base.jsonl", [attempt(f"t{i}", i % 3 > 0) for i in range(30)])
    write_attempts(tmp_path / "adapter.jsonl", [attempt(f"t{i}", i % 4 > 0, "step-6") for i in range(28)])
    index = [
        TaskRow(
            suite="demo-heldout",
            role="heldout",
            task_id=f"t{i}",
            index=i,
            path=f"suites/demo-heldout/t{i}",
            sha256="0" * 64,
            difficulty="easy" if i % 2 else "hard",
            cluster=f"data-{i % 5}",
        )
        for i in range(32)
    ]
    write_index(tmp_path / "index.jsonl", index)
    return tmp_path


def run(files: Path, *extra: str, adapter: str = "adapter.jsonl") -> int:
    given = ["--base", str(files / "base.jsonl"), "--adapter", str(files / adapter), "--out", str(files / "out.json")]
    return main([*given, "--settings", QUICK, *extra])


def test_everything_from_files(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    index = ["--index", str(files / "index.jsonl")]
    assert run(files, *index, "--selected-on", "validation", "--markdown", str(files / "out.md")) == 0
    found = Comparison.model_validate_json((files / "out.json").read_text())
    assert (found.suite, found.harness, found.n, found.tasks_in_suite) == ("demo-heldout", "pi", 28, 32)
    assert (found.base.dropped, found.adapter.dropped) == ({"missing": 2}, {"missing": 4})
    assert found.adapter.policy == "step-6"
    assert found.base.source.rows == 30
    assert len(found.base.source.sha256 or "") == 64
    assert found.clusters == 5
    assert found.intervals["cluster"].low_points is not None
    assert [row.difficulty for row in found.by_difficulty] == ["easy", "hard"]
    assert found.selection.optimism_points == 0
    assert (files / "out.md").read_text() == capsys.readouterr().out


def test_candidates_give_the_optimism(files: Path) -> None:
    write_attempts(files / "other.jsonl", [attempt(f"t{i}", i % 5 > 1, "step-3") for i in range(28)])
    paths = [str(files / name) for name in ("adapter.jsonl", "other.jsonl")]
    assert run(files, "--selected-on", "heldout", "--candidates", *paths) == 0
    found = Comparison.model_validate_json((files / "out.json").read_text()).selection
    assert (found.method, found.candidates) == ("bootstrap", 2)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"schema": 1}\n', "row 1: suite: Field required"),
        ('{"schema": 1, "suite"', "row 1: Expecting"),
        ("", "the file is empty"),
        ("\xff", "cannot be read"),
    ],
)
def test_unusable_files(files: Path, capsys: pytest.CaptureFixture[str], content: str, message: str) -> None:
    (files / "bad.jsonl").write_bytes(content.encode("latin-1"))
    assert run(files, adapter="bad.jsonl") == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert "bad.jsonl" in captured.err
    assert message in captured.err
    assert not (files / "out.json").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: text + text.splitlines(keepends=True)[0], "is there already"),
        (lambda text: text[:-25], "truncated"),
        (lambda text: text.replace('"correctness": 1.0', '"correctness": NaN', 1), "row"),
        (lambda text: text.replace('"suite": "demo-heldout"', '"suite": "other"', 1), "suite is"),
        (lambda text: text.replace('"policy": "step-6"', '"policy": "step-9"', 1), "policy is"),
        (lambda text: text.replace('"suite": "demo-heldout"', '"suite": "other"'), "rows of more than one suite"),
        (lambda text: text.replace('"task_id": "t', '"task_id": "x'), "no task in common"),
        (lambda text: text.replace("step-6", "base"), "mixed up"),
    ],
)
def test_faults_are_one_line(files: Path, capsys: pytest.CaptureFixture[str], change: object, message: str) -> None:
    text = (files / "adapter.jsonl").read_text()
    (files / "adapter.jsonl").write_text(change(text))  # type: ignore[operator]
    assert run(files) == 1
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_settings_fault_names_the_key(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(files, "--settings", '{"confidnce": 0.9}') == 1
    assert "confidnce: unknown key" in capsys.readouterr().err


def test_harbor_against_our_own(files: Path) -> None:
    """Formats can be mixed: tasks are joined by the folder's name."""
    job = files / "job"
    for i in range(20):
        folder = job / f"t{i}__abc"
        folder.mkdir(parents=True)
        result = {
            "id": str(i),
            "task_name": f"org/t{i}",
            "trial_name": f"t{i}__abc",
            "task_id": {"path": f"/tasks/t{i}"},
            "task_checksum": "x",
            "agent_info": {"name": "pi", "version": "1.6.0", "model_info": {"name": "some-model"}},
            "verifier_result": {"rewards": {"reward": float(i % 2)}},
        }
        (folder / "result.json").write_text(json.dumps(result))
    assert run(files, "--index", str(files / "index.jsonl"), adapter="job") == 0
    found = Comparison.model_validate_json((files / "out.json").read_text())
    assert (found.n, found.adapter.policy, found.adapter.source.kind) == (20, "some-model", "harbor")
    assert "have no tool-call count" in (found.calls.reason or "")


@pytest.mark.parametrize("extra", [("--seed", "-1"), ("--selected-on", "heldout", "--candidate-count", "0")])
def test_numbers_out_of_range_are_refused(
    files: Path, capsys: pytest.CaptureFixture[str], extra: tuple[str, ...]
) -> None:
    with pytest.raises(SystemExit):
        run(files, *extra)
    assert "give at least" in capsys.readouterr().err


def test_candidates_of_another_suite_or_given_twice_are_refused(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = files / "other.jsonl"
    write_attempts(other, [attempt("t1", True, "step-3", suite="elsewhere")])
    adapter = str(files / "adapter.jsonl")
    assert run(files, "--selected-on", "heldout", "--candidates", adapter, str(other)) == 1
    assert "rows of more than one suite" in capsys.readouterr().err
    assert run(files, "--selected-on", "heldout", "--candidates", adapter, adapter) == 1
    assert "given twice among the candidates" in capsys.readouterr().err


def test_an_output_that_cannot_be_written(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(files, "--markdown", str(files / "base.jsonl" / "out.md")) == 1
    assert "cannot be written" in capsys.readouterr().err
