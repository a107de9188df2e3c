"""One rollout as TRL's worker sees it: a session that runs the real agent and hands over what the engine sampled."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from openenv.core.harness import ResourceSession, ResourceSessionFactory, ToolResult, VerifyResult
from openenv.core.harness.training import TrainingTrace
from openenv.harbor.contract import to_training_trace
from trl.experimental.async_grpo.openenv_harness import CaptureContractError

from scripts.rollout.outcome import Rollout
from scripts.study.config import Training
from scripts.training.records import Line, append_line
from scripts.training.rewards import training_reward


class SamplingMismatch(CaptureContractError):
    """The engine sampled otherwise than the trainer computes: importance ratios would be wrong on every token."""


class Client(Protocol):
    """The part of :class:`scripts.rollout.client.RolloutClient` that is used here."""

    def run(self, dataset: Path, task_id: str, model: str) -> Rollout: ...


class RolloutSession(ResourceSession):
    """Runs the agent on one task with one version of the policy, and leaves a line in the record of rollouts.

    :param client: client of the rollout server.
    :param suites: folder of the suites.
    :param task: ``(suite, task_id)``.
    :param model: name at the engine, and the optimizer steps behind that policy.
    :param rollout_id: name of this rollout.
    :param training: rewards and token budget.
    :param sampling: the sampling that the trainer computes log-probabilities for.
    :param record: file that gets the line.
    """

    pause_s = 1.0
    """Seconds that a lost rollout holds its place, so that a broken server does not get thousands of calls."""

    def __init__(
        self,
        client: Client,
        suites: Path,
        task: tuple[str, str],
        model: tuple[str, int],
        rollout_id: str,
        training: Training,
        sampling: dict[str, float | int],
        record: Path,
    ) -> None:
        self._client, self._suites, self._task, self._model = client, suites, task, model
        self._rollout_id, self._training, self._sampling, self._record = rollout_id, training, sampling, record
        self._trace = TrainingTrace(turns=[])
        self._reward: float | None = None
        self._closed = False

    def wait_for_completion(self, timeout_s: float | None = None) -> int:
        """Run the agent to its end. Whatever goes wrong is recorded, and the rollout then has nothing to train on.

        :return: 0 for a rollout that can be trained on, else 1.
        :raises SamplingMismatch: no rollout of this run could be trained on.
        """
        started = time.time()
        suite, task_id = self._task
        try:
            rollout = self._client.run(self._suites / suite, task_id, self._model[0])
        except Exception as error:  # a lost rollout must not end the training
            if not self._closed:
                self._append(None, started, None, {"type": type(error).__name__, "message": str(error)[:500]})
                time.sleep(self.pause_s)
            return 1
        dropped = None
        if rollout.status == "scored":
            self._reward = training_reward(
                rollout.correctness, rollout.tool_calls, self._training.bonus_weight, self._training.bonus_calls
            )
            self._trace, dropped = trainable_trace(rollout.result, self._sampling, self._training.token_budget)
        if not self._closed:
            self._append(rollout, started, dropped, rollout.error)
            if rollout.status != "scored":
                time.sleep(self.pause_s)
        return 0 if self._reward is not None and dropped is None else 1

    def fetch_training_trace(self) -> TrainingTrace:
        """The engine's own ids and log-probabilities of the agent's turns; none if it cannot be trained on."""
        return self._trace

    def verify(self, transcript: list[Any], final_state: Any | None = None) -> VerifyResult:
        """The training reward; none without a grade."""
        return VerifyResult(env_reward=self._reward if self._trace.turns else None, done=True)

    def close(self) -> None:
        """End of the session; a rollout still in flight is not recorded, since we end it, not the policy."""
        self._closed = True

    def initial_messages(self) -> list[Any]:
        """None: the agent asks."""
        return []

    def list_tools(self) -> list[Any]:
        """None: the agent has its own."""
        return []

    def call_tool(self, name: str, arguments: dict[str, Any]) -> ToolResult:
        """Refused: the agent calls its tools itself."""
        return ToolResult(error="the agent owns its loop")

    def _append(self, rollout: Rollout | None, started: float, dropped: str | None, error: Any) -> None:
        line: Line = {
            "id": self._rollout_id,
            "t": time.time(),
            "suite": self._task[0],
            "task_id": self._task[1],
            "policy_version": self._model[1],
            "reward": self._reward,
            "correctness": rollout.correctness if rollout else None,
            "tool_calls": rollout.tool_calls if rollout else None,
            "model_calls": rollout.model_calls if rollout else None,
            "status": rollout.status if rollout else "failed",
            "stop": rollout.stop if rollout else None,
            "error": error,
            "dropped": dropped,
            "prompt_tokens": rollout.prompt_tokens if rollout else None,
            "completion_tokens": rollout.completion_tokens if rollout else None,
            "wall_s": round(rollout.wall_s if rollout else time.time() - started, 3),
            "harness_version": rollout.harness_version if rollout else None,
        }
        append_line(self._record, line)


def trainable_trace(
    result: Any, sampling: dict[str, float | int], token_budget: int
) -> tuple[TrainingTrace, str | None]:
    """What a scored rollout can be trained on.

    :param result: OpenEnv's ``HarborRolloutResult``.
    :param sampling: the sampling that the trainer computes log-probabilities for.
    :param token_budget: longest sequence, in tokens, that fits into a micro-batch.
    :return: the trace, and None; or an empty trace and why: ``no_tokens``, ``capture`` or ``too_long``.
    :raises SamplingMismatch: a turn was sampled otherwise.
    """
    empty = TrainingTrace(turns=[])
    if result is None or result.rollout_type != "train":
        return empty, "no_tokens"
    try:
        trace = to_training_trace(result)
    except (ValueError, TypeError, KeyError):  # pydantic's own errors are ValueErrors
        return empty, "capture"
    if not trace.turns:
        return empty, "no_tokens"
    for turn in trace.turns:
        if len(turn.per_token_logps) != len(turn.completion_token_ids):
            return empty, "capture"
        check_sampling(turn.metadata.get("sampling_params") or {}, sampling)
    if max(len(turn.prompt_token_ids) + len(turn.completion_token_ids) for turn in trace.turns) > token_budget:
        return empty, "too_long"
    return trace, None


def check_sampling(used: dict[str, Any], wanted: dict[str, float | int]) -> None:
    """Compare the sampling that reached the engine with the one that the trainer computes for.

    :raises SamplingMismatch: names the key and both values.
    """
    for key, value in wanted.items():
        found = used.get(key, None if key == "temperature" else value)
        off = {0, -1} if key == "top_k" else set()
        if found != value and not {found, value} <= off:
            raise SamplingMismatch(f"the engine sampled with {key} {found}, the trainer computes for {value}")


class SessionFactory(ResourceSessionFactory):
    """Makes the sessions of a training run, in the worker's process.

    :param client: makes the client of the rollout server.
    :param suites: folder of the suites.
    :param training: rewards and token budget.
    :param record: file that gets a line per rollout.
    :param sampling: set by TRL's worker, from the trainer's own settings.
    """

    def __init__(
        self,
        client: Callable[[], Client],
        suites: Path,
        training: Training,
        record: Path,
        sampling: dict[str, float | int],
    ) -> None:
        self._client, self._suites, self._training, self._record = client(), suites, training, record
        self._sampling = sampling
        self.current_policy: Callable[[], tuple[str, int]] | None = None
        """Name at the engine and optimizer steps of the policy of the moment; the worker sets it."""

    def create(self, task: Any, seed: int | None = None, episode_id: str | None = None) -> RolloutSession:
        """A session for the task that the dataset's prompt names as ``suite/task_id``."""
        if self.current_policy is None or episode_id is None:
            raise RuntimeError("the worker did not say which policy to sample from; every rollout would be the base's")
        suite, _, task_id = task[-1]["content"].partition("/")
        return RolloutSession(
            client=self._client,
            suites=self._suites,
            task=(suite, task_id),
            model=self.current_policy(),
            rollout_id=episode_id,
            training=self._training,
            sampling=self._sampling,
            record=self._record,
        )
