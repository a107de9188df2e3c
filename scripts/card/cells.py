"""Cells and rows of a card's tables."""

from __future__ import annotations

from scripts.card.facts import Checkpoint
from scripts.card.formats import change, percent, plain, points, probability, span
from scripts.card.wording import SMALL, difference
from scripts.stats.records import Calls, Comparison


def selection_rows(checkpoint: Checkpoint) -> list[tuple[str, str, str, str]]:
    """(step, n, rate, tool calls) of each checkpoint that was looked at; empty where they are not known."""
    return [
        (
            str(candidate.step),
            str(candidate.n),
            percent(candidate.rate_percent),
            "–" if candidate.tool_calls is None else plain(candidate.tool_calls, 2),
        )
        for candidate in checkpoint.candidates
    ]


def call_cell(calls: Calls) -> str:
    """``-37% (112 tasks)``, with the interval where there is one."""
    if calls.change_percent is None:
        return "–"
    tasks = f"{calls.tasks} tasks" if calls.tasks is not None else "tasks both solved"
    interval = span(calls.low_percent, calls.high_percent, "%")
    return f"{change(calls.change_percent)} ({tasks}{'; ' + interval if interval != '–' else ''})"


def difference_cell(comparison: Comparison) -> str:
    """The difference with its headline interval, and the score interval beside it where n is small."""
    text = difference(comparison)
    if comparison.n < SMALL and comparison.intervals.get("tango"):
        text += f" (score interval {interval_cell(comparison, 'tango')})"
    return text


def interval_cell(comparison: Comparison, name: str) -> str:
    """One interval in points, or a dash."""
    interval = comparison.intervals.get(name)
    return span(interval.low_points, interval.high_points) if interval else "–"


def table_cell(comparison: Comparison) -> str:
    """The counts of the 2×2 table, or a dash."""
    table = comparison.table
    return f"{table.both} / {table.base_only} / {table.adapter_only} / {table.neither}" if table else "–"


def evidence_rows(comparisons: list[Comparison]) -> list[list[str]]:
    """Rows of the table of what the numbers can show: a label and a cell for each comparison."""
    main = comparisons[0]

    def intervals(label: str, name: str) -> list[str]:
        return [label, *(interval_cell(comparison, name) for comparison in comparisons)]

    rows = [
        ["Both solved / base only / adapter only / neither", *map(table_cell, comparisons)],
        intervals("Normal interval (the ± above)", "normal"),
        intervals("Tango score interval", "tango"),
    ]
    if any(
        comparison.clusters and comparison.intervals["cluster"].low_points is not None for comparison in comparisons
    ):
        rows.append(intervals("Cluster-robust interval, by source data set", "cluster"))
    return [
        *rows,
        ["McNemar, exact p", *(probability(comparison.mcnemar.exact) for comparison in comparisons)],
        ["McNemar, mid-p", *(probability(comparison.mcnemar.midp) for comparison in comparisons)],
        [
            f"Smallest difference found with {percent(100 * main.power.power, 0)} power",
            *map(detectable_cell, comparisons),
        ],
        [f"At most {plain(main.non_inferiority.margin_points, 0)} points worse", *map(margin_cell, comparisons)],
    ]


def detectable_cell(comparison: Comparison) -> str:
    """Minimum detectable effect in points, or a dash."""
    detectable = comparison.power.detectable_points
    return "–" if detectable is None else f"{plain(detectable)} points"


def margin_cell(comparison: Comparison) -> str:
    """Whether the adapter is shown to be no worse than the margin."""
    test = comparison.non_inferiority
    if test.shown is None:
        return "–"
    lower = f"lower bound {points(test.lower_points)}"
    return f"shown ({lower})" if test.shown else f"not shown ({lower})"
