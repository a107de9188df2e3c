"""How each coding agent is pointed at a served model: data for the card, one entry per harness."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

# pi starts to summarise a session when less than this is left of `contextWindow` (docs/settings.md of pi,
# compaction.reserveTokens), and cuts each reply to what is left.
PI_RESERVE = 16384


@dataclass(frozen=True)
class HarnessUse:
    """What a user needs to run an agent with a model served by us."""

    title: str
    url: str
    package: str
    install_flags: str
    needs: str
    config_path: str
    config: Callable[[str, str, int, int | None], dict[str, Any]]
    """(model, base URL, context, output limit or None) -> the config file's JSON."""
    notes: Callable[[int, int | None], list[str]]
    """(context, output limit or None) -> what matters in that file, and why."""
    run: Callable[[str, str], str]
    """(model, question) -> shell command."""
    plugin: Callable[[str], str] | None = None
    """(model) -> shell commands that use the agent's own llama.cpp plugin."""

    def install(self, version: str | None) -> str:
        """Shell command that installs the agent, in the version that was used where it is known."""
        pin = f"@{version}" if version else ""
        return " ".join(part for part in ("npm install -g", self.install_flags, self.package + pin) if part)

    def config_text(self, model: str, base_url: str, context: int, output: int | None) -> str:
        """Text of the config file."""
        return json.dumps(self.config(model, base_url, context, output), indent=2)


def pi_window(context: int) -> int:
    """`contextWindow` for an engine's context: with less than pi's reserve on top, a small engine's sessions would be
    summarised from the first turn on, and replies cut."""
    return context if context >= 2 * PI_RESERVE else context + PI_RESERVE


def _pi_config(model: str, base_url: str, context: int, output: int | None) -> dict[str, Any]:
    entry: dict[str, Any] = {"id": model, "contextWindow": pi_window(context)}
    if output is not None:
        entry["maxTokens"] = output
    return {
        "providers": {
            "local": {"baseUrl": base_url, "api": "openai-completions", "apiKey": "dummy", "models": [entry]},
        }
    }


def _pi_notes(context: int, output: int | None) -> list[str]:
    notes = [
        'Keep `"api": "openai-completions"`. Without it pi talks to the Responses API, and this adapter was neither '
        "trained nor evaluated that way."
    ]
    if pi_window(context) != context:
        notes.append(
            f"`contextWindow` is the engine's {context:,} tokens plus the {PI_RESERVE:,} that pi keeps free for "
            "summaries; with less, pi would summarise from the first turn on."
        )
    if output is not None:
        notes.append(f"`maxTokens` is the limit of one reply in training and evaluation, {output:,} tokens.")
    return notes


def _opencode_config(model: str, base_url: str, context: int, output: int | None) -> dict[str, Any]:
    entry = {} if output is None else {"limit": {"context": context, "output": output}}
    return {
        "$schema": "https://opencode.ai/config.json",
        "provider": {
            "local": {
                "npm": "@ai-sdk/openai-compatible",
                "options": {"baseURL": base_url, "apiKey": "dummy"},
                "models": {model: entry},
            }
        },
    }


def _quote(question: str) -> str:
    """A shell word, in double quotes where that needs no escape."""
    return f'"{question}"' if not set(question) & set('"$`\\!\n') else shlex.quote(question)


HARNESS_USE: dict[str, HarnessUse] = {
    "pi": HarnessUse(
        title="pi",
        url="https://github.com/earendil-works/pi",
        package="@earendil-works/pi-coding-agent",
        install_flags="--ignore-scripts",
        needs="Node.js 22.19 or newer",
        config_path="~/.pi/agent/models.json",
        config=_pi_config,
        notes=_pi_notes,
        run=lambda model, question: f"pi --provider local --model {model} --print {_quote(question)}",
        plugin=lambda model: f"pi install git:github.com/huggingface/pi-llama\npi --model llama-cpp/{model}",
    ),
    "opencode": HarnessUse(
        title="OpenCode",
        url="https://github.com/sst/opencode",
        package="opencode-ai",
        install_flags="",
        needs="Node.js",
        config_path="~/.config/opencode/opencode.json",
        config=_opencode_config,
        notes=lambda context, output: [],
        run=lambda model, question: f"opencode run -m local/{model} {_quote(question)}",
    ),
}
"""Every harness that a card can be rendered for."""
