"""Render a model card from its facts.

python -m scripts.render_card --card results/card_pi/card.json --images card_pi/ --out results/card_pi.md
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from scripts.card.facts import CardError, read_card
from scripts.card.render import render_card


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; 0, or 1 after an error that was printed."""
    parser = argparse.ArgumentParser(description="Render a model card from its facts.")
    parser.add_argument("--card", type=Path, required=True, help="card.json")
    parser.add_argument("--images", default="", help="folder of the pictures as seen from the card, with a slash")
    parser.add_argument("--out", type=Path, required=True, help="the card")
    options = parser.parse_args(argv)
    try:
        text = render_card(read_card(options.card), options.images)
    except CardError as error:
        print(error, file=sys.stderr)
        return 1
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
