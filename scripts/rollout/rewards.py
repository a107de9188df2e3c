"""The verifier's reward file, read so that one bad key does not lose the others.

Harbor refuses a whole file for a single null, and a null must become neither 0 nor false: it says "not measured".
"""

from __future__ import annotations

import json
import math
from typing import Any


class RewardFileError(ValueError):
    """The file holds no usable reward; the message says why."""


def parse_reward_file(text: str) -> tuple[dict[str, float | None], list[str]]:
    """Read reward.json.

    :return: the keys whose values are finite numbers or null, and a message for each key that is refused.
    :raises RewardFileError: not JSON, not a number or an object, or not one finite number in it.
    """
    try:
        data: Any = json.loads(text)
    except ValueError as error:
        raise RewardFileError(f"not JSON: {error}") from None
    if not isinstance(data, dict):
        data = {"reward": data}
    kept: dict[str, float | None] = {}
    refused: list[str] = []
    for key, value in data.items():
        if value is None:
            kept[key] = None
        elif not isinstance(value, int | float):
            refused.append(f"{key}: {value!r} is not a number")
        elif not math.isfinite(value):
            refused.append(f"{key}: {value!r} is not finite")
        else:
            kept[key] = float(value)
    if not any(value is not None for value in kept.values()):
        raise RewardFileError("no key with a finite number" + ("; " + "; ".join(refused) if refused else ""))
    return kept, refused


def correctness_of(rewards: dict[str, float | None]) -> float | None:
    """The headline reward: ``correctness`` where that key exists, else ``reward``; null says that it isn't measured."""
    return rewards["correctness"] if "correctness" in rewards else rewards.get("reward")
