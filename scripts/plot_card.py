"""Draw the pictures of a model card from its facts.

python -m scripts.plot_card --card results/card_pi/card.json --outdir results/card_pi
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from scripts.card.facts import CardError, possible_pictures, read_card
from scripts.card.plots import PICTURES, draw
from scripts.card.render import render_tables


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; 0, or 1 after an error that was printed."""
    parser = argparse.ArgumentParser(description="Draw the pictures of a model card from its facts.")
    parser.add_argument("--card", type=Path, required=True, help="card.json")
    parser.add_argument("--outdir", type=Path, required=True, help="folder of the pictures")
    parser.add_argument(
        "--pictures", nargs="+", choices=list(PICTURES), help="names; without it, all that the facts allow"
    )
    parser.add_argument("--tables", type=Path, help="also write the card's tables as HTML, for the workflow's report")
    options = parser.parse_args(argv)
    try:
        card = read_card(options.card)
        for name in options.pictures or possible_pictures(card):
            draw(card, name, options.outdir / f"{name}.png")
        if options.tables:
            options.tables.write_text(render_tables(card), encoding="utf-8")
    except CardError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
