"""An evaluation with the real agent and sandbox, killed in mid-run: nothing is left, nothing finished runs again."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

pytest.importorskip("openenv.harbor.client")

from scripts.study.attempts import read_attempts
from tests.evaluation_with_doubled_engine import make_suite
from tests.running import ROOT

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(not (ROOT / ".envs" / "harbor" / "bin").exists(), reason="the harbor environment is not built"),
]
WORDS = ["RIGHT", "WRONG", "RIGHT", "DIES", "RIGHT", "RIGHT", "LOOP", "RIGHT"]


def tries(outdir):
    """Tries in the journal, as (task_id, status)."""
    lines = [line for path in (outdir / "work" / "base").glob("journal-*.jsonl") for line in path.open()]
    rows = [json.loads(line) for line in lines if line.endswith("\n")]
    return [(row["try"]["task_id"], row["try"]["status"]) for row in rows if "try" in row]


def test_kill_9_in_mid_run(tmp_path):
    outdir = tmp_path / "results"
    make_suite(outdir, WORDS)
    command = [sys.executable, "-m", "tests.evaluation_with_doubled_engine", str(outdir)]
    with (tmp_path / "log").open("wb") as log:
        first = psutil.Popen(command, cwd=ROOT, stdout=log, stderr=log)
    seen, commands = {}, set()
    until = time.monotonic() + 240
    while time.monotonic() < until and len(tries(outdir)) < 3 and first.poll() is None:
        for child in set(first.children(recursive=True)) - set(seen.values()):
            seen[child.pid] = child
            with contextlib.suppress(psutil.NoSuchProcess):
                commands.add(" ".join(child.cmdline()))
        time.sleep(0.05)
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    before = tries(outdir)
    assert 3 <= len(before) < len(WORDS), (tmp_path / "log").read_text()
    assert any("scripts.rollout.server" in command for command in commands)
    _, alive = psutil.wait_procs(list(seen.values()), timeout=30)
    assert not [process for process in alive if process.status() != psutil.STATUS_ZOMBIE]

    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr
    rows = {row.task_id: row for row in read_attempts(outdir / "eval" / "pi" / "base" / "held.jsonl")}
    assert len(rows) == len(WORDS)
    after = tries(outdir)
    assert after[: len(before)] == before
    scored = [task_id for task_id, status in after if status == "scored"]
    assert sorted(scored) == sorted(set(scored))
    assert {name: row.solved for name, row in rows.items() if not row.solved} == {"wrong-1": False, "dies-3": None}

    broken = rows["dies-3"]
    assert broken.status == "infrastructure"
    assert broken.infrastructure_tries == [task_id for task_id, _ in after].count("dies-3") - 1
    right = rows["right-0"]
    assert (right.tool_calls, right.tool_calls_by_name, right.stop) == (1, {"bash": 1}, "finished")
    assert right.rewards == {"correctness": 1.0, "tool_efficiency": None}
    turns = json.loads((outdir / right.trajectory).read_text())
    assert [len(turn["completion_token_ids"]) == len(turn["logprobs"]) > 0 for turn in turns] == [True, True]
    assert rows["loop-6"].stop == "call_budget"
    assert not list((outdir / "work").glob("rollouts-*"))
