"""Make the folders that the Hub repositories of one adapter would hold: the adapter's, and that of its GGUF files.

    python -m scripts.prepare_publish --card results/card_pi/card.json --outdir results \\
        --out results/publish/pi --out-gguf results/publish/pi-gguf
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from scripts.card.facts import CardError, read_card
from scripts.card.publish import check_published, prepare_adapter, prepare_gguf
from scripts.study.files import folder_written_whole


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; 0, or 1 after an error that was printed."""
    parser = argparse.ArgumentParser(description="Make the folders that the Hub repositories would hold.")
    parser.add_argument("--card", type=Path, required=True, help="card.json, with the pictures beside it")
    parser.add_argument("--outdir", type=Path, required=True, help="folder of the study's outputs")
    parser.add_argument("--out", type=Path, required=True, help="folder of the adapter's repository")
    parser.add_argument("--out-gguf", type=Path, help="folder of the GGUF repository, where the card has one")
    options = parser.parse_args(argv)
    root = Path(__file__).resolve().parent.parent
    try:
        card = read_card(options.card)
        if (card.gguf is None) != (options.out_gguf is None):
            raise CardError(f"{options.card}: {'no' if card.gguf is None else 'a'} GGUF part; see --out-gguf")
        with folder_written_whole(options.out) as folder:
            prepare_adapter(card, options.outdir, options.card.parent, options.card, folder)
            check_published(folder, root, options.outdir)
        if options.out_gguf:
            with folder_written_whole(options.out_gguf) as folder:
                prepare_gguf(card, options.outdir, folder)
                check_published(folder, root, options.outdir)
    except CardError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
