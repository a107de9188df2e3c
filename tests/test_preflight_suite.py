"""The oracle must get 1 and doing nothing 0, or the task is named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scripts import preflight_suite
from scripts.preflight_suite import PreflightFailed, headline, judge, spread
from scripts.study.suite_index import TaskRow, write_index

SETTINGS = '{"environment": "bubblewrap", "options": {}, "preflight_tasks": 1}'
GRADER = """#!/bin/bash
grep -qx right /workdir/answer.txt 2>/dev/null && r=1.0 || r=0.0
echo "{\\"correctness\\": $r}" > /logs/verifier/reward.json
"""


def row(task_id: str = "t0", index: int = 0) -> TaskRow:
    return TaskRow(
        suite="s",
        role="train",
        task_id=task_id,
        index=index,
        path=f"suites/s/tasks/{task_id}",
        sha256="0" * 64,
        difficulty="easy",
        cluster=None,
    )


def make_suite(outdir: Path, **changed: str) -> list[str]:
    """A suite of one task below ``outdir``, with some files replaced; the program's arguments."""
    files = {
        "task.toml": 'schema_version = "1.4"\n[task]\nname = "org/t0"\n[environment]\nworkdir = "/workdir"\n',
        "instruction.md": "Write right to answer.txt.\n",
        "environment/Dockerfile": "FROM x\nWORKDIR /workdir\n",
        "tests/test.sh": GRADER,
        "solution/solve.sh": "#!/bin/bash\necho right > /workdir/answer.txt\n",
    }
    for name, text in {**files, **changed}.items():
        path = outdir / "suites/s/tasks/t0" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (outdir / "agents/node_modules").mkdir(parents=True)
    write_index(outdir / "s.jsonl", [row()])
    words = ["--index", outdir / "s.jsonl", "--outdir", outdir, "--settings", SETTINGS]
    return [str(word) for word in [*words, "--agents-dir", outdir / "agents", "--out", outdir / "out.json"]]


def test_tasks_are_spread_over_the_suite() -> None:
    rows = [row(f"t{i}", i) for i in range(10)]
    assert [r.index for r in spread(rows, 3)] == [0, 3, 6]
    assert spread(rows, 20) == rows


def test_headline_prefers_correctness() -> None:
    assert headline({"reward": 0.2, "correctness": 1.0}) == 1.0
    assert headline({"accuracy": 0.5}) == 0.5
    assert headline({"a": 1, "b": 0}) is None
    assert headline(None) is None


@pytest.mark.parametrize(
    ("agent", "rewards", "problem", "message"),
    [
        ("oracle", {"correctness": 0.0}, None, "task t0: the oracle agent got 0.0"),
        ("oracle", None, None, "task t0: the oracle agent got None"),
        ("nop", {"correctness": 1.0}, None, "task t0: the nop agent got 1.0"),
        ("nop", {"correctness": 0.0}, "X: broken", "task t0: the nop agent's trial failed: X: broken"),
    ],
)
def test_wrong_grade_names_task_and_agent(agent: str, rewards: dict, problem: str | None, message: str) -> None:
    with pytest.raises(PreflightFailed, match=message):
        judge("t0", agent, rewards, problem)


def test_good_task_passes_in_the_real_sandbox(tmp_path: Path) -> None:
    pytest.importorskip("harbor")
    assert preflight_suite.main(make_suite(tmp_path)) == 0
    [task] = json.loads((tmp_path / "out.json").read_text())["tasks"]
    assert (task["oracle"], task["nop"]) == (1.0, 0.0)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"solution/solve.sh": "#!/bin/bash\ntrue\n"}, "task t0: the oracle agent got 0.0"),
        ({"tests/test.sh": "#!/bin/bash\necho 1 > /logs/verifier/reward.txt\n"}, "task t0: the nop agent got 1.0"),
        ({"tests/test.sh": "#!/bin/bash\ntrue\n"}, "RewardFileNotFoundError"),
        ({"environment/Dockerfile": "FROM x\nRUN true\n"}, "line 2: RUN needs a real image build"),
        ({"task.toml": '[task]\nname = "org/t0"\n[[steps]]\nname = "a"\n'}, "it has several steps"),
    ],
)
def test_bad_task_is_named_and_nothing_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], changed: dict[str, str], message: str
) -> None:
    pytest.importorskip("harbor")
    assert preflight_suite.main(make_suite(tmp_path, **changed)) == 1
    last = capsys.readouterr().err.strip().splitlines()[-1]
    assert last.startswith("preflight_suite: task t0")
    assert message in last
    assert not (tmp_path / "out.json").exists()
