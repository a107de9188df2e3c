"""Client of the rollout server: tasks by name, one attempt at a time per call, and nothing raised for a bad attempt.

Usable from several threads at once. Connections are kept and used again, one attempt at a time each; a connection that
failed is thrown away, so that a hung server costs one time-out per attempt and no more.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from pathlib import Path
from typing import Any

from scripts.rollout.outcome import Rollout, broken, rollout_of
from scripts.study.config import ConfigError, Sandbox
from scripts.study.config import Rollout as RolloutConfig

ALIAS = "policy"
SLACK_S = 120.0
"""Seconds beyond the agent's and the verifier's limits for start and end of a local sandbox."""
REMOTE_SLACK_S = 900.0
"""The same where a sandbox may have to be built or fetched."""
MAX_MESSAGE_MB = 4096
REWARD_KEYS = "correctness,reward"


class RolloutClient:
    """Runs attempts on a rollout server.

    :param url: the server's address.
    :param harness: the coding agent's name.
    :param sandbox: where its commands run.
    :param rollout: limits and sampling.
    :raises ConfigError: sampling that the trainer could not recompute.
    """

    def __init__(self, url: str, harness: str, sandbox: Sandbox, rollout: RolloutConfig) -> None:
        self.url = url.rstrip("/")
        self.harness = harness
        self.sandbox = sandbox
        self.rollout = rollout
        self.sampling = sampling_of(rollout)
        self.deadline_s = deadline_of(sandbox, rollout)
        self._idle: list[Any] = []
        self._lock = threading.Lock()
        self._tasks: dict[str, dict[str, int]] = {}

    def tasks(self, dataset: Path | str) -> dict[str, int]:
        """Index of each task on the server, by task id (the name of its folder).

        :param dataset: a folder that the server was started with.
        """
        key = _split(dataset)
        with self._lock:
            known = self._tasks.get(key)
        if known is None:
            with self._connection() as env:
                found = env.get_task_range(key, 0, 10**6)
            known = {task.task_name: task.index for task in found}
            if len(known) != len(found):
                raise ValueError(f"{key}: two tasks have the same folder name; task ids must be unique in a suite")
            with self._lock:
                self._tasks[key] = known
        return known

    def run(self, dataset: Path | str, task_id: str, model: str = ALIAS) -> Rollout:
        """Run one attempt; a failure of any part but the agent is a Rollout with status ``infrastructure``.

        :param dataset: a folder that the server was started with.
        :param task_id: name of the task's folder.
        :param model: name at the engine: ``policy`` for the base, or an adapter's; the agent always sees ``policy``.
        :raises KeyError: the suite has no such task.
        """
        started = time.monotonic()
        try:
            tasks = self.tasks(dataset)
        except Exception as error:
            return broken(type(error).__name__, f"rollout server: {error}", time.monotonic() - started)
        if task_id not in tasks:
            raise KeyError(f"{task_id}: no such task in {dataset} ({len(tasks)} tasks)")
        try:
            with self._connection() as env:
                report = self._call(env, _split(dataset), tasks[task_id], model)
        except Exception as error:  # whatever went wrong between the server and us says nothing about the policy
            return broken(type(error).__name__, f"rollout server: {error}"[:600], time.monotonic() - started)
        return rollout_of(report)

    def close(self) -> None:
        """Close the idle connections."""
        with self._lock:
            idle, self._idle = self._idle, []
        for env in idle:
            with contextlib.suppress(Exception):
                env.close()

    def __enter__(self) -> RolloutClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _call(self, env: Any, split: str, index: int, model: str) -> Any:
        from scripts.rollout.report import RolloutReport

        answer = env._call(
            "run_rollout",
            split=split,
            task_index=index,
            harness=self.harness,
            sandbox=self.sandbox.environment,
            reward_key=REWARD_KEYS,
            model=model,
            agent_timeout_sec=self.rollout.agent_timeout_s,
            agent_step_limit=self.rollout.call_budget,
            sampling=self.sampling,
        )
        return RolloutReport.model_validate_json(_text(answer))

    @contextlib.contextmanager
    def _connection(self) -> Any:
        from openenv.harbor.client import HarborEnv

        with self._lock:
            env = self._idle.pop() if self._idle else None
        if env is None:
            env = HarborEnv(
                base_url=self.url, message_timeout_s=self.deadline_s, max_message_size_mb=float(MAX_MESSAGE_MB)
            )
        try:
            yield env
        except BaseException:
            threading.Thread(target=_close_quietly, args=(env,), daemon=True).start()
            raise
        with self._lock:
            self._idle.append(env)


def sampling_of(rollout: RolloutConfig) -> dict[str, float]:
    """Sampling as the capture proxy sends it with every request, the same in training and evaluation.

    :raises ConfigError: greedy or truncated sampling, whose log-probabilities a trainer cannot recompute.
    """
    if why := rollout.untrainable():
        raise ConfigError(why)
    return {"temperature": rollout.temperature}


def deadline_of(sandbox: Sandbox, rollout: RolloutConfig) -> float:
    """Seconds after which an attempt without an answer is given up."""
    slack = SLACK_S if sandbox.environment == "bubblewrap" else REMOTE_SLACK_S
    return rollout.agent_timeout_s + rollout.verifier_timeout_s + slack


def _split(dataset: Path | str) -> str:
    return str(Path(dataset).resolve())


def _text(answer: Any) -> str:
    """The text of an MCP tool's answer, in whichever of its shapes it came."""
    if isinstance(answer, str):
        return answer
    if isinstance(answer, dict):
        content = answer.get("content")
        return _text(content[0]["text"] if isinstance(content, list) and content else json.dumps(answer))
    if isinstance(answer, list) and answer:
        first = answer[0]
        return str(first["text"] if isinstance(first, dict) else first.text)
    raise TypeError(f"unexpected answer of the rollout server: {type(answer).__name__}")


def _close_quietly(env: Any) -> None:
    with contextlib.suppress(Exception):
        env.close()
