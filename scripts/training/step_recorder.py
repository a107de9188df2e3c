"""Joins what the trainer and the worker know into a line per optimizer step, in the trainer's process."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Mapping
from statistics import fmean
from typing import Any

from scripts.training.plan import Plan
from scripts.training.records import Line, LineTail, append_line, causes


class NoProgress(RuntimeError):
    """No rollout that can be trained on came for too long; the message says what came instead."""


class StepRecorder:
    """Follows rollouts from their end to the optimizer step that trains on them.

    :param plan: files and limits.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._tail = LineTail(plan.rollouts)
        self._tail.read()  # what an earlier run left cannot be trained on any more
        self._lines: dict[str, Line] = {}
        self._ended: list[Line] = []
        self._packed: deque[list[tuple[str, bool]]] = deque()
        self._trained: list[tuple[str, bool]] = []
        self._counted: set[str] = set()
        self._alive_at = time.monotonic()
        self._step_began = time.monotonic()

    def begin(self) -> None:
        """The training begins: clocks start here."""
        self._alive_at = self._step_began = time.monotonic()

    def packed(self, samples: list[tuple[str, float]]) -> None:
        """A micro-batch was made of these samples, as (rollout, advantage); micro-batches are trained in order."""
        self._packed.append([(rollout_id, advantage != 0.0) for rollout_id, advantage in samples])
        self._alive_at = time.monotonic()

    def trained(self) -> None:
        """The oldest micro-batch was trained on."""
        self._trained += self._packed.popleft()

    def check_progress(self) -> None:
        """Raise :class:`NoProgress` if nothing to train on came for ``training.no_progress_timeout_s``."""
        fresh = self._read()
        if any(line["status"] == "scored" and not line["dropped"] for line in fresh):
            self._alive_at = time.monotonic()
        limit = self._plan.job.training.no_progress_timeout_s
        if time.monotonic() - self._alive_at > limit:
            scored, unscored, failed = causes(self._ended)
            raise NoProgress(
                f"no rollout to train on for {limit:.0f} s (training.no_progress_timeout_s); since the last step "
                f"{scored} were graded, {_listed(unscored)} had no grade, {_listed(failed)} failed or were dropped; "
                "see the logs of the engine and of the rollout server"
            )

    def write(self, step: int, logs: Mapping[str, Any]) -> Line:
        """Append the line of a finished step.

        :param step: optimizer steps so far.
        :param logs: what TRL logged for it.
        """
        self._read()
        ids = list(dict.fromkeys(rollout_id for rollout_id, _ in self._trained if rollout_id not in self._counted))
        rollouts = [self._lines.pop(rollout_id) for rollout_id in ids]
        staleness = [step - 1 - line["policy_version"] for line in rollouts]
        scored, unscored, failed = causes(self._ended)
        now = time.monotonic()
        line: Line = {
            "step": step,
            "t": time.time(),
            "reward": _mean(rollouts, "reward"),
            "correctness": _mean(rollouts, "correctness"),
            "tool_calls": _mean(rollouts, "tool_calls"),
            "model_calls": _mean(rollouts, "model_calls"),
            "staleness_mean": fmean(staleness) if staleness else None,
            "staleness_max": max(staleness, default=None),
            "importance_ratio": _number(logs.get("ratio")),
            "kl": _number(logs.get("kl")),
            "entropy": _number(logs.get("entropy")),
            "loss": _number(logs.get("loss")),
            "grad_norm": _number(logs.get("grad_norm")),
            "learning_rate": _number(logs.get("learning_rate")),
            "rollouts": len(rollouts),
            "informative": fmean(told for _, told in self._trained) if self._trained else None,
            "scored": scored,
            "unscored": unscored,
            "failed": failed,
            "stale_dropped": int(logs.get("sample/dropped_stale_total") or 0),
            "forks": _number(logs.get("rollout/fork_frac")),
            "tokens": int(logs.get("batch/trained_tokens_per_step") or 0),
            "seconds": round(now - self._step_began, 3),
            "wait_s": _number(logs.get("perf/rollout_wait_s")),
            "compute_s": _number((logs.get("perf/fwd_bwd_s") or 0.0) + (logs.get("perf/optimizer_s") or 0.0)),
            "sync_s": _number(logs.get("perf/weight_sync_s")),
            "rollout_ids": ids,
        }
        append_line(self._plan.steps, line)
        self._counted.update(ids)
        self._trained, self._ended, self._step_began = [], [], now
        return line

    def _read(self) -> list[Line]:
        fresh = self._tail.read()
        for line in fresh:
            self._lines[line["id"]] = line
        self._ended += fresh
        return fresh


def _mean(rollouts: list[Line], field: str) -> float | None:
    values = [line[field] for line in rollouts if line[field] is not None]
    return fmean(values) if values else None


def _number(value: Any) -> float | None:
    """A finite float, or None: records hold no NaN."""
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} ({cause})" for cause, count in counts.items()) or "none"
