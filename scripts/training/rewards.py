"""The training reward of one rollout. The evaluation never uses it."""

from __future__ import annotations

import math

SOLVED_FROM = 1.0
"""Correctness from which a task counts as solved, in training as in evaluation."""


def training_reward(correctness: float | None, tool_calls: int, bonus_weight: float, bonus_calls: int) -> float | None:
    """Reward of a rollout: correctness, and for a solved task a bonus for few tool calls.

    ``correctness + bonus_weight * clip(1 - tool_calls / bonus_calls, 0, 1)``; the bonus only if the task is solved.

    :param correctness: the verifier's grade; None if there is none.
    :param tool_calls: tool calls in the captured agent turns, at least 0.
    :param bonus_weight: largest bonus, for no call at all.
    :param bonus_calls: tool calls from which on there is no bonus, at least 1.
    :return: the reward, or None for a rollout without grade, which must not be trained on.
    :raises ValueError: a grade that is not finite, or a negative count.
    """
    if tool_calls < 0:
        raise ValueError(f"tool_calls is {tool_calls}; a count cannot be negative")
    if bonus_calls < 1:
        raise ValueError(f"bonus_calls is {bonus_calls}; it must be at least 1")
    if correctness is None:
        return None
    if not math.isfinite(correctness):
        raise ValueError(f"correctness is {correctness}; a grade must be finite")
    if correctness < SOLVED_FROM:
        return correctness
    return correctness + bonus_weight * min(1.0, max(0.0, 1.0 - tool_calls / bonus_calls))
