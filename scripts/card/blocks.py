"""The commands and files in a card, found again in its text, so that they can be tried as they stand."""

from __future__ import annotations

import re
from dataclasses import dataclass

_BLOCK = re.compile(
    r"^<!-- block: (?P<name>[a-z0-9-]+) -->\n+```(?P<language>[a-z]+)\n(?P<text>.*?)\n```$", re.M | re.S
)


@dataclass(frozen=True)
class Block:
    """One code block."""

    name: str
    language: str
    text: str


def read_blocks(markdown: str) -> dict[str, Block]:
    """Code blocks of a card by name: those that follow a ``<!-- block: name -->`` line.

    :raises ValueError: two blocks have one name.
    """
    blocks: dict[str, Block] = {}
    for match in _BLOCK.finditer(markdown):
        block = Block(match["name"], match["language"], match["text"])
        if block.name in blocks:
            raise ValueError(f"two blocks are named {block.name}")
        blocks[block.name] = block
    return blocks
