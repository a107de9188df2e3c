import math

import pytest

from scripts.training.rewards import training_reward


@pytest.mark.parametrize(
    ("correctness", "tool_calls", "expected"),
    [
        (1.0, 0, 1.1),
        (1.0, 3, 1.08),
        (1.0, 14, 1.0 + 0.1 / 15),
        (1.0, 15, 1.0),
        (1.0, 400, 1.0),
        (0.0, 0, 0.0),
        (0.0, 3, 0.0),
        (0.999, 0, 0.999),
        (-0.5, 0, -0.5),
        (2.0, 15, 2.0),
    ],
)
def test_bonus_goes_to_solved_tasks_only(correctness, tool_calls, expected):
    assert training_reward(correctness, tool_calls, 0.1, 15) == pytest.approx(expected)


def test_no_grade_is_no_reward_rather_than_zero():
    assert training_reward(None, 2, 0.1, 15) is None


def test_fewer_calls_never_pay_less():
    paid = [training_reward(1.0, calls, 0.1, 15) for calls in range(40)]
    assert paid == sorted(paid, reverse=True)


def test_any_solved_rollout_beats_any_failed_one():
    assert training_reward(1.0, 10_000, 0.1, 15) > training_reward(0.0, 0, 0.1, 15)


def test_without_weight_the_reward_is_the_grade():
    assert training_reward(1.0, 1, 0.0, 15) == 1.0


@pytest.mark.parametrize("grade", [math.nan, math.inf, -math.inf])
def test_a_grade_that_is_no_number_is_refused(grade):
    with pytest.raises(ValueError, match="must be finite"):
        training_reward(grade, 1, 0.1, 15)


def test_impossible_counts_are_refused():
    with pytest.raises(ValueError, match="cannot be negative"):
        training_reward(1.0, -1, 0.1, 15)
    with pytest.raises(ValueError, match="at least 1"):
        training_reward(1.0, 1, 0.1, 0)
