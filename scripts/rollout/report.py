"""What the rollout server answers with: OpenEnv's result and what that leaves out.

Needs openenv; imported on both sides of the wire, so that they cannot disagree.
"""

from __future__ import annotations

from openenv.harbor.models import HarborRolloutResult
from pydantic import Field


class RolloutReport(HarborRolloutResult):
    """OpenEnv's result of one rollout, with the facts that are lost when its session is deleted."""

    upstream_errors: int = Field(0, description="Engine errors that the capture proxy saw during the session.")
    reward_file: dict[str, float | None] = Field(
        default_factory=dict, description="The verifier's numbers and nulls; keys with anything else are in findings."
    )
    harness_version: str = Field("", description="Version of the agent as installed.")
