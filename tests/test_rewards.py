"""Reading of the verifier's reward file."""

from __future__ import annotations

import pytest

from scripts.rollout.rewards import RewardFileError, correctness_of, parse_reward_file


def test_null_stays_null_and_one_bad_key_loses_no_other() -> None:
    kept, refused = parse_reward_file(
        '{"correctness": 1, "efficiency": null, "a": NaN, "b": 1e309, "c": "x", "d": [1], "e": true}'
    )
    assert kept == {"correctness": 1.0, "efficiency": None, "e": 1.0}
    assert refused == [
        "a: nan is not finite",
        "b: inf is not finite",
        "c: 'x' is not a number",
        "d: [1] is not a number",
    ]


@pytest.mark.parametrize("text", ["", "{", '{"correctness": null}', '{"correctness": NaN}', "[]", "null", '"1"', "{}"])
def test_file_without_a_finite_number_is_an_error(text: str) -> None:
    with pytest.raises(RewardFileError):
        parse_reward_file(text)


def test_bare_number_is_the_reward() -> None:
    assert parse_reward_file("0.5") == ({"reward": 0.5}, [])


def test_correctness_goes_before_reward_and_its_null_is_no_zero() -> None:
    assert correctness_of({"correctness": 0.0, "reward": 1.0}) == 0.0
    assert correctness_of({"reward": 0.25, "other": 1.0}) == 0.25
    assert correctness_of({"correctness": None, "reward": 1.0}) is None
    assert correctness_of({"other": 1.0}) is None
