"""Derive the published results tables again from the counts that they imply.

python -m scripts.derive_reported --reported config/reported.yaml --out tables.md --json tables.json
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import yaml

from scripts.stats.reported_tables import ReportedTablesError, find_tables, to_markdown
from scripts.study.config import ConfigError
from scripts.study.files import write_atomic
from scripts.study.reported import Reported, parse_reported


def read_reported(text: str) -> Reported:
    """The published facts from JSON text, or from a YAML or JSON file.

    :raises ConfigError: one line per fault.
    """
    if text.lstrip().startswith("{"):
        return parse_reported(json.loads(text), "--reported")
    try:
        data = yaml.safe_load(Path(text).read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError) as error:
        raise ConfigError(f"--reported {text}: {error}; give an existing file") from None
    return parse_reported(data, text)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; 1 and one line on stderr where a row cannot be derived."""
    parser = argparse.ArgumentParser(prog="python -m scripts.derive_reported", description=__doc__.splitlines()[0])
    parser.add_argument("--reported", required=True, help="config/reported.yaml, or its content as JSON")
    parser.add_argument("--out", required=True, help="tables to write (Markdown)")
    parser.add_argument("--json", required=True, help="tables and comparisons to write (JSON)")
    arguments = parser.parse_args(argv)
    try:
        reported = read_reported(arguments.reported)
        found = find_tables(reported)
    except (ConfigError, ReportedTablesError) as error:
        print(error, file=sys.stderr)
        return 1
    write_atomic(arguments.json, found.model_dump_json(indent=1) + "\n")
    write_atomic(arguments.out, to_markdown(reported, found))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
