"""Experts' sessions as the messages of a coding agent, after that agent's recorded first request.

The prompts belong to the agents and change with their versions, so they are recorded when the policy is built and not
kept here. To teach the policy another agent, add its format to :data:`FORMATS`.
"""

from __future__ import annotations

import json
import random
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from scripts.demo.experts import Bash, Session, Step

Message = dict[str, Any]

INSTALL_FOLDERS = ("/opt/agents", "/usr/lib", "/usr/local/lib", "/opt/pi", "/home/user/.npm-global/lib")
WORKING_FOLDERS = ("/workdir", "/workdir", "/workdir", "/tmp/run", "/home/user/work", "/app")


class PromptError(ValueError):
    """A recorded request cannot be used; the message names the file and what to do."""


@dataclass(frozen=True)
class RecordedRequest:
    """An agent's first request, as recorded: its system prompt and its tools."""

    harness: str
    version: str
    system: str
    tools: tuple[dict[str, Any], ...]


class Format(Protocol):
    """How an agent shows a step to the model."""

    def call(self, step: Step) -> tuple[str, dict[str, Any], str]:
        """Name of the tool, its arguments, and the text of its result."""
        ...


class PiFormat:
    """Calls and results as pi 1.6 shows them."""

    def call(self, step: Step) -> tuple[str, dict[str, Any], str]:
        """See :class:`Format`."""
        if isinstance(step, Bash):
            text = step.output or "(no output)"
            if step.failed:
                text += "\n\nCommand exited with code 1"
            return "bash", {"command": step.command}, text
        note = f"\n[{step.left} more lines in file. Use offset={step.lines + 1} to continue.]"
        return "read", {"path": step.path, "limit": step.lines}, step.content + note


FORMATS: dict[str, Format] = {"pi": PiFormat()}
"""Format of each agent that the policy can be taught."""


def read_request(path: Path | str) -> RecordedRequest:
    """Read a recorded request.

    :raises PromptError: unreadable, of an unknown agent, or without system prompt or tools.
    """
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
        request = data["request"]
        harness, version = str(data["harness"]), str(data["harness_version"])
        system = next(text_of(m["content"]) for m in request["messages"] if m["role"] in ("system", "developer"))
        tools = tuple(request["tools"])
    except (OSError, ValueError, KeyError, TypeError, StopIteration) as error:
        raise PromptError(f"{path}: no recorded request ({type(error).__name__}: {error}); record it anew") from None
    if harness not in FORMATS:
        raise PromptError(f"{path}: the demo policy cannot be taught {harness!r}; known: {', '.join(FORMATS)}")
    return RecordedRequest(harness, version, system, tools)


def text_of(content: str | list[dict[str, Any]]) -> str:
    """The text of a message's content."""
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


def vary_folders(rng: random.Random, system: str) -> str:
    """A system prompt as it would read with the agent installed, and the task lying, elsewhere."""
    folder = rng.choice(INSTALL_FOLDERS)
    system = re.sub(r"/[^\s<>]*?(?=/node_modules/)", folder, system)
    return system.replace("/workdir", rng.choice(WORKING_FOLDERS))


def shorten(rng: random.Random, system: str) -> str:
    """A system prompt with lines dropped at random: cheap to train on, and it teaches not to lean on the rest."""
    keep = 0.5 * rng.random() ** 2
    return "\n".join(line for line in system.split("\n") if rng.random() < keep)


def opening(instruction: str, system: str) -> list[Message]:
    """The messages of an agent's first request."""
    return [{"role": "system", "content": system}, {"role": "user", "content": instruction}]


def turn(harness: str, step: Step) -> list[Message]:
    """A call and its result, as the agent shows them to the model in its next request."""
    tool, arguments, result = FORMATS[harness].call(step)
    function = {"name": tool, "arguments": arguments}
    return [
        {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": function}]},
        {"role": "tool", "content": result},
    ]


def messages(session: Session, harness: str, system: str, end: str = "") -> list[Message]:
    """A session as the messages that the agent's model sees, the last being the model's own farewell.

    :param system: the system prompt, the recorded one or a variation.
    :param end: what follows the instruction: some agents keep the line break at the end of its file, some do not.
    """
    shown = opening(session.task.instruction() + end, system)
    for step in session.steps:
        shown += turn(harness, step)
    return [*shown, {"role": "assistant", "content": session.farewell}]
