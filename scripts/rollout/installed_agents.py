"""Harbor agents that take the command-line agent as installed in the sandbox. Needs the harbor environment."""

from __future__ import annotations

import json
import shlex
from typing import Any

from harbor.environments.base import BaseEnvironment
from openenv.harbor.install_fixes import MODELS_JSON, InterceptPi, build_models_json

from scripts.rollout.agents import CONTEXT_WINDOW, HARNESSES, AgentMissing
from scripts.rollout.sandboxes import BUBBLEWRAP


def models_json(base_url: str, api_key: str, model: str, max_output_tokens: int | None) -> str:
    """pi's ``models.json``: OpenEnv's, with the limits that pi would otherwise guess wrongly for a local model."""
    config = json.loads(build_models_json(base_url, api_key, model))
    for provider in config["providers"].values():
        for entry in provider["models"]:
            entry["contextWindow"] = CONTEXT_WINDOW
            if max_output_tokens is not None:
                entry["maxTokens"] = max_output_tokens
    return json.dumps(config, indent=2)


class InstalledPi(InterceptPi):
    """pi as installed in the sandbox.

    :param max_output_tokens: tokens in one reply; pi's own default if None.
    """

    def __init__(self, *args: Any, max_output_tokens: int | None = None, **kwargs: Any) -> None:
        self._max_output_tokens = max_output_tokens
        super().__init__(*args, **kwargs)

    async def install(self, environment: BaseEnvironment) -> None:
        """Check that the command is there; a sandbox that has a network and no pi installs it as Harbor does.

        :raises AgentMissing: the bubblewrap sandbox has no such command.
        """
        command = HARNESSES["pi"].command
        found = await environment.exec(f"command -v {command}")
        if found.return_code == 0:
            return
        if environment.type() == BUBBLEWRAP:
            raise AgentMissing(f"the sandbox has no command `{command}`; build the agents' environment")
        await super().install(environment)

    def get_version_command(self) -> str | None:
        """Command that prints the version, with or without a node that nvm installed."""
        return f". ~/.nvm/nvm.sh 2>/dev/null; {HARNESSES['pi'].version_command}"

    async def setup(self, environment: BaseEnvironment) -> None:
        """Point pi at the capture proxy."""
        await super().setup(environment)
        config = self._intercept_config
        text = models_json(config["base_url"], config["api_key"], config["model"], self._max_output_tokens)
        await self.exec_as_agent(environment, command=f"printf %s {shlex.quote(text)} > {MODELS_JSON}")
