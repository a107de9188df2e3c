"""A whole training with the real engine, server, sandbox and agent, killed in mid-run and gone on with."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("trl")
psutil = pytest.importorskip("psutil")

from scripts.demo.generated_tasks import draw_tasks, write_task  # noqa: E402
from scripts.study.config import Engine, Rollout, Sandbox, Training  # noqa: E402
from scripts.study.fingerprints import folder_sha256  # noqa: E402
from scripts.study.jobs import Serving, TrainJob  # noqa: E402
from scripts.study.suite_index import TaskRow, write_index  # noqa: E402
from scripts.training.records import read_lines  # noqa: E402
from scripts.training.work_folder import newest_checkpoint  # noqa: E402
from tests import random_policy  # noqa: E402

ROOT = Path(__file__).parent.parent
STEPS = 3

pytestmark = [
    pytest.mark.engine,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not (ROOT / ".envs/agents/node_modules").is_dir(), reason="needs the agents and Harbor"),
]


@pytest.fixture(scope="module")
def command(tmp_path_factory):
    """Command line of a training of a policy without sense: it learns nothing, but every part is in use."""
    folder = tmp_path_factory.mktemp("training")
    base = random_policy.build(folder / "base")
    facts = {"hub_id": "owner/random", "revision": None, "sha256": folder_sha256(base)}
    (folder / "base.json").write_text(json.dumps(facts))
    rows = []
    for index, task in enumerate(draw_tasks("train", 5, 4, ["easy", "medium"])):
        name = f"tiny-{index}"
        target = folder / "results/suites/tiny/tasks" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        write_task(task, name, target)
        rows.append(
            TaskRow(suite="tiny", role="train", task_id=name, index=index, path=f"suites/tiny/tasks/{name}",
                    sha256=folder_sha256(target), difficulty="easy", cluster=None)
        )  # fmt: skip
    write_index(folder / "results/suites/tiny.jsonl", rows)
    job = TrainJob(
        harness="pi", seed=0, hardware="cpu", serving=Serving(dtype="float32"), engine=Engine(), sandbox=Sandbox(),
        rollout=Rollout(max_output_tokens=24),
        training=Training(steps=STEPS, checkpoint_every=1, rollouts_per_task=2, microbatches=1, token_budget=2800),
    )  # fmt: skip
    return folder, [
        sys.executable, "-m", "scripts.train_adapter", "--settings", job.model_dump_json(), "--base", str(base),
        "--base-facts", str(folder / "base.json"), "--index", str(folder / "results/suites/tiny.jsonl"),
        "--outdir", str(folder / "results"), "--harbor-python", ".envs/harbor/bin/python",
        "--agents-dir", ".envs/agents", "--work", str(folder / "work"), "--log-dir", str(folder / "logs"),
    ]  # fmt: skip


def work_of(folder: Path) -> Path | None:
    found = [path.parent for path in (folder / "work").glob("*/identity.json")]
    assert len(found) < 2, "one job has one work folder"
    return found[0] if found else None


def test_a_killed_training_leaves_no_process_and_is_gone_on_with(command):
    folder, argv = command
    with (folder / "said").open("w") as said:
        first = psutil.Popen(argv, cwd=ROOT, stderr=said, stdout=said)
        deadline, tree = time.monotonic() + 600, {}
        while (work := work_of(folder)) is None or newest_checkpoint(work)[0] < 1:
            assert first.poll() is None, (folder / "said").read_text()
            assert time.monotonic() < deadline, (folder / "said").read_text()
            tree |= {child.pid: child for child in first.children(recursive=True)}
            time.sleep(0.2)
        tree |= {child.pid: child for child in first.children(recursive=True)}
        os.kill(first.pid, signal.SIGKILL)
        first.wait(10)
    assert len(tree) >= 5, "engine, server, trainer and worker were running"
    _, left = psutil.wait_procs(tree.values(), timeout=20)
    assert [child for child in left if child.status() != psutil.STATUS_ZOMBIE] == []
    assert not (folder / "results/train").exists(), "nothing is declared before the end"

    kept = newest_checkpoint(work)[0]
    again = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert again.returncode == 0, again.stderr
    assert f"going on from the checkpoint of step {kept}" in again.stderr

    steps = read_lines(folder / "results/train/pi/train.jsonl")
    assert [line["step"] for line in steps] == list(range(1, STEPS + 1))
    # The resumed trainer's log-probabilities are those of the policy that the engine serves.
    assert [line["importance_ratio"] for line in steps] == pytest.approx([1.0] * STEPS, abs=1e-3)
    facts = json.loads((folder / "results/train/pi/training.json").read_text())
    assert (facts["launches"], facts["resumed"], facts["sync"]) == (2, 1, "adapter")
    rollouts = read_lines(folder / "results/train/pi/rollouts.jsonl")
    assert {line["step"] for line in rollouts} <= {None, *range(1, STEPS + 1)}
    assert facts["trained"] == sum(line["step"] is not None for line in rollouts) > 0
    for step in range(1, STEPS + 1):
        adapter = folder / f"results/adapters/pi/step-{step}"
        assert sorted(path.name for path in adapter.iterdir()) == ["adapter_config.json", "adapter_model.safetensors"]
        assert json.loads((adapter / "adapter_config.json").read_text())["base_model_name_or_path"] == "owner/random"

    started = time.monotonic()
    third = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert third.returncode == 0, third.stderr
    assert "engine" not in third.stderr, "a finished training starts nothing"
    assert time.monotonic() - started < 60
