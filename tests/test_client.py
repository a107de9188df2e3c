"""The parts of the rollout client that need no server."""

from __future__ import annotations

import pytest

from scripts.rollout.client import REMOTE_SLACK_S, SLACK_S, RolloutClient, deadline_of, sampling_of
from scripts.study.config import ConfigError, Rollout, Sandbox


def test_sampling_is_sent_with_every_request() -> None:
    assert sampling_of(Rollout(temperature=0.7)) == {"temperature": 0.7}


@pytest.mark.parametrize(
    ("settings", "key"), [({"temperature": 0.0}, "temperature"), ({"top_p": 0.9}, "top_p"), ({"top_k": 20}, "top_k")]
)
def test_sampling_that_cannot_be_recomputed_is_refused(settings: dict[str, float], key: str) -> None:
    with pytest.raises(ConfigError, match=key):
        RolloutClient("http://127.0.0.1:1", "pi", Sandbox(), Rollout(**settings))


def test_deadline_covers_agent_verifier_and_sandbox() -> None:
    limits = Rollout(agent_timeout_s=10.0, verifier_timeout_s=5.0)
    assert deadline_of(Sandbox(), limits) == 15.0 + SLACK_S
    assert deadline_of(Sandbox(environment="docker"), limits) == 15.0 + REMOTE_SLACK_S
