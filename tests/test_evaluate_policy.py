"""The evaluating program: what it writes, what it takes up again, and what it refuses."""

import json
import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from scripts import evaluate_policy
from scripts.study.attempts import read_attempts
from tests.evaluation_parts import Parts, arguments, make_study
from tests.running import ROOT


@pytest.fixture
def outdir(tmp_path):
    return make_study(tmp_path)


def run(outdir, parts, *policies, **changes):
    return evaluate_policy.main(arguments(outdir, *policies, **changes), parts.parts())


def rows_of(outdir, place):
    return read_attempts(outdir / "eval" / "pi" / place / "held.jsonl")


def test_base_and_adapters_come_through_one_engine_and_one_path(outdir):
    parts = Parts(outdir)
    assert run(outdir, parts, "base", "step-6", "step-12") == 0
    assert parts.engines == 1
    assert parts.gated == ["step-6", "step-12"]
    assert parts.loaded == []
    base, later = rows_of(outdir, "base"), rows_of(outdir, "step-12")
    assert [row.task_id for row in base] == [f"held-{number}" for number in range(6)]
    assert sum(row.solved for row in base) == 2
    assert all(row.solved for row in later)
    assert {row.policy for row in later} == {"step-12"}
    assert base[0].policy_sha256 != later[0].policy_sha256
    assert base[0].sampling == later[0].sampling
    orders = {model: [task for name, task in parts.runs if name == model] for model, _ in parts.runs}
    assert len(orders) == 3
    # Threads may swap neighbours in the list of starts, but the queue is the same.
    assert len({tuple(sorted(order)) for order in orders.values()}) == 1


def test_traces_lie_where_the_rows_say_and_old_ones_are_gone(outdir):
    run(outdir, Parts(outdir), "base")
    for row in rows_of(outdir, "base"):
        turns = json.loads((outdir / row.trajectory).read_text())
        assert turns[0]["completion_token_ids"] == [3]
    stale = outdir / "traces" / "pi" / "base" / "held" / "other-0.json"
    stale.write_text("[]")
    (outdir / "eval" / "pi" / "base" / "held.jsonl").unlink()
    run(outdir, Parts(outdir), "base")
    assert not stale.exists()
    assert (outdir / rows_of(outdir, "base")[0].trajectory).exists()


def test_the_selected_checkpoint_keeps_its_step_in_the_rows(outdir):
    assert run(outdir, Parts(outdir), "selected") == 0
    row = rows_of(outdir, "selected")[0]
    assert row.policy == "step-12"
    assert row.trajectory == "traces/pi/selected/held/held-0-0.json"


def test_a_run_with_everything_in_the_journal_starts_no_engine_and_writes_the_same(outdir):
    run(outdir, Parts(outdir), "base", "step-6")
    path = outdir / "eval" / "pi" / "base" / "held.jsonl"
    before = path.read_bytes()
    path.unlink()
    again = Parts(outdir)
    assert run(outdir, again, "base", "step-6", evaluation={"concurrency": 1, "retries": 5}) == 0
    assert (again.engines, again.runs) == (0, [])
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "changes",
    [
        {"rollout": {"temperature": 0.7}},
        {"rollout": {"call_budget": 9}},
        {"evaluation": {"recipe_version": 2}},
        {"engine": {"max_model_len": 4096}},
        {"sandbox": {"environment": "docker"}},
        {"policy": {"enable_thinking": False}},
    ],
)
def test_another_condition_measures_anew_and_leaves_the_old_journal(outdir, changes):
    run(outdir, Parts(outdir), "base")
    other = Parts(outdir)
    assert run(outdir, other, "base", **changes) == 0
    assert len(other.runs) == 6
    again = Parts(outdir)
    assert run(outdir, again, "base") == 0
    assert again.runs == []


@pytest.mark.parametrize(
    "changes",
    [
        {"evaluation": {"concurrency": 7}},
        {"engine": {"start_timeout_s": 9.0}},
        {"engine": {"kv_cache_gib": 2.0}},
        {"engine": {"max_num_seqs": 2}},
    ],
)
def test_what_only_decides_how_soon_it_is_done_measures_nothing_anew(outdir, changes):
    run(outdir, Parts(outdir), "base")
    again = Parts(outdir)
    assert run(outdir, again, "base", **changes) == 0
    assert again.engines == 0


def test_only_the_changed_task_is_measured_anew(outdir):
    run(outdir, Parts(outdir), "base")
    task = outdir / "suites" / "held" / "tasks" / "held-3" / "instruction.md"
    task.write_text("Another task")
    index = outdir / "suites" / "held.jsonl"
    rows = evaluate_policy.read_index(index)
    folder = evaluate_policy.folder_sha256(task.parent)
    evaluate_policy_rows = [
        row.model_copy(update={"sha256": folder}) if row.task_id == "held-3" else row for row in rows
    ]
    index.write_text("".join(row.model_dump_json() + "\n" for row in evaluate_policy_rows))
    again = Parts(outdir)
    assert run(outdir, again, "base") == 0
    assert [task_id for _, task_id in again.runs] == ["held-3"]


def test_another_adapter_of_the_same_name_is_measured_anew(outdir):
    run(outdir, Parts(outdir), "step-6")
    (outdir / "adapters" / "pi" / "step-6" / "adapter_model.safetensors").write_text("trained again")
    again = Parts(outdir)
    assert run(outdir, again, "step-6") == 0
    assert len(again.runs) == 6


def test_a_broken_sandbox_is_recorded_and_never_wrong(outdir):
    parts = Parts(outdir)
    parts.broken = {"held-4"}
    assert run(outdir, parts, "base") == 0
    row = rows_of(outdir, "base")[4]
    assert (row.status, row.solved, row.error.type, row.infrastructure_tries) == ("infrastructure", None, "NoTurns", 2)
    assert row.trajectory is None


def test_a_dead_engine_is_a_clear_error_and_the_next_run_finishes(outdir, capsys):
    parts = Parts(outdir)
    parts.dead_after = 3
    assert run(outdir, parts, "base", evaluation={"concurrency": 1}) == 1
    assert "evaluate_policy: vllm ended with status -9" in capsys.readouterr().err
    assert not (outdir / "eval").exists()
    again = Parts(outdir)
    assert run(outdir, again, "base") == 0
    assert 0 < len(again.runs) < 6
    assert len(rows_of(outdir, "base")) == 6


def test_a_changed_task_folder_is_refused_before_anything_starts(outdir, capsys):
    (outdir / "suites" / "held" / "tasks" / "held-2" / "instruction.md").write_text("tampered")
    parts = Parts(outdir)
    assert run(outdir, parts, "base") == 1
    assert "held.jsonl row 3: task held-2" in capsys.readouterr().err
    assert parts.engines == 0


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ("step-9=nowhere", "nowhere/adapter_config.json is missing"),
        ("best", "give base, selected=DIR or step-<n>=DIR"),
        ("base=x", "give base, selected=DIR"),
    ],
)
def test_a_policy_that_is_none_is_refused(outdir, capsys, policy, message):
    assert evaluate_policy.main([*arguments(outdir, "base"), "--policy", policy], Parts(outdir).parts()) == 1
    assert message in capsys.readouterr().err


def test_base_files_that_are_not_the_facts_are_refused(outdir, capsys):
    (outdir / "policy" / "base" / "config.json").write_text('{"changed": 1}')
    assert run(outdir, Parts(outdir), "base") == 1
    assert "differs from" in capsys.readouterr().err


def test_settings_in_two_parts(outdir, capsys):
    words = arguments(outdir, "base")
    assert evaluate_policy.main([*words, "--running", '{"evaluation": {"concurrency": 3}}'], Parts(outdir).parts()) == 0
    assert evaluate_policy.main([*words, "--running", '{"evaluation": {"attempts": 3}}'], Parts(outdir).parts()) == 1
    assert "evaluation.attempts: belongs into --settings" in capsys.readouterr().err


def test_kill_9_leaves_no_process_and_the_next_run_runs_no_finished_attempt_again(tmp_path):
    outdir = make_study(tmp_path, tasks=30)
    command = [sys.executable, "-m", "tests.evaluation_parts", str(outdir)]
    started = outdir / "runs.txt"
    with (tmp_path / "log").open("wb") as log:
        first = psutil.Popen(command, cwd=ROOT, stdout=log, stderr=log)
    seen = {}
    until = time.monotonic() + 60
    while time.monotonic() < until and not (started.exists() and len(started.read_text().split()) >= 10):
        seen |= {child.pid: child for child in first.children(recursive=True)}
        time.sleep(0.05)
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    journal = next((outdir / "work" / "base").glob("journal-*.jsonl"))
    finished = {json.loads(line)["try"]["task_id"] for line in journal.read_text().splitlines()[1:]}
    before = started.read_text().split()
    assert 0 < len(finished) < 30
    assert seen
    _, alive = psutil.wait_procs(list(seen.values()), timeout=20)
    assert not [process for process in alive if process.status() != psutil.STATUS_ZOMBIE]

    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    again = started.read_text().split()[len(before) :]
    assert sorted(again) == sorted({f"held-{number}" for number in range(30)} - finished)
    assert len(rows_of(outdir, "base")) == 30
