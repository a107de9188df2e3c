import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.demo import grader


@pytest.mark.parametrize(
    ("answer", "gold", "counts"),
    [
        ("195", "195", True),
        (" 195\n", "195", True),
        ("195.0", "195", True),
        ("196", "195", False),
        ("195.005", "195", False),
        ("1,195", "1195", True),
        ("12,5", "125", False),
        ("12.34", "12.34", True),
        ("12.345", "12.34", True),
        ("12.36", "12.34", False),
        ("1.234e1", "12.34", True),
        ("nan", "12.34", False),
        ("inf", "12", False),
        ("50%", "50", True),
        ("0.5", "50%", True),
        ("50%", "0.5", True),
        ("50", "0.5", False),
        ("North", "north", True),
        ('"north"', "north", True),
        ("north south", "north", False),
        ("", "195", False),
        (" \n", "195", False),
        ("[a, 'b']", "a,b", True),
        ("a\nb\n", "a,b", True),
        ("b,a", "a,b", False),
        ("a", "a,b", False),
        ("The answer is 195", "195", False),
    ],
)
def test_matches(answer, gold, counts):
    assert grader.matches(answer, gold) is counts


def grade(root: Path, gold: str = "195") -> dict[str, float]:
    """Run the grader as test.sh does, on a file system root of the test's own."""
    tests = root / "tests"
    tests.mkdir(parents=True, exist_ok=True)
    shutil.copy(grader.__file__, tests / "grader.py")
    (tests / "gold.json").write_text(json.dumps({"answer": gold}))
    subprocess.run([sys.executable, "-I", str(tests / "grader.py"), str(root)], check=True, timeout=20)
    return json.loads((root / "logs/verifier/reward.json").read_text())


@pytest.fixture
def root(tmp_path):
    (tmp_path / "workdir").mkdir()
    (tmp_path / "logs/agent").mkdir(parents=True)
    return tmp_path


def test_right_answer_and_counted_calls(root):
    (root / "workdir/answer.txt").write_text("195\n")
    (root / "logs/agent/session.jsonl").write_text('{"type":"toolCall"}\n' * 3)
    assert grade(root) == {"correctness": 1.0, "submission": 1.0, "tool_efficiency": 0.8}


def test_wrong_and_missing_answers(root):
    assert grade(root) == {"correctness": 0.0, "submission": 0.0, "tool_efficiency": 0.0}
    (root / "workdir/answer.txt").write_text("7")
    assert grade(root) == {"correctness": 0.0, "submission": 1.0, "tool_efficiency": 0.0}


def test_link_to_the_gold_answer_is_no_answer(root):
    (root / "tests").mkdir()
    (root / "workdir/answer.txt").symlink_to(root / "tests" / "gold.json")
    assert grade(root, gold="195")["submission"] == 0.0


def test_working_folder_replaced_by_a_link_is_no_answer(root):
    elsewhere = root / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "answer.txt").write_text("195")
    (root / "workdir").rmdir()
    (root / "workdir").symlink_to(elsewhere)
    assert grade(root)["submission"] == 0.0


def test_pipe_does_not_block(root):
    os.mkfifo(root / "workdir/answer.txt")
    assert grade(root)["submission"] == 0.0


def test_folder_in_place_of_the_answer(root):
    (root / "workdir/answer.txt").mkdir()
    assert grade(root)["submission"] == 0.0


def test_huge_answer_is_not_read(root):
    with (root / "workdir/answer.txt").open("wb") as file:
        file.write(b"195\n")
        file.truncate(1 << 40)
    assert grade(root)["submission"] == 0.0


def test_binary_answer_is_wrong_not_an_error(root):
    (root / "workdir/answer.txt").write_bytes(bytes(range(256)))
    assert grade(root)["correctness"] == 0.0


def test_reward_prepared_by_the_agent_is_replaced(root):
    (root / "workdir/answer.txt").write_text("7")
    verifier = root / "logs/verifier"
    verifier.mkdir()
    outside = root / "outside.json"
    outside.write_text("untouched")
    (verifier / "reward.json").symlink_to(outside)
    assert grade(root)["correctness"] == 0.0
    assert outside.read_text() == "untouched"
    (verifier / "reward.json").unlink()
    (verifier / "reward.json").mkdir()
    assert grade(root)["correctness"] == 0.0


def test_agents_modules_are_not_imported(root):
    (root / "tests").mkdir()
    (root / "tests/json.py").write_text("raise SystemExit(0)")
    (root / "workdir/answer.txt").write_text("7")
    assert grade(root)["correctness"] == 0.0


def test_endless_logs_are_bounded(root):
    (root / "workdir/answer.txt").write_text("195")
    os.mkfifo(root / "logs/agent/a.jsonl")
    with (root / "logs/agent/b.jsonl").open("wb") as file:
        file.truncate(1 << 40)
    assert grade(root) == {"correctness": 1.0, "submission": 1.0, "tool_efficiency": 1.0}
