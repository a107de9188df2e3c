"""The verdict on an attempt, by the table of measured cases."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from scripts.rollout.outcome import broken, classify, rollout_of


def turn(**changes: Any) -> SimpleNamespace:
    fields = {
        "role": "agent",
        "discarded": False,
        "prompt_token_ids": [1, 2, 3],
        "completion_token_ids": [4, 5],
        "per_token_logps": [-0.1, -0.2],
        "loss_mask": [0, 0, 0, 1, 1],
        "text": "",
        "tool_calls": [{"name": "bash", "arguments": "{}"}],
        "finish_reason": "tool_calls",
        "sampling_params": {"temperature": 0.8},
        "request_messages": [],
        "request_tools": None,
    }
    return SimpleNamespace(**{**fields, **changes})


def report(**changes: Any) -> Any:
    fields: dict[str, Any] = {
        "reward": 1.0,
        "reward_file": {"correctness": 1.0},
        "rewards": {"correctness": 1.0},
        "n_turns": 2,
        "budget_stop_count": 0,
        "findings": [],
        "param_fixes": [],
        "upstream_errors": 0,
        "exception_type": None,
        "error": None,
        "turns": [turn(), turn(tool_calls=[], finish_reason="stop", text="Done.")],
        "conversations": [],
        "wall_s": 1.5,
        "harness_version": "1.6.0",
    }
    return SimpleNamespace(**{**fields, **changes})


TIMEOUT = {"exception_type": "AgentTimeoutError", "error": "timed out after 60 s"}


@pytest.mark.parametrize(
    ("changes", "stop"),
    [
        ({}, "finished"),
        ({"reward_file": {"correctness": 0.0}}, "finished"),
        ({"reward_file": {"reward": 0.0}}, "finished"),
        (TIMEOUT, "timeout"),
        ({"budget_stop_count": 1}, "call_budget"),
        ({"budget_stop_count": 1, "findings": ["[WARN] context_budget_exhausted: 400"]}, "context"),
        ({**TIMEOUT, "budget_stop_count": 1}, "timeout"),
        ({"findings": ["[WARN] multiple_roots: 2 roots"]}, "finished"),
    ],
)
def test_graded_attempts_are_scored(changes: dict[str, Any], stop: str) -> None:
    ending = classify(report(**changes))
    assert (ending.status, ending.stop, ending.error) == ("scored", stop, None)


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"n_turns": 0, "findings": ["[FATAL] no_turns: x"], "reward_file": {"correctness": 0.0}}, "NoTurns"),
        ({**TIMEOUT, "n_turns": 0, "reward_file": {"correctness": 0.0}}, "NoTurns"),
        ({"n_turns": 0, "reward_file": {}, "exception_type": "FileNotFoundError"}, "FileNotFoundError"),
        ({"reward_file": {}, "exception_type": "RewardFileNotFoundError"}, "RewardFileNotFoundError"),
        ({"reward_file": {}}, "Ungraded"),
        ({"reward_file": {"correctness": None, "reward": 1.0}}, "Ungraded"),
        ({"findings": ["[FATAL] turn_mismatch: 3 against 4"]}, "CaptureError"),
        ({"findings": ["[sequence ab] [FATAL] positive_logprob: 1"]}, "CaptureError"),
        ({"upstream_errors": 1}, "EngineError"),
        ({**TIMEOUT, "upstream_errors": 2}, "EngineError"),
    ],
)
def test_what_the_agent_is_not_to_blame_for_is_infrastructure(changes: dict[str, Any], kind: str) -> None:
    rollout = rollout_of(report(**changes))
    assert rollout.status == "infrastructure"
    assert rollout.error is not None
    assert rollout.error["type"] == kind
    assert (rollout.correctness, rollout.solved) == (None, None)


def test_crash_of_the_agent_that_was_graded_is_scored_and_named() -> None:
    ending = classify(report(exception_type="NonZeroAgentExitCodeError", error="exit 1"))
    assert (ending.status, ending.stop) == ("scored", "finished")
    assert ending.error == {"type": "NonZeroAgentExitCodeError", "message": "exit 1"}


def test_counts_come_from_the_agents_own_turns() -> None:
    turns = [
        turn(tool_calls=[{"name": "read"}, {"name": "bash"}]),
        turn(),
        turn(discarded=True),
        turn(role="auxiliary", tool_calls=[{"name": "title"}]),
    ]
    rollout = rollout_of(report(turns=turns, n_turns=4))
    assert rollout.tool_calls == 3
    assert rollout.tool_calls_by_name == {"bash": 2, "read": 1}
    assert (rollout.prompt_tokens, rollout.completion_tokens, rollout.model_calls) == (6, 4, 4)
    assert [entry["role"] for entry in rollout.turns] == ["agent", "agent", "discarded", "auxiliary"]


@pytest.mark.parametrize(("value", "solved"), [(1.0, True), (0.999, False), (0.0, False)])
def test_solved_is_full_correctness(value: float, solved: bool) -> None:
    assert rollout_of(report(reward_file={"correctness": value})).solved is solved


@pytest.mark.parametrize(
    ("changes", "flags"),
    [
        ({"turns": [turn(text="<tool_call>\n<function=bash>")]}, ["raw_tool_markup"]),
        ({"turns": [turn(text="I call bash now")]}, []),
        (
            {
                "conversations": [
                    SimpleNamespace(messages=[{"role": "assistant", "reasoning_content": "so <tool_call> {"}])
                ]
            },
            ["raw_tool_markup"],
        ),
        ({"conversations": [SimpleNamespace(messages=[{"role": "user", "content": "what is <tool_call>?"}])]}, []),
        ({"turns": [turn(finish_reason="length")]}, ["reply_cut"]),
        ({"param_fixes": ["dropped temperature"]}, ["request_altered"]),
        ({"reward_file": {"correctness": 1.0, "other": None}}, ["null_reward"]),
    ],
)
def test_flags(changes: dict[str, Any], flags: list[str]) -> None:
    assert rollout_of(report(**changes)).flags == flags


def test_no_report_is_infrastructure() -> None:
    rollout = broken("TimeoutError", "no answer", 12.0)
    assert (rollout.status, rollout.correctness, rollout.wall_s) == ("infrastructure", None, 12.0)
