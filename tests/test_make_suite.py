import json
import subprocess

import pytest

from scripts import check_suites, make_suite
from scripts.study.fingerprints import folder_sha256
from scripts.study.suite_index import read_index


def run(outdir, name="s", **settings):
    """Make a suite below outdir; returns the exit status."""
    return make_suite.main(
        [
            *("--name", name, "--settings", json.dumps(settings)),
            *("--out", str(outdir / "suites" / name), "--index", str(outdir / "suites" / f"{name}.jsonl")),
            *("--outdir", str(outdir)),
        ]
    )


def rows(outdir, name="s"):
    return read_index(outdir / "suites" / f"{name}.jsonl")


def make_source(root, difficulties):
    """A folder of tasks t00, t01, ... in the layout of the Hub's data sets."""
    for number, difficulty in enumerate(difficulties):
        task = root / "tasks" / f"t{number:02d}"
        (task / "tests").mkdir(parents=True)
        (task / "task.toml").write_text(
            f'[task]\nname = "o/t{number:02d}"\n[metadata]\ndifficulty = "{difficulty}"\nsource = "d{number % 2}"\n'
        )
        (task / "instruction.md").write_text(f"Question {number}")
        (task / "tests" / "test.sh").write_text("true")
    return root


def test_same_seed_makes_the_same_bytes(tmp_path):
    for place in ("a", "b"):
        assert run(tmp_path / place, role="train", seed=7, limit=12) == 0
    assert folder_sha256(tmp_path / "a") == folder_sha256(tmp_path / "b")
    assert run(tmp_path / "c", role="train", seed=8, limit=12) == 0
    assert folder_sha256(tmp_path / "a" / "suites/s") != folder_sha256(tmp_path / "c" / "suites/s")


def test_index_says_where_each_task_lies(tmp_path):
    assert run(tmp_path, role="heldout", seed=1, limit=5) == 0
    for number, row in enumerate(rows(tmp_path)):
        assert (row.index, row.task_id, row.role, row.cluster) == (number, f"s-{number:04d}", "heldout", None)
        assert folder_sha256(tmp_path / row.path) == row.sha256


def test_generated_oracle_solves_and_nothing_does_not(tmp_path):
    """The solution runs in a shell of its own folder, in place of the sandbox; the grader is the task's own."""
    assert run(tmp_path, role="train", seed=3, limit=6) == 0
    for row in rows(tmp_path):
        task = tmp_path / row.path
        root = tmp_path / "roots" / row.task_id
        (root / "workdir").mkdir(parents=True)
        (root / "logs").mkdir()
        for file in (task / "environment/input").iterdir():
            (root / "workdir" / file.name).write_text(file.read_text())
        grade = ["python3", "-I", str(task / "tests/grader.py"), str(root)]
        for solved in (0.0, 1.0):
            if solved:
                script = (task / "solution/solve.sh").read_text().replace("/workdir", str(root / "workdir"))
                subprocess.run(["bash", "-c", script], check=True, timeout=20)
            subprocess.run(grade, check=True, timeout=20, capture_output=True)
            assert json.loads((root / "logs/verifier/reward.json").read_text())["correctness"] == solved


def test_generated_difficulty_is_selected(tmp_path):
    assert run(tmp_path, role="train", seed=1, limit=8, difficulty=["medium"]) == 0
    assert [row.difficulty for row in rows(tmp_path)] == ["medium"] * 8


def test_selection_by_index_difficulty_and_limit(tmp_path):
    source = make_source(tmp_path / "source", ["easy", "hard", "medium", "easy", "hard", "medium", "easy"])
    settings = {"role": "heldout", "source": "folder", "path": str(source), "cluster": "source"}
    assert run(tmp_path, **settings, min_index=1, max_index=6, difficulty=["easy", "medium"], limit=2) == 0
    assert [(row.index, row.task_id, row.cluster) for row in rows(tmp_path)] == [(2, "t02", "d0"), (3, "t03", "d1")]
    assert run(tmp_path, **settings, difficulty=["hard"]) == 0
    assert [row.task_id for row in rows(tmp_path)] == ["t01", "t04"]
    assert sorted(path.name for path in (tmp_path / "suites/s/tasks").iterdir()) == ["t01", "t04"]


def test_index_is_openenvs_position():
    files = ["tasks/b/task.toml", "tasks/a/task.toml", "tasks/a/tests/task.toml", "other/task.toml", ".x/task.toml"]
    assert make_suite.task_folders(files) == ["tasks/a", "tasks/b"]
    assert make_suite.task_folders(["g/y/task.toml", "g/x/task.toml"]) == ["g/x", "g/y"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: (s / "tasks/t00/task.toml").write_text("no toml ["), "cannot be read as TOML"),
        (lambda s: (s / "tasks/t00/task.toml").write_text("[metadata]\n"), "none of difficulty_tier, difficulty"),
        (lambda s: (s / "tasks/t00/instruction.md").unlink(), "no instruction.md"),
        (lambda s: (s / "tasks/t00/leak").symlink_to("/etc/hostname"), "a link"),
    ],
)
def test_unusable_tasks_are_named(tmp_path, capsys, change, message):
    source = make_source(tmp_path / "source", ["easy"])
    change(source)
    assert run(tmp_path, role="train", source="folder", path=str(source)) == 1
    error = capsys.readouterr().err
    assert message in error
    assert "t00" in error
    assert not (tmp_path / "suites" / "s").exists()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"source": "folder", "path": "/nowhere"}, "suites.s.path: /nowhere is no folder"),
        ({"source": "generated", "seed": 1, "limit": 3, "min_index": 5, "max_index": 5}, "leaves no task"),
        ({"source": "generated", "seed": 1, "limit": 3, "difficulty": ["hard"]}, "easy or medium"),
        ({"source": "generated", "seed": 1, "limit": 3, "cluster": "data_set"}, "correct the suite's `cluster`"),
        ({"source": "generated", "seed": 1}, "set `limit`"),
    ],
)
def test_wrong_settings_are_explained(tmp_path, capsys, settings, message):
    assert run(tmp_path, role="train", **settings) == 1
    assert message in capsys.readouterr().err


def test_check_suites_proves_or_names_both(tmp_path, capsys):
    for name, role, seed in (("one", "train", 1), ("two", "heldout", 2), ("three", "heldout", 2)):
        assert run(tmp_path, name=name, role=role, seed=seed, limit=6) == 0
    indexes = [str(tmp_path / "suites" / f"{name}.jsonl") for name in ("one", "two", "three")]
    proof = tmp_path / "suites" / "disjoint.json"
    assert check_suites.main(["--index", *indexes[:2], "--out", str(proof)]) == 0
    facts = json.loads(proof.read_text())
    assert facts["suites"] == {"one": {"role": "train", "tasks": 6}, "two": {"role": "heldout", "tasks": 6}}
    assert len(facts["content_sha256"]) == 12
    capsys.readouterr()
    assert check_suites.main(["--index", *indexes, "--out", str(tmp_path / "no.json")]) == 1
    error = capsys.readouterr().err
    assert "two/two-0000" in error
    assert "three/three-0000" in error
    assert not (tmp_path / "no.json").exists()
