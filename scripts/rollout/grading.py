"""Harbor's verifier, except that it reads the reward file key by key. Runs in the harbor environment."""

from __future__ import annotations

from harbor.verifier.verifier import RewardFileEmptyError, Verifier, VerifierOutputParseError

from scripts.rollout.rewards import RewardFileError, parse_reward_file


class KeywiseVerifier(Verifier):
    """Named by import path in each trial's config; null keys are left to :mod:`scripts.rollout.server` to report."""

    def _parse_reward_json(self) -> dict[str, float | int]:
        path = self.trial_paths.reward_json_path
        text = path.read_text()
        if not text.strip():
            raise RewardFileEmptyError(f"Reward file is empty at {path}")
        try:
            kept, _ = parse_reward_file(text)
        except RewardFileError as error:
            raise VerifierOutputParseError(f"{path}: {error}") from None
        return {key: value for key, value in kept.items() if value is not None}
