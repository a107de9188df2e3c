"""How an attempt ended, and what is kept of it.

There are two kinds of ending here: ``scored``, if the verifier's grade stands, and ``infrastructure``, if anything but
the agent is to blame. A third kind, ``missing``, exists only in comparisons. Nothing here needs torch or a server.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from scripts.rollout.rewards import correctness_of

Status = Literal["scored", "infrastructure"]
Stop = Literal["finished", "call_budget", "timeout", "context"]

RAW_TOOL_MARKUP = re.compile(r"</?tool_call>|<function=|</?function_calls?>|<\|tool_call|\[TOOL_CALLS\]")
"""Tool calls that a parser left in the text; the agent does not act on them."""
AGENT_TIMEOUT = "AgentTimeoutError"


class Report(Protocol):
    """The part of :class:`scripts.rollout.report.RolloutReport` that is read here."""

    reward: float | None
    reward_file: dict[str, float | None]
    rewards: dict[str, float]
    n_turns: int
    budget_stop_count: int
    findings: list[str]
    param_fixes: list[str]
    upstream_errors: int
    exception_type: str | None
    error: str | None
    turns: list[Any]
    conversations: list[Any]
    wall_s: float
    harness_version: str


@dataclass(frozen=True)
class Ending:
    """Verdict on one attempt; ``stop`` is how the agent's loop ended, None where that is unknown."""

    status: Status
    stop: Stop | None
    error: dict[str, str] | None


@dataclass
class Rollout:
    """One attempt as the programs see it.

    ``rewards`` are the verifier's values as they came (null stays None); ``correctness`` and ``solved`` are None unless
    scored. Token counts are the engine's, over the agent's turns. ``turns`` hold, per model call, ``role``,
    ``prompt_token_ids``, ``completion_token_ids``, ``logprobs``, ``loss_mask``, ``text``, ``tool_calls``,
    ``finish_reason``, ``sampling``, ``messages`` and ``tools``. ``result`` is OpenEnv's, for training traces; None if
    no answer came.
    """

    status: Status
    stop: Stop | None
    error: dict[str, str] | None
    rewards: dict[str, float | None] = field(default_factory=dict)
    correctness: float | None = None
    solved: bool | None = None
    tool_calls: int = 0
    tool_calls_by_name: dict[str, int] = field(default_factory=dict)
    model_calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    wall_s: float = 0.0
    flags: list[str] = field(default_factory=list)
    harness_version: str = ""
    turns: list[dict[str, Any]] = field(default_factory=list)
    result: Any = None


def classify(report: Report) -> Ending:
    """Sort an attempt by its facts.

    Infrastructure is: no grade, no captured turn, a capture that contradicts itself (``[FATAL``), or an engine that
    failed in mid-run, where even a reward of 1 says nothing. All else is scored, time-outs and spent budgets included.
    """
    stop = _stop(report)
    fatal = next((finding for finding in report.findings if "[FATAL" in finding), None)
    if report.upstream_errors > 0:
        cause = "EngineError", f"{report.upstream_errors} failed calls to the engine"
    elif report.n_turns == 0:
        cause = "NoTurns", fatal or "the agent never reached the engine"
    elif fatal is not None:
        cause = "CaptureError", fatal
    elif correctness_of(report.reward_file) is None:
        cause = "Ungraded", "the verifier gave no number for correctness or reward"
    else:
        known = report.exception_type and report.exception_type != AGENT_TIMEOUT
        error = {"type": str(report.exception_type), "message": str(report.error or "")} if known else None
        return Ending("scored", stop, error)
    kind, message = cause
    if report.exception_type and report.exception_type != AGENT_TIMEOUT:
        kind, message = report.exception_type, f"{report.error or ''} ({message})"
    elif report.error and report.error not in message:
        message = f"{message}: {report.error}"
    return Ending("infrastructure", stop if report.n_turns else None, {"type": kind, "message": message})


def rollout_of(report: Report) -> Rollout:
    """Everything that is kept of a report."""
    ending = classify(report)
    turns = [turn for turn in report.turns if turn.role == "agent" and not turn.discarded]
    calls = Counter(str(call.get("name") or "") for turn in turns for call in turn.tool_calls)
    correctness = correctness_of(report.reward_file) if ending.status == "scored" else None
    return Rollout(
        status=ending.status,
        stop=ending.stop,
        error=ending.error,
        rewards=dict(report.reward_file),
        correctness=correctness,
        solved=None if correctness is None else correctness >= 1.0,
        tool_calls=calls.total(),
        tool_calls_by_name=dict(sorted(calls.items())),
        model_calls=report.n_turns,
        prompt_tokens=sum(len(turn.prompt_token_ids) for turn in turns),
        completion_tokens=sum(len(turn.completion_token_ids) for turn in turns),
        wall_s=report.wall_s,
        flags=flags_of(report),
        harness_version=report.harness_version,
        turns=[_turn(turn) for turn in report.turns],
        result=report,
    )


def broken(kind: str, message: str, wall_s: float = 0.0) -> Rollout:
    """An attempt of which no report came: always infrastructure."""
    return Rollout("infrastructure", None, {"type": kind, "message": message}, wall_s=wall_s)


def flags_of(report: Report) -> list[str]:
    """What a reader of the numbers should know, sorted: words, no sentences."""
    flags = set()
    if any(RAW_TOOL_MARKUP.search(text) for text in _answers(report)):
        flags.add("raw_tool_markup")
    if any(turn.finish_reason == "length" for turn in report.turns):
        flags.add("reply_cut")
    if report.param_fixes:
        flags.add("request_altered")
    if any(value is None for value in report.reward_file.values()):
        flags.add("null_reward")
    if any(finding.startswith("[WARN] reward") for finding in report.findings):
        flags.add("reward_refused")
    return sorted(flags)


def _stop(report: Report) -> Stop:
    if report.exception_type == AGENT_TIMEOUT:
        return "timeout"
    if any("context_budget_exhausted" in finding for finding in report.findings):
        return "context"
    return "call_budget" if report.budget_stop_count > 0 else "finished"


def _answers(report: Report) -> list[str]:
    """Texts and reasoning of the model's own messages."""
    texts = [turn.text for turn in report.turns]
    for conversation in report.conversations:
        for message in conversation.messages:
            if message.get("role") == "assistant":
                texts += [message.get(key) for key in ("content", "reasoning_content", "reasoning")]
    return [text for text in texts if isinstance(text, str)]


def _turn(turn: Any) -> dict[str, Any]:
    return {
        "role": "discarded" if turn.discarded else turn.role,
        "prompt_token_ids": list(turn.prompt_token_ids),
        "completion_token_ids": list(turn.completion_token_ids),
        "logprobs": list(turn.per_token_logps),
        "loss_mask": turn.loss_mask,
        "text": turn.text,
        "tool_calls": list(turn.tool_calls),
        "finish_reason": turn.finish_reason,
        "sampling": dict(turn.sampling_params),
        "messages": list(turn.request_messages),
        "tools": turn.request_tools,
    }
