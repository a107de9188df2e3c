"""The coding agents that a study can measure, and how each one is wired to the capture proxy.

The registry imports nothing heavy; `install_seams` needs the harbor environment.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

# Larger than any engine's: an agent that believes its context is nearly full shortens its replies, or compacts the
# conversation in a model call of another kind, which must be neither trained nor counted.
CONTEXT_WINDOW = 1_000_000


@dataclass(frozen=True)
class Harness:
    """A coding agent.

    :param name: name in a study's config and OpenEnv's name of its seam.
    :param package: npm package that the agents' environment pins.
    :param command: what starts it in a sandbox.
    :param import_path: our Harbor agent, which takes the command as installed; ``module:Class``.
    :param provider: name of the capture proxy in the agent's own configuration, the prefix of the model's name.
    :param title: how a card calls it.
    """

    name: str
    package: str
    command: str
    import_path: str
    provider: str
    title: str

    @property
    def version_command(self) -> str:
        """Shell command that prints the version."""
        return f"{self.command} --version"


HARNESSES: dict[str, Harness] = {
    "pi": Harness(
        name="pi",
        package="@earendil-works/pi-coding-agent",
        command="pi",
        import_path="scripts.rollout.installed_agents:InstalledPi",
        provider="intercept",
        title="pi",
    ),
}


class AgentMissing(RuntimeError):
    """An agent is not installed; the message names the folder and what to do."""


def installed_version(agents_dir: Path, harness: str) -> str:
    """Version of an agent as installed below ``agents_dir``.

    :raises AgentMissing: its package is not there.
    """
    package = HARNESSES[harness].package
    manifest = agents_dir / "node_modules" / package / "package.json"
    try:
        return str(json.loads(manifest.read_text())["version"])
    except (OSError, ValueError, KeyError):
        raise AgentMissing(f"{manifest}: {package} is not installed; build the agents' environment") from None


def install_seams(max_output_tokens: int) -> None:
    """Make OpenEnv run the installed agents instead of installing them anew in every sandbox.

    Call it once, before the server starts. Needs the harbor environment.

    :param max_output_tokens: tokens in one reply, told to agents that take it from their configuration.
    """
    from dataclasses import replace
    from typing import Any

    from openenv.harbor import seams

    for harness in HARNESSES.values():
        stock = seams.SEAMS[harness.name]

        def configured(base_url: str, session: str, model: str, stock: Any = stock) -> dict[str, Any]:
            known = stock.kwargs(base_url, session, model) if stock.kwargs else {}
            return {**known, "max_output_tokens": max_output_tokens}

        seams.SEAMS[harness.name] = replace(stock, import_path=harness.import_path, kwargs=configured)
