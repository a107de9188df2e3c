"""Tries tasks of a suite in the configured sandbox before anything costs time: the oracle must get 1, doing nothing 0.

    python -m scripts.preflight_suite --index results/suites/demo-train.jsonl --outdir results \
        --settings '{"environment": "bubblewrap", "options": {}, "preflight_tasks": 1}' \
        --agents-dir .envs/agents --out results/suites/demo-train.preflight.json

Runs in the harbor environment; the settings are the study's section ``sandbox``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scripts.rollout.processes import end_with_workflow
from scripts.rollout.sandboxes import BUBBLEWRAP, environment_settings
from scripts.study.config import ConfigError, Sandbox
from scripts.study.files import write_atomic
from scripts.study.jobs import read_settings
from scripts.study.suite_index import SuiteError, TaskRow, read_index

EXPECTED = {"oracle": 1.0, "nop": 0.0}
"""What Harbor's two reference agents must get: the task's own solution, and nothing at all."""


class PreflightFailed(RuntimeError):
    """A task does not grade as it must; the message names task, agent and what came back."""


def spread(rows: Sequence[TaskRow], count: int) -> list[TaskRow]:
    """At most ``count`` rows, evenly over the suite, the first one always."""
    if count >= len(rows):
        return list(rows)
    return [rows[i * len(rows) // count] for i in range(count)]


def headline(rewards: dict[str, Any] | None) -> float | None:
    """The reward that counts: ``correctness``, else ``reward``, else the only one; None if there is none."""
    if not rewards:
        return None
    for key in ("correctness", "reward"):
        if key in rewards:
            return rewards[key]
    return next(iter(rewards.values())) if len(rewards) == 1 else None


def judge(task_id: str, agent: str, rewards: dict[str, Any] | None, problem: str | None) -> float:
    """The reward, if it is as expected.

    :param problem: what Harbor reported for the trial, or None.
    :raises PreflightFailed: another reward, or none.
    """
    reward, expected = headline(rewards), EXPECTED[agent]
    if problem is not None:
        raise PreflightFailed(f"task {task_id}: the {agent} agent's trial failed: {problem}")
    if reward != expected:
        hint = {
            "oracle": "the task's solution does not solve it in this sandbox: look at its tools, paths and grader",
            "nop": "the task gives a reward for nothing: mend its grader or leave it out",
        }[agent]
        raise PreflightFailed(
            f"task {task_id}: the {agent} agent got {reward!r} of rewards {rewards!r}, expected {expected:g}; {hint}"
        )
    return expected


def plain(error: str, message: str) -> str:
    """One line of a trial's exception."""
    lines = [line.strip() for line in message.strip().splitlines() if line.strip()]
    return f"{error}: {lines[-1] if lines else 'no message'}"[:600]


async def run_agent(agent: str, task_dir: Path, environment: dict[str, Any], work: Path) -> dict[str, Any] | None:
    """Run one of Harbor's reference agents on a task; the verifier's rewards.

    :raises PreflightFailed: the trial could not be run or graded.
    """
    from harbor.models.trial.config import AgentConfig, EnvironmentConfig, TaskConfig, TrialConfig
    from harbor.trial.trial import Trial

    config = TrialConfig(
        task=TaskConfig(path=task_dir.resolve()),
        agent=AgentConfig(name=agent),
        environment=EnvironmentConfig(**environment),
        trial_name=f"{agent}-{task_dir.name}"[:60],
        trials_dir=work / "trials",
    )
    try:
        trial = await Trial.create(config)
        result = await trial.run()
    except Exception as error:
        raise PreflightFailed(plain(type(error).__name__, str(error))) from None
    if result.exception_info is not None:
        raise PreflightFailed(plain(result.exception_info.exception_type, result.exception_info.exception_message))
    return result.verifier_result.rewards if result.verifier_result else None


def check_shape(row: TaskRow, task_dir: Path, sandbox: Sandbox) -> None:
    """Refuse what the bubblewrap sandbox cannot do and Harbor would only find out late.

    :raises PreflightFailed: a task of several steps.
    """
    import tomllib

    path = task_dir / "task.toml"
    try:
        config = tomllib.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise PreflightFailed(f"task {row.task_id}: {path} cannot be read: {error}") from None
    if sandbox.environment == BUBBLEWRAP and config.get("steps"):
        raise PreflightFailed(
            f"task {row.task_id}: it has several steps, which the bubblewrap sandbox does not do; set "
            "sandbox.environment to docker or podman for this suite"
        )


async def preflight(rows: Sequence[TaskRow], outdir: Path, sandbox: Sandbox, agents_dir: Path, work: Path) -> list[Any]:
    """Run both agents on each row's task; a record per task.

    :raises PreflightFailed: the first task that does not grade as it must.
    """
    environment = environment_settings(sandbox, agents_dir, work / "sandboxes", [])
    records = []
    for number, row in enumerate(rows, 1):
        task_dir = outdir / row.path
        check_shape(row, task_dir, sandbox)
        rewards: dict[str, float] = {}
        for agent in EXPECTED:
            print(f"preflight: task {number} of {len(rows)}, {row.task_id}, {agent}", file=sys.stderr, flush=True)
            problem, given = None, None
            try:
                given = await run_agent(agent, task_dir, environment, work)
            except PreflightFailed as error:
                problem = str(error)
            rewards[agent] = judge(row.task_id, agent, given, problem)
        records.append({"task_id": row.task_id, "task_sha256": row.sha256, **rewards})
    return records


def main(argv: list[str] | None = None) -> int:
    """Run the program; 1 if a task does not grade as it must."""
    parser = argparse.ArgumentParser(prog="scripts.preflight_suite", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--index", required=True, type=Path)
    parser.add_argument("--outdir", required=True, type=Path, help="folder that the index's paths are relative to")
    parser.add_argument("--settings", required=True, help="the section `sandbox`, as JSON or a file that holds it")
    parser.add_argument("--agents-dir", required=True, type=Path, help="folder whose node_modules holds the agents")
    parser.add_argument("--out", required=True, type=Path)
    args = parser.parse_args(argv)
    end_with_workflow()
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    logging.disable(logging.WARNING)
    try:
        sandbox = read_settings(Sandbox, args.settings)
        rows = read_index(args.index)
        if not rows:
            raise SuiteError(f"{args.index}: no task in it; widen the suite's selection")
        chosen = spread(rows, sandbox.preflight_tasks)
        with tempfile.TemporaryDirectory(prefix="preflight-") as work:
            records = asyncio.run(preflight(chosen, args.outdir, sandbox, args.agents_dir, Path(work)))
    except (ConfigError, SuiteError, PreflightFailed) as error:
        print(f"preflight_suite: {error}", file=sys.stderr)
        return 1
    result = {"suite": rows[0].suite, "sandbox": sandbox.environment, "tasks": records}
    write_atomic(args.out, json.dumps(result, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
