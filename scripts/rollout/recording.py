"""From a rollout to its record and its trace."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts.rollout.attempting import Item
from scripts.rollout.outcome import Rollout
from scripts.study.attempts import Attempt, AttemptError
from scripts.study.files import folder_written_whole, write_atomic
from scripts.study.jobs import RUNNING, EvaluateJob


class VersionsDiffer(RuntimeError):
    """What ran is not what is installed; the message names both versions."""


@dataclass(frozen=True)
class Measured:
    """A policy to be measured."""

    place: str
    """`base`, `selected` or `step-<n>`: the folder of its results."""
    policy: str
    """`base` or `step-<n>`: its name in rows."""
    adapter: Path | None
    """Folder of the adapter; None for the base."""
    sha256: str
    """Hash over the base's files, or over base and adapter together."""
    base_model: str
    """Hub id of the base model."""

    @property
    def served_name(self) -> str | None:
        """Name of the adapter at the engine; None for the base."""
        return None if self.adapter is None else f"evaluated-{self.policy}-{self.sha256[:12]}"


@dataclass(frozen=True)
class Conditions:
    """Under which attempts are made: the same for all policies of a job."""

    harness: str
    harness_version: str
    sampling: dict[str, Any]
    limits: dict[str, Any]
    engine: dict[str, Any]
    sandbox: dict[str, Any]

    def identity(self, job: EvaluateJob, measured: Measured) -> dict[str, Any]:
        """All that a result depends on apart from its task: what a journal's fingerprint is taken over."""
        engine = job.engine.model_dump(mode="json", exclude=RUNNING["engine"])
        return {
            "policy": measured.policy,
            "policy_sha256": measured.sha256,
            "base_model": measured.base_model,
            "harness": self.harness,
            "harness_version": self.harness_version,
            "sampling": self.sampling,
            "limits": self.limits,
            "engine": {**engine, "name": self.engine["name"], "version": self.engine["version"]},
            "serving": job.serving.model_dump(mode="json"),
            "sandbox": self.sandbox,
            "recipe_version": job.evaluation.recipe_version,
        }


def conditions(job: EvaluateJob, harness_version: str, engine: dict[str, Any], sandbox: dict[str, Any]) -> Conditions:
    """Conditions of a job.

    :param harness_version: of the installed agent.
    :param engine: name, version and flags.
    :param sandbox: versions to be recorded beside the sandbox's settings.
    """
    rollout = job.rollout
    return Conditions(
        harness=job.harness,
        harness_version=harness_version,
        sampling={
            "temperature": rollout.temperature,
            "top_p": rollout.top_p,
            "top_k": rollout.top_k,
            "max_output_tokens": rollout.max_output_tokens,
            "enable_thinking": job.serving.enable_thinking,
        },
        limits={
            "call_budget": rollout.call_budget,
            "agent_timeout_s": rollout.agent_timeout_s,
            "verifier_timeout_s": rollout.verifier_timeout_s,
        },
        engine=engine,
        sandbox={"environment": job.sandbox.environment, "options": dict(job.sandbox.options), **sandbox},
    )


class Recorder:
    """Makes rows of one policy's rollouts and keeps their traces.

    :param work: folder for traces until :func:`publish_traces`; one for each fingerprint, so that the traces of
        two measurements never mix.
    """

    def __init__(self, measured: Measured, under: Conditions, work: Path) -> None:
        self.measured = measured
        self.under = under
        self.work = work

    def trajectory(self, item: Item) -> str:
        """Path of an attempt's trace, relative to the results folder."""
        return f"traces/{self.under.harness}/{self.measured.place}/{item.task.suite}/{trace_name(item)}"

    def __call__(self, item: Item, outcome: Rollout, infrastructure_tries: int) -> Attempt:
        """The row of a try; its trace is on disk when this returns.

        :raises VersionsDiffer: another version of the agent ran than the one that is installed.
        """
        common: dict[str, Any] = {
            "suite": item.task.suite,
            "task_id": item.task.task_id,
            "task_sha256": item.task.sha256,
            "attempt": item.attempt,
            "harness": self.under.harness,
            "harness_version": self.under.harness_version,
            "policy": self.measured.policy,
            "policy_sha256": self.measured.sha256,
            "base_model": self.measured.base_model,
            "sampling": self.under.sampling,
            "limits": self.under.limits,
            "engine": self.under.engine,
            "sandbox": self.under.sandbox,
            "infrastructure_tries": infrastructure_tries,
        }
        if outcome.harness_version and outcome.harness_version != self.under.harness_version:
            raise VersionsDiffer(
                f"{self.under.harness} {outcome.harness_version} ran in the sandbox, but {self.under.harness_version} "
                "is installed; build the agents' environment anew"
            )
        trajectory = None
        if outcome.turns:
            trajectory = self.trajectory(item)
            write_atomic(self.work / item.task.suite / trace_name(item), trace(outcome))
        return Attempt(
            **common,
            status=outcome.status,
            solved=outcome.solved if outcome.status == "scored" else None,
            rewards=outcome.rewards,
            stop=outcome.stop,
            tool_calls=outcome.tool_calls,
            tool_calls_by_name=outcome.tool_calls_by_name,
            model_calls=outcome.model_calls,
            prompt_tokens=outcome.prompt_tokens,
            completion_tokens=outcome.completion_tokens,
            wall_s=outcome.wall_s,
            error=None if outcome.error is None else AttemptError(**outcome.error),
            flags=sorted(outcome.flags),
            trajectory=trajectory,
        )


def trace_name(item: Item) -> str:
    """File name of an attempt's trace."""
    return f"{item.task.task_id}-{item.attempt}.json"


def trace(outcome: Rollout) -> str:
    """The captured turns as JSON: a list with token ids, log-probabilities, text and tool calls of each."""
    return json.dumps(outcome.turns, ensure_ascii=False)


def publish_traces(rows: Sequence[Attempt], work: Path, outdir: Path) -> list[Attempt]:
    """Put the traces of a suite's rows at the places that the rows name, all at once.

    Files are linked where the file system can, so that they take no space twice.

    :param rows: rows of one suite and policy.
    :param work: the recorder's folder.
    :return: the rows; those whose trace is gone from the work folder have a null trajectory.
    """
    published: list[Attempt] = []
    named = [row for row in rows if row.trajectory]
    if not named:
        return list(rows)
    folder = (outdir / str(named[0].trajectory)).parent
    with folder_written_whole(folder) as fresh:
        for row in rows:
            if row.trajectory is None:
                published.append(row)
                continue
            name = Path(row.trajectory).name
            source = work / row.suite / name
            if source.is_file():
                _link(source, fresh / name)
                published.append(row)
            else:
                published.append(row.model_copy(update={"trajectory": None}))
    return published


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
