"""Train the adapter of one harness by reinforcement learning with the real agent in every rollout.

Runs in the policy's environment. Owns its engine, its rollout server and its trainer process, and resumes from the
newest complete checkpoint in the work folder. The declared outputs are written at the end, all from that folder.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from scripts.rollout.client import sampling_of
from scripts.rollout.engine import Engine, EngineDied
from scripts.rollout.processes import OwnedProcess, end_with_workflow
from scripts.rollout.service import RolloutServer, RolloutServerDied
from scripts.study.config import ConfigError
from scripts.study.files import write_atomic
from scripts.study.jobs import TrainJob, read_train_job
from scripts.study.suite_index import SuiteError, TaskRow, read_index
from scripts.training.devices import DeviceError, split_gpus, visible_gpus
from scripts.training.outputs import OutputsError, write_outputs
from scripts.training.plan import Plan, PlannedTask
from scripts.training.records import Line, LineTail, RecordsError, append_line, drop_steps_after, mend
from scripts.training.work_folder import WorkFolderError, identity, newest_checkpoint, remove_incomplete, work_folder

SAY_EVERY_S = 15.0


class TrainingFailed(RuntimeError):
    """The trainer ended without having trained; the message says why."""


def training_order(tasks: Sequence[TaskRow], seed: int) -> list[PlannedTask]:
    """The tasks in the order of training, which depends on their names and the seed alone."""
    ordered = sorted(tasks, key=lambda row: (row.suite, row.task_id))
    random.Random(seed).shuffle(ordered)
    return [PlannedTask(suite=row.suite, task_id=row.task_id) for row in ordered]


def read_training_tasks(indexes: Sequence[Path]) -> list[TaskRow]:
    """The tasks of all training suites.

    :raises SuiteError: there is none, or one has another role: what is measured later must not be trained on.
    """
    tasks = [row for path in indexes for row in read_index(path)]
    for row in tasks:
        if row.role != "train":
            raise SuiteError(f"{row.suite}/{row.task_id} has role {row.role}; train on suites of role train only")
    if not tasks:
        raise SuiteError("--index: no task in the training suites; raise their limit")
    return tasks


def progress_line(steps: Sequence[Line], total: int) -> str:
    """What is printed after a step.

    :param steps: lines of the steps that this run took, the last one being new.
    :param total: steps of the whole training.
    """
    line = steps[-1]
    recent = [step["seconds"] for step in steps[-5:]]
    left = (total - line["step"]) * sum(recent) / len(recent)
    lost = sum(line["unscored"].values()) + sum(line["failed"].values())
    return (
        f"train: step {line['step']}/{total}  reward {_text(line['reward'], 3)}  "
        f"correct {_text(line['correctness'], 2)}  tool calls {_text(line['tool_calls'], 2)}  "
        f"rollouts {line['rollouts']} ({lost} lost)  "
        f"{line['seconds']:.0f} s ({line['wait_s'] or 0:.0f} s waiting)  {left / 60:.1f} min left"
    )


def _text(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def trainer_command(plan: Path, gpus: int, hardware: str) -> list[str]:
    """How the trainer's process, or its processes, start."""
    module = ["-m", "scripts.training.run_trainer", str(plan)]
    if hardware == "cuda" and gpus > 1:
        spread = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(gpus)]
        return [sys.executable, *spread, *module]
    return [sys.executable, *module]


def follow(trainer: OwnedProcess, engine: Engine, server: RolloutServer, plan: Plan) -> None:
    """Print progress until the trainer has ended well.

    :raises TrainingFailed: it did not.
    :raises EngineDied: the engine ended before it.
    :raises RolloutServerDied: the rollout server did.
    """
    total = plan.job.training.steps
    new_steps, new_rollouts = LineTail(plan.steps), LineTail(plan.rollouts)
    new_steps.read(), new_rollouts.read()
    taken: list[Line] = []
    since = 0
    said = checked = time.monotonic()
    while (status := trainer.poll()) is None:
        time.sleep(0.5)
        now = time.monotonic()
        since += len(new_rollouts.read())
        for line in new_steps.read():
            taken.append(line)
            _say(progress_line(taken, total))
            since, said = 0, now
        if now - said > SAY_EVERY_S:
            step = taken[-1]["step"] if taken else 0
            _say(
                f"train: {since} rollouts ended since step {step}" if step else f"train: {since} rollouts ended so far"
            )
            said = now
        if now - checked > 5:
            engine.check()
            server.check()
            checked = time.monotonic()
    for line in new_steps.read():
        taken.append(line)
        _say(progress_line(taken, total))
    if status != 0:
        why = plan.failure.read_text().strip() if plan.failure.exists() else f"last lines:\n{trainer.tail(15)}"
        raise TrainingFailed(f"the trainer ended with status {status}: {why} (log: {trainer.log})")


def train(args: argparse.Namespace, job: TrainJob, base_facts: dict[str, Any], tasks: list[TaskRow]) -> None:
    """Train, from the newest complete checkpoint on, and write the outputs."""
    engine_gpus, trainer_gpus = gpus_of(job)
    if engine_gpus:
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(engine_gpus)
    with work_folder(args.work, identity(job, base_facts["sha256"], tasks)) as folder:
        folder = folder.resolve()
        for name in remove_incomplete(folder):
            _say(f"train: {name} was not finished and is removed")
        from_step, checkpoint = newest_checkpoint(folder)
        engine = Engine(
            job.engine,
            job.serving,
            job.hardware,
            args.base,
            args.log_dir / "engine.log",
            adapter_slots=job.training.max_staleness + 2,
            training=True,
        )
        suites = (args.outdir / "suites").resolve()
        server = RolloutServer(
            args.harbor_python,
            args.agents_dir,
            [suites / name for name in dict.fromkeys(row.suite for row in tasks)],
            engine.url,
            job.harness,
            job.sandbox,
            job.rollout,
            job.training.concurrency,
            folder / "trials",
            args.log_dir / "rollout_server.log",
            enable_thinking=job.serving.enable_thinking,
        )
        plan = Plan(
            job=job,
            base=args.base.resolve(),
            suites=suites,
            tasks=training_order(tasks, job.seed),
            folder=folder,
            resume=checkpoint,
            engine_url=engine.url,
            server_url=server.url,
        )
        mend(plan.steps)
        mend(plan.rollouts)
        lost = drop_steps_after(plan.steps, from_step)
        if from_step or lost:
            _say(f"train: going on from the checkpoint of step {from_step}; {lost} later steps are taken again")
        if from_step < job.training.steps:
            shutil.rmtree(folder / "trials", ignore_errors=True)
            append_line(folder / "launches.jsonl", {"t": time.time(), "from_step": from_step})
            run(plan, engine, server, trainer_gpus, args.log_dir / "trainer.log")
        facts = write_outputs(
            plan,
            base_facts["hub_id"],
            args.outdir / "train" / job.harness,
            args.outdir / "adapters" / job.harness,
            {
                "base": {key: base_facts.get(key) for key in ("hub_id", "revision", "sha256")},
                "engine": engine.describe(),
                "gpus": {"engine": len(engine_gpus), "trainer": len(trainer_gpus)},
            },
        )
        _say(
            f"train: {facts['steps']} steps in {facts['wall_s'] / 60:.1f} min; trained on {facts['trained']} of "
            f"{facts['rollouts']} rollouts of {facts['tasks_trained_by_step'][str(job.training.steps)]} tasks"
        )


def run(plan: Plan, engine: Engine, server: RolloutServer, gpus: list[str], log: Path) -> None:
    """Run engine, rollout server and trainer until the trainer has ended; none of them outlives this call."""
    for leftover in (plan.ready, plan.failure):
        leftover.unlink(missing_ok=True)
    write_atomic(plan.folder / "plan.json", plan.model_dump_json())
    trainer = OwnedProcess(
        trainer_command(plan.folder / "plan.json", plan.job.training.gpus, plan.job.hardware),
        log=log,
        env=trainer_environment(plan.job, gpus),
        name="trainer",
        grace_s=10.0,
    )
    with ExitStack() as owned:
        # The trainer's imports take as long as the engine's start, so they go side by side.
        owned.enter_context(trainer)
        owned.enter_context(engine)
        owned.enter_context(server)
        plan.ready.touch()
        follow(trainer, engine, server, plan)


def trainer_environment(job: TrainJob, gpus: list[str]) -> dict[str, str]:
    """Environment of the trainer: ours, offline, with its own GPUs and threads."""
    env = {**os.environ, "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    if job.hardware == "cuda":
        # TRL's attention kernel comes from the Hub once, so the trainer may look there.
        env = {**os.environ, "TOKENIZERS_PARALLELISM": "false", "CUDA_VISIBLE_DEVICES": ",".join(gpus)}
    else:
        env |= {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": str(job.training.threads), "OMP_WAIT_POLICY": "passive"}
    return env


def gpus_of(job: TrainJob) -> tuple[list[str], list[str]]:
    """The GPUs of engine and trainer; none without ``hardware: cuda``.

    :raises DeviceError: fewer are visible than both need.
    """
    if job.hardware == "cpu":
        return [], []
    return split_gpus(visible_gpus(os.environ), job.engine.tensor_parallel, job.training.gpus)


def read_facts(path: Path) -> dict[str, Any]:
    """Facts of the base model.

    :raises ConfigError: unreadable, or without hub_id or sha256.
    """
    try:
        facts = json.loads(path.read_text())
        missing = [key for key in ("hub_id", "sha256") if not isinstance(facts.get(key), str)]
    except (OSError, ValueError, AttributeError) as error:
        raise ConfigError(f"{path}: {error}; make the base model first") from None
    if missing:
        raise ConfigError(f"{path}: no {' and no '.join(missing)}; make the base model anew")
    return dict(facts)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; see the module."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--settings", required=True, help="settings of the job, as JSON or a file of it")
    parser.add_argument("--running", default="{}", help="settings that only decide how soon it is done, likewise")
    parser.add_argument("--base", required=True, type=Path, help="folder of the base model")
    parser.add_argument("--base-facts", required=True, type=Path, help="JSON facts of the base model")
    parser.add_argument("--index", required=True, type=Path, nargs="+", help="indexes of the training suites")
    parser.add_argument("--outdir", required=True, type=Path, help="folder of all outputs")
    parser.add_argument("--harbor-python", required=True, type=Path, help="python of Harbor's environment")
    parser.add_argument("--agents-dir", required=True, type=Path, help="folder of the installed agents")
    parser.add_argument("--work", required=True, type=Path, help="work folder, kept between runs")
    parser.add_argument("--log-dir", required=True, type=Path, help="folder for the logs of what this job starts")
    args = parser.parse_args(argv)
    end_with_workflow()
    try:
        job = read_train_job(args.settings, args.running)
        sampling_of(job.rollout)
        if any(word.startswith("--data-parallel-size") for word in job.engine.extra_args):
            raise ConfigError("engine.extra_args: --data-parallel-size: an adapter would reach one replica only")
        train(args, job, read_facts(args.base_facts), read_training_tasks(args.index))
    except (
        ConfigError, SuiteError, DeviceError, WorkFolderError, RecordsError, OutputsError, TrainingFailed, EngineDied,
        RolloutServerDied,
        FileNotFoundError,
    ) as error:  # fmt: skip
        _say(f"train_adapter: {error}")
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
