"""A little study on disk and parts that answer at once, for tests of the evaluating program; also run as a program.

Only model and agent are replaced: journal, records, traces and the loop over attempts are the real ones.
"""

from __future__ import annotations

import json
import sys
import time
from contextlib import contextmanager
from pathlib import Path

from scripts import evaluate_policy
from scripts.rollout.outcome import Rollout
from scripts.rollout.processes import OwnedProcess
from scripts.rollout.recording import conditions
from scripts.study.config import parse_study
from scripts.study.fingerprints import folder_sha256
from scripts.study.jobs import evaluate_job
from scripts.study.suite_index import TaskRow, write_index

ADAPTERS = ("step-6", "step-12")


def make_study(root: Path, tasks: int = 6) -> Path:
    """Base, two adapters and a held-out suite; returns the outdir."""
    outdir = root / "results"
    rows = []
    for number in range(tasks):
        name = f"held-{number}"
        folder = outdir / "suites" / "held" / "tasks" / name
        folder.mkdir(parents=True)
        (folder / "instruction.md").write_text(f"Task {number}")
        rows.append(
            TaskRow(
                suite="held",
                role="heldout",
                task_id=name,
                index=number,
                path=f"suites/held/tasks/{name}",
                sha256=folder_sha256(folder),
                difficulty="easy",
                cluster=None,
            )
        )
    write_index(outdir / "suites" / "held.jsonl", rows)
    base = outdir / "policy" / "base"
    base.mkdir(parents=True)
    (base / "config.json").write_text("{}")
    facts = {"hub_id": "owner/model", "sha256": folder_sha256(base)}
    (outdir / "policy" / "base.json").write_text(json.dumps(facts))
    for name in (*ADAPTERS, "selected"):
        adapter = outdir / "adapters" / "pi" / name
        adapter.mkdir(parents=True)
        (adapter / "adapter_config.json").write_text("{}")
        (adapter / "adapter_model.safetensors").write_text("step-12" if name == "selected" else name)
    (outdir / "select").mkdir()
    (outdir / "select" / "pi.json").write_text(json.dumps({"selected": "step-12"}))
    return outdir


def settings(**changes: dict) -> str:
    """A job's settings with keys of its sections changed."""
    suites = {"train": {"role": "train", "seed": 1, "limit": 1}, "held": {"role": "heldout", "seed": 2, "limit": 1}}
    study = parse_study({"suites": suites, "selection": {"on": "final"}, **changes})
    return evaluate_job(study, "pi").model_dump_json()


def arguments(outdir: Path, *policies: str, **changes: dict) -> list[str]:
    """The command line for policies, of which adapters are named as in the outdir."""
    words = ["--settings", settings(**changes), "--outdir", str(outdir), "--work", str(outdir / "work")]
    words += ["--base", str(outdir / "policy" / "base"), "--base-facts", str(outdir / "policy" / "base.json")]
    words += ["--index", str(outdir / "suites" / "held.jsonl"), "--log-dir", str(outdir / "logs")]
    words += ["--harbor-python", "python", "--agents-dir", "agents", "--selection", str(outdir / "select" / "pi.json")]
    for policy in policies:
        words += ["--policy", policy if policy == "base" else f"{policy}={outdir / 'adapters' / 'pi' / policy}"]
    return words


class Parts:
    """Counts what is started and run. Every attempt is a line in a file, as soon as it starts."""

    def __init__(self, outdir: Path, seconds: float = 0.0, owned: bool = False) -> None:
        self.outdir, self.seconds, self.owned = outdir, seconds, owned
        self.engines = 0
        self.loaded: list[str] = []
        self.gated: list[str] = []
        self.runs: list[tuple[str, str]] = []
        self.broken: set[str] = set()
        self.dead_after: int | None = None
        self.url = "http://127.0.0.1:1"

    def parts(self) -> evaluate_policy.Parts:
        return evaluate_policy.Parts(
            engine=lambda job, places: self._engine(),
            service=lambda job, places, datasets, engine_url, work: self._itself(),
            client=lambda job, url: self._itself(),
            gate=lambda job, engine, measured, places: self.gated.append(measured.policy),
            describe=lambda job, places: conditions(job, "1.6.0", {"name": "vllm", "version": "0", "flags": []}, {}),
        )

    @contextmanager
    def _engine(self):
        self.engines += 1
        if not self.owned:
            yield self
            return
        with OwnedProcess(["sleep", "300"], log=self.outdir / "engine.log", env=None, name="engine"):
            yield self

    @contextmanager
    def _itself(self):
        yield self

    def check(self) -> None:
        if self.dead_after is not None and len(self.runs) > self.dead_after:
            raise evaluate_policy.EngineDied("vllm ended with status -9")

    def load_adapter(self, name: str, path: Path) -> None:
        self.loaded.append(name)

    def unload_adapter(self, name: str) -> None:
        self.loaded.remove(name)

    def run(self, dataset: Path, task_id: str, model: str) -> Rollout:
        assert (dataset / "tasks" / task_id).is_dir()
        assert model == "policy" or model in self.loaded
        self.runs.append((model, task_id))
        with (self.outdir / "runs.txt").open("a") as file:
            file.write(f"{task_id}\n")
        time.sleep(self.seconds)
        if task_id in self.broken:
            return Rollout("infrastructure", None, {"type": "NoTurns", "message": "sandbox is broken"})
        solved = model != "policy" or task_id.endswith(("0", "1"))
        turn = {"role": "agent", "prompt_token_ids": [1, 2], "completion_token_ids": [3], "logprobs": [-0.5]}
        return Rollout(
            status="scored",
            stop="finished",
            error=None,
            rewards={"correctness": float(solved)},
            correctness=float(solved),
            solved=solved,
            tool_calls=1,
            tool_calls_by_name={"bash": 1},
            model_calls=1,
            prompt_tokens=2,
            completion_tokens=1,
            wall_s=0.1,
            flags=[],
            harness_version="1.6.0",
            turns=[turn],
        )


if __name__ == "__main__":
    where = Path(sys.argv[1])
    slow = Parts(where, seconds=0.15, owned=True)
    sys.exit(evaluate_policy.main(arguments(where, "base"), slow.parts()))
