"""The small study from nothing to its card, through the real parts, with three kills on the way.

Run by ``make test`` after the fast tests. One study serves all assertions, because its engine starts are what costs.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.running import ROOT, Run, count_lines

pytestmark = [pytest.mark.study, pytest.mark.timeout(3600)]
# After the target: --configfile takes every word up to the next option for a config file.
CONFIG = ["--configfile", "config/smoke.yaml"]
OUT = ROOT / "results" / "smoke"
HELDOUT = "results/smoke/eval/pi/base/smoke-heldout.jsonl"
CARD = "results/smoke/card_pi.md"


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def scored_tries(folder: Path) -> Counter[tuple[str, str, int]]:
    """How often each attempt was graded, over all journals of a folder."""
    counts: Counter[tuple[str, str, int]] = Counter()
    for path in folder.glob("journal-*.jsonl"):
        whole = path.read_text().rpartition("\n")[0]  # the line behind the last line end is being written
        for row in map(json.loads, whole.splitlines()[1:]):
            done = row.get("try", {})
            if done.get("status") == "scored":
                counts[done["suite"], done["task_id"], done["attempt"]] += 1
    return counts


def dry_run(*arguments: str) -> str:
    command = [sys.executable, "-m", "snakemake", "--cores", "2", "--dry-run", CARD, *CONFIG, *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def unlock() -> None:
    """Remove the lock that a killed Snakemake leaves, as its own message asks a user to."""
    command = [sys.executable, "-m", "snakemake", "--cores", "1", "--unlock", HELDOUT, *CONFIG]
    subprocess.run(command, cwd=ROOT, check=True, timeout=120, capture_output=True)


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """The finished study, and what was seen on the way; whatever fails, nothing of it goes on."""
    try:
        yield run_with_kills(tmp_path_factory.mktemp("study") / "snakemake.log")
    finally:
        Run.end_all()


def run_with_kills(log: Path) -> dict[str, Any]:
    """Run the study: an evaluation is killed, then Snakemake in another one, then training; then it is finished."""
    shutil.rmtree(OUT, ignore_errors=True)
    unlock()  # an earlier test run may have been killed itself
    journal = OUT / "work" / "eval" / "pi"
    facts: dict[str, Any] = {"survivors": {}, "log": log}

    # Where llama.cpp is still to be built, it is built beside the policy, as in a whole run.
    llama_cpp = [marker for marker in [".envs/gguf.json"] if not (ROOT / marker).is_file()]
    run = Run(HELDOUT, *llama_cpp, *CONFIG, log=log)
    assert run.wait(lambda: count_lines(journal, "base/journal-*.jsonl") >= 4) is None, run.tail()
    run.job("scripts.evaluate_policy").kill()
    assert run.wait() not in (0, None)
    facts["survivors"]["evaluate"] = run.survivors()
    facts["finished at the first kill"] = scored_tries(journal / "base")

    already = sum(facts["finished at the first kill"].values())
    run = Run(HELDOUT, *CONFIG, log=log)
    assert run.wait(lambda: sum(scored_tries(journal / "base").values()) >= already + 3) is None, run.tail()
    run.look()
    run.process.kill()
    run.process.wait()
    facts["survivors"]["snakemake"] = run.survivors()
    facts["finished at the second kill"] = scored_tries(journal / "base")
    unlock()

    run = Run("results/smoke/train/pi/training.json", *CONFIG, log=log)
    trained = OUT / "work" / "train" / "pi"
    assert run.wait(lambda: count_lines(trained, "*/steps.jsonl") >= 3) is None, run.tail()
    run.job("scripts.train_adapter").kill()
    assert run.wait() not in (0, None)
    facts["survivors"]["train"] = run.survivors()

    run = Run(CARD, *CONFIG, log=log)
    assert run.wait() == 0, run.tail()
    facts["survivors"]["the whole study"] = run.survivors()
    return facts


def test_nothing_is_left_of_a_kill(study: dict[str, Any]) -> None:
    assert study["survivors"] == {"evaluate": [], "snakemake": [], "train": [], "the whole study": []}


def test_no_finished_attempt_is_run_again(study: dict[str, Any]) -> None:
    finished = scored_tries(OUT / "work" / "eval" / "pi" / "base")
    assert set(finished.values()) == {1}
    assert len(finished) == 16
    assert 3 <= len(study["finished at the first kill"]) < len(study["finished at the second kill"]) < 16


def test_attempts_are_whole(study: dict[str, Any]) -> None:
    for policy in ("base", "selected"):
        attempts = rows(OUT / "eval" / "pi" / policy / "smoke-heldout.jsonl")
        assert len(attempts) == 16
        assert [row["task_id"] for row in attempts] == sorted(row["task_id"] for row in attempts)
        assert {row["status"] for row in attempts} == {"scored"}
        assert any(row["tool_calls"] > 0 for row in attempts)
        assert all((OUT / row["trajectory"]).is_file() for row in attempts)


def test_training_was_resumed_and_every_step_happened_once(study: dict[str, Any]) -> None:
    steps = rows(OUT / "train" / "pi" / "train.jsonl")
    assert [row["step"] for row in steps] == [1, 2, 3, 4]
    facts = json.loads((OUT / "train" / "pi" / "training.json").read_text())
    assert facts["resumed"] == 1
    assert all(0.9 < row["importance_ratio"] < 1.1 for row in steps)
    assert all(row["staleness_max"] <= 4 for row in steps)
    assert all(row["rollouts"] > 0 for row in steps)


def test_trained_adapter_is_another_policy(study: dict[str, Any]) -> None:
    config = json.loads((OUT / "adapters" / "pi" / "selected" / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == "harness-cards/smoke-policy"
    selection = json.loads((OUT / "select" / "pi.json").read_text())
    assert [candidate["policy"] for candidate in selection["candidates"]] == ["step-2", "step-4"]
    assert selection["selected"] in ("step-2", "step-4")


def test_converted_file_follows_the_adapter(study: dict[str, Any]) -> None:
    """At scale 1 the GGUF adapter is the evaluated one; at scale 0 it is farther away."""
    fidelity = json.loads((OUT / "gguf" / "pi" / "fidelity.json").read_text())
    on, off = fidelity["scale_1"], fidelity["scale_0"]
    assert on["top1_agreement"] > 0.99
    assert on["kl_mean"] < 1e-3
    assert on["kl_mean"] < off["kl_mean"]


def test_everything_is_built_then_nothing_is_to_do(study: dict[str, Any]) -> None:
    assert "Nothing to be done" in dry_run()


@pytest.mark.parametrize(
    "program", ["scripts/train_adapter.py", "scripts/evaluate_policy.py", "scripts/training/rewards.py"]
)
def test_comment_in_an_expensive_program_plans_nothing(study: dict[str, Any], program: str) -> None:
    path = ROOT / program
    before = path.read_bytes()
    try:
        path.write_bytes(before + b"\n# a comment\n")
        assert "Nothing to be done" in dry_run()
    finally:
        path.write_bytes(before)


def test_learning_rate_trains_again_and_leaves_the_base_alone(study: dict[str, Any]) -> None:
    plan = dry_run("--config", "training={learning_rate: 1.0e-3}")
    assert "rule train:" in plan
    assert "rule evaluate_validation:" in plan
    assert "rule base_policy:" not in plan
    assert "rule suite:" not in plan
    assert "eval/pi/base/" not in plan.split("rule train:")[0]


def test_card_and_folders_are_there(study: dict[str, Any]) -> None:
    text = (OUT / "card_pi.md").read_text()
    assert "base_model: harness-cards/smoke-policy" in text
    assert (OUT / "card_pi" / "hero.png").stat().st_size > 10_000
    pictures = {f"{name}.png" for name in ("hero", "forest", "calls", "training", "outcomes")}
    adapter = {"README.md", "adapter_config.json", "adapter_model.safetensors", "chat_template.jinja", "card.json"}
    assert {path.name for path in (OUT / "publish" / "pi").iterdir()} == adapter | pictures
    gguf = {"README.md", "chat_template.jinja", "smoke-policy-F16.gguf", "smoke-policy-harbor-pi-lora-F16.gguf"}
    assert {path.name for path in (OUT / "publish" / "pi-gguf").iterdir()} == gguf
    for path in [*(OUT / "publish").rglob("*.md"), *(OUT / "publish").rglob("*.json")]:
        assert str(ROOT) not in path.read_text(), path
