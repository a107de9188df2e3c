"""Gather the facts of a published card, so that the same templates and pictures can show it.

    python -m scripts.collect_reported_card --reported config/reported.yaml --tables results/reported/tables.json \\
        --harness pi --out results/reported/card_pi/card.json
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from scripts.card.facts import CardError, write_card
from scripts.card.reported import collect_reported
from scripts.derive_reported import read_reported
from scripts.stats.reported_tables import FoundTables
from scripts.study.config import ConfigError, explain


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; 0, or 1 after an error that was printed."""
    parser = argparse.ArgumentParser(description="Gather the facts of a published card.")
    parser.add_argument("--reported", required=True, help="config/reported.yaml, or its content as JSON")
    parser.add_argument("--tables", type=Path, required=True, help="tables.json of scripts.derive_reported")
    parser.add_argument("--harness", required=True)
    parser.add_argument("--config", default="config/reported.yaml", help="config file as the card names it")
    parser.add_argument("--out", type=Path, required=True, help="card.json")
    options = parser.parse_args(argv)
    try:
        found = FoundTables.model_validate_json(options.tables.read_text(encoding="utf-8"))
        card = collect_reported(read_reported(options.reported), found, options.harness, options.config)
    except ValidationError as error:
        print(explain(error, str(options.tables)), file=sys.stderr)
        return 1
    except (ConfigError, CardError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    write_card(card, options.out)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
