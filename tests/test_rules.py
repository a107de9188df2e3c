"""The graph of every shipped study, and that the rule files are clean."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PARTS = ["Snakefile", "config", "envs", "profiles", "rules", "scripts", "pyproject.toml", "Makefile"]


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the workflow without results and environments: dry runs plan everything there."""
    folder = tmp_path_factory.mktemp("checkout")
    for name in PARTS:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__", "node_modules"))
        else:
            shutil.copy(source, folder / name)
    return folder


def snakemake(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Snakemake in a checkout; stdout and stderr are captured."""
    env = {**os.environ, "XDG_CACHE_HOME": str(folder / ".cache")}
    command = [sys.executable, "-m", "snakemake", "--cores", "2", *arguments]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=120)


def planned(folder: Path, *arguments: str) -> dict[str, int]:
    """Jobs by rule that a dry run plans."""
    done = snakemake(folder, "--dry-run", *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    table = re.search(r"^Job stats:\n.*?\n-+ .*?\n(.*?)^total ", done.stdout, flags=re.DOTALL | re.MULTILINE)
    rows = [line.split() for line in table.group(1).splitlines()] if table else []
    return {name: int(count) for name, count in rows}


ENVIRONMENTS = {"policy-cpu", "policy-cuda", "harbor", "agents", "gguf", "workflow"}


@pytest.mark.parametrize("name", ["config", "smoke"])
def test_study_goes_through_every_stage(checkout: Path, name: str) -> None:
    out = "results" if name == "config" else f"results/{name}"
    jobs = planned(checkout, f"{out}/card_pi.md", "--configfile", f"config/{name}.yaml")
    once = ["base_policy", "disjoint", "train", "evaluate_validation", "select", "gguf_base", "gguf_adapter"]
    assert {rule: jobs.get(rule) for rule in once} == dict.fromkeys(once, 1)
    assert jobs["suite"] == 3
    assert jobs["preflight"] == 3
    assert jobs["evaluate_heldout"] == 2
    assert jobs["compare"] == 1


def test_environment_older_than_its_lock_hides_no_job(checkout: Path) -> None:
    """Snakemake 9.27 plans nothing beside an environment's rule that wants to run again; so none is there to run."""
    folder = checkout / ".envs"
    folder.mkdir()
    for stage in ENVIRONMENTS:
        (folder / f"{stage}.json").write_text("{}")
        os.utime(folder / f"{stage}.json", (1, 1))
    try:
        jobs = planned(checkout, "results/card_pi.md")
    finally:
        shutil.rmtree(folder)
    assert jobs["card"] == 1
    assert jobs["train"] == 1
    assert not [name for name in jobs if name.startswith("env_")]


def test_default_target_is_the_card(checkout: Path) -> None:
    everything = planned(checkout)
    assert everything.pop("all") == 1
    assert everything == planned(checkout, "results/card_pi.md")


def test_twil_graph(checkout: Path) -> None:
    """Nothing of the published study can run without its GPUs, but its graph must come out right."""
    jobs = planned(checkout, "--configfile", "config/twil.yaml")
    assert jobs["suite"] == 4
    assert jobs["train"] == 1
    assert jobs["evaluate_heldout"] == 2
    assert jobs["evaluate_validation"] == 1
    assert jobs["compare"] == 2
    assert "prompts" not in jobs
    text = snakemake(checkout, "--dry-run", "--configfile", "config/twil.yaml").stdout
    assert ".envs/policy-cuda.json" in text
    assert ".envs/policy-cpu.json" not in text
    assert all(f"results/twil/adapters/pi/step-{step}" in text for step in range(10, 101, 10))
    assert "results/twil/adapters/pi/step-5," not in text


def test_twil_asks_for_pinned_commits_before_anything_runs(checkout: Path) -> None:
    done = snakemake(checkout, "results/twil/card_pi.md", "--configfile", "config/twil.yaml")
    assert done.returncode != 0
    assert "policy.revision" in done.stdout + done.stderr
    assert not (checkout / "results" / "twil").exists()


def test_studies_are_not_merged(checkout: Path) -> None:
    text = snakemake(checkout, "--dry-run", "--configfile", "config/smoke.yaml").stdout
    assert "smoke-train" in text
    assert "demo-train" not in text


def test_single_key_can_be_changed(checkout: Path) -> None:
    assert planned(checkout, "--config", "outdir=elsewhere", "--", "elsewhere/card_pi.md")["train"] == 1


def test_number_in_a_section_can_be_changed(checkout: Path) -> None:
    """The example of config/README.md."""
    done = snakemake(checkout, "--dry-run", "--printshellcmds", "--config", "training={learning_rate: 1.0e-3}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert '"learning_rate":0.001' in done.stdout


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("training={learning_rat: 1.0}", "training.learning_rat: unknown key"),
        ("training={learning_rate: '1e-5'}", "training.learning_rate: '1e-5' is text"),
        ("trainin={steps: 3}", "trainin: unknown key"),
    ],
)
def test_fault_in_config_is_one_clear_line(checkout: Path, change: str, message: str) -> None:
    done = snakemake(checkout, "--dry-run", "--config", change)
    assert done.returncode != 0
    assert message in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr


def test_rule_script_and_log_share_a_name() -> None:
    """Every rule has a docstring, a log and a benchmark."""
    for path in sorted((ROOT / "rules").glob("*.smk")):
        text = path.read_text()
        for block in re.split(r"^\s*rule ", text, flags=re.MULTILINE)[1:]:
            name = block.split(":")[0]
            assert '"""' in block.split("input:")[0].split("output:")[0], f"{path.name}: rule {name} has no docstring"
            assert "log:" in block, f"{path.name}: rule {name} has no log"
