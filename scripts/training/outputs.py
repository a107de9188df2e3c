"""The declared outputs of a training run, made from its work folder once it is finished."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import Any

from scripts.study.files import folder_written_whole, write_json
from scripts.training.plan import Plan
from scripts.training.records import Line, causes, joined, read_lines, step_rows, tasks_trained_by_step, write_lines
from scripts.training.work_folder import complete_checkpoints

PACKAGES = ("trl", "vllm", "torch", "transformers", "peft", "openenv")
WEIGHTS = "adapter_model.safetensors"


class OutputsError(RuntimeError):
    """The work folder does not hold what a finished run leaves; the message says what is missing."""


def write_outputs(plan: Plan, hub_id: str, records: Path, adapters: Path, facts: dict[str, Any]) -> dict[str, Any]:
    """Write adapters, ``train.jsonl``, ``rollouts.jsonl`` and, last, ``training.json``.

    :param plan: the job.
    :param hub_id: what the adapters name as their base model.
    :param records: folder ``train/<harness>``.
    :param adapters: folder ``adapters/<harness>``.
    :param facts: what only the caller knows: engine, GPUs, base.
    :return: the facts as written.
    :raises OutputsError: a checkpoint or a step is missing, or a step is there twice.
    """
    training = plan.job.training
    checkpoints = complete_checkpoints(plan.folder)
    lost = [step for step in training.checkpoints if step not in checkpoints]
    if lost:
        raise OutputsError(f"{plan.folder}: no complete checkpoint of step {', '.join(map(str, lost))}")
    steps = read_lines(plan.steps)
    if [line["step"] for line in steps] != list(range(1, training.steps + 1)):
        raise OutputsError(f"{plan.steps}: steps 1 to {training.steps} are not there once each, in order")
    rollouts = read_lines(plan.rollouts)
    rows = joined(rollouts, steps)
    for step in training.checkpoints:
        export_adapter(checkpoints[step], adapters / f"step-{step}", hub_id)
    write_lines(records / "train.jsonl", step_rows(steps))
    write_lines(records / "rollouts.jsonl", rows)
    written = {**facts, **training_facts(plan, steps, rollouts, rows)}
    write_json(records / "training.json", written)
    return written


def training_facts(plan: Plan, steps: list[Line], rollouts: list[Line], rows: list[Line]) -> dict[str, Any]:
    """What ``training.json`` says of the run itself; ``wall_s`` sums up the steps, without starts and lost steps."""
    launches = read_lines(plan.folder / "launches.jsonl")
    scored, unscored, failed = causes(rollouts)
    return {
        "schema": 1,
        "steps": len(steps),
        "checkpoints": plan.job.training.checkpoints,
        "wall_s": round(sum(line["seconds"] for line in steps), 1),
        "launches": len(launches),
        "resumed": sum(1 for launch in launches if launch["from_step"] > 0),
        "sync": "adapter",
        "rollouts": len(rows),
        "trained": sum(1 for row in rows if row["step"] is not None),
        "scored": scored,
        "unscored": unscored,
        "failed": failed,
        "stops": dict(sorted(Counter(row["stop"] for row in rows if row["stop"]).items())),
        "tasks": len({(task.suite, task.task_id) for task in plan.tasks}),
        "tasks_trained_by_step": {
            str(step): count for step, count in tasks_trained_by_step(rows, plan.job.training.checkpoints).items()
        },
        "harness": plan.job.harness,
        "harness_versions": sorted({line["harness_version"] for line in rollouts if line.get("harness_version")}),
        "versions": {name: metadata.version(name) for name in PACKAGES},
    }


def export_adapter(checkpoint: Path, target: Path, hub_id: str) -> None:
    """Copy a checkpoint's adapter as it can be published: with the base's Hub id, without any local path."""
    config = json.loads((checkpoint / "adapter_config.json").read_text())
    config["base_model_name_or_path"] = hub_id
    if isinstance(config.get("target_modules"), list):
        config["target_modules"].sort()  # PEFT keeps a set, whose order differs from run to run
    for path in local_paths(config):
        raise OutputsError(f"{checkpoint}/adapter_config.json: {path} holds a local path")
    with folder_written_whole(target) as folder:
        shutil.copyfile(checkpoint / WEIGHTS, folder / WEIGHTS)
        write_json(folder / "adapter_config.json", config)


def local_paths(value: Any, at: str = "") -> Iterable[str]:
    """Dotted keys of all texts in a JSON value that are absolute paths."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from local_paths(item, f"{at}.{key}" if at else str(key))
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from local_paths(item, f"{at}.{number}")
    elif isinstance(value, str) and Path(value).is_absolute():
        yield at
