"""Gather the facts of a model card from a study's outputs.

python -m scripts.collect_card --study study.json --outdir results --harness pi --out results/card_pi/card.json
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import yaml

from scripts.card.collect import collect
from scripts.card.facts import CardError, write_card
from scripts.study.config import ConfigError, Study, parse_study


def read_study(text: str) -> Study:
    """A study from JSON text, or from a JSON or YAML file.

    :raises ConfigError: one line per fault.
    """
    if text.lstrip().startswith("{"):
        return parse_study(json.loads(text), "--study")
    try:
        return parse_study(yaml.safe_load(Path(text).read_text(encoding="utf-8")), text)
    except (OSError, yaml.YAMLError) as error:
        raise ConfigError(f"--study {text}: {error}; give JSON or an existing file") from None


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; 0, or 1 after an error that was printed."""
    parser = argparse.ArgumentParser(description="Gather the facts of a model card.")
    parser.add_argument("--study", required=True, help="the study's config: JSON, or a JSON or YAML file")
    parser.add_argument("--outdir", type=Path, required=True, help="folder of the study's outputs")
    parser.add_argument("--harness", required=True)
    parser.add_argument("--config", default="config/config.yaml", help="config file as the card names it")
    parser.add_argument("--out", type=Path, required=True, help="card.json")
    options = parser.parse_args(argv)
    try:
        card = collect(read_study(options.study), options.outdir, options.harness, options.config)
    except (ConfigError, CardError) as error:
        print(error, file=sys.stderr)
        return 1
    write_card(card, options.out)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
