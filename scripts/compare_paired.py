"""Compare an adapter with its base model on one suite, task by task.

    python -m scripts.compare_paired --base base.jsonl --adapter adapter.jsonl --out comparison.json

Each side is our JSONL of attempts, a Harbor job folder (trials with result.json), or OpenEnv rollout results.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from scripts.stats.comparison import Selection, compare
from scripts.stats.comparison_table import to_markdown
from scripts.stats.pairing import PairingError, Task
from scripts.study.config import Comparison as Settings
from scripts.study.config import ConfigError
from scripts.study.files import write_atomic
from scripts.study.foreign_results import read_results
from scripts.study.jobs import read_settings
from scripts.study.outcomes import OutcomesError
from scripts.study.suite_index import SuiteError, read_index


def _at_least(least: int) -> Callable[[str], int]:
    def whole_number(text: str) -> int:
        value = int(text)
        if value < least:
            raise argparse.ArgumentTypeError(f"{value}: give at least {least}")
        return value

    return whole_number


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m scripts.compare_paired", description=__doc__.splitlines()[0])
    parser.add_argument("--base", required=True, help="the base model's results")
    parser.add_argument("--adapter", required=True, help="the adapter's results")
    parser.add_argument("--out", required=True, help="comparison to write (JSON)")
    parser.add_argument("--index", help="the suite's index, for missing tasks, difficulty and source data sets")
    parser.add_argument("--settings", default="{}", help="the study's `comparison` section: JSON or a file with it")
    parser.add_argument(
        "--selected-on",
        choices=["validation", "heldout", "final", "unknown"],
        default="unknown",
        help="where the adapter's checkpoint was picked",
    )
    parser.add_argument(
        "--candidates", nargs="*", default=[], help="with heldout: all checkpoints' results on the suite"
    )
    parser.add_argument(
        "--candidate-count", type=_at_least(1), help="checkpoints that were looked at, if their results are not here"
    )
    parser.add_argument("--seed", type=_at_least(0), default=0, help="of the bootstraps (default 0)")
    parser.add_argument("--markdown", help="also write the figures as a Markdown table")
    parser.add_argument("--card", help="also write a card of this comparison (Markdown, pictures beside it)")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; 1 and one line on stderr where the results cannot be compared."""
    arguments = parse_arguments(argv)
    try:
        settings = read_settings(Settings, arguments.settings)
        tasks = None
        if arguments.index:
            index = read_index(arguments.index)
            tasks = [Task(row.task_id, row.difficulty, row.cluster, row.sha256, row.suite) for row in index]
        selection = Selection(
            arguments.selected_on, [read_results(path) for path in arguments.candidates], arguments.candidate_count
        )
        base, adapter = read_results(arguments.base), read_results(arguments.adapter)
        comparison = compare(base, adapter, settings, tasks, selection, arguments.seed)
    except (ConfigError, OutcomesError, PairingError, SuiteError) as error:
        print(error, file=sys.stderr)
        return 1
    table = to_markdown(comparison)
    try:
        write_atomic(arguments.out, comparison.model_dump_json(indent=1) + "\n")
        if arguments.markdown:
            write_atomic(arguments.markdown, table)
        if arguments.card:
            from scripts.card.render import render_comparison_card

            render_comparison_card(comparison.model_dump(mode="json"), Path(arguments.card))
    except OSError as error:
        print(f"{error.filename}: cannot be written: {error.strerror}", file=sys.stderr)
        return 1
    print(table, end="")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
