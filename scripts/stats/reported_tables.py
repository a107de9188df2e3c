"""Find the 2×2 tables behind a printed row, and print the row again from them.

A results row gives n, both rates, the difference with the half-width of the paired normal interval, and how many tasks
both solved, all rounded. A table is consistent with the row if it prints every figure again, digit for digit.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from scripts.stats import estimates, paired
from scripts.stats.paired import Table
from scripts.stats.records import Bounds, Calls, Comparison, Optimism, Record, Side, Source
from scripts.stats.records import Table as TableRecord
from scripts.study.reported import Reported, ReportedCard, ReportedRow


class ReportedTablesError(ValueError):
    """No table fits a row; the message names the row and the nearest tables."""


class Printed(NamedTuple):
    """The figures of a row that depend on the table."""

    base: str
    adapter: str
    difference: str


class FoundRow(Record):
    """A published row, the tables that fit it, and the comparison that follows."""

    harness: str
    step: int
    printed: dict[str, str | int]
    tables: list[TableRecord]
    """Tables that print the row, told that so many tasks were solved by both."""
    tables_without_both_solved: list[TableRecord]
    """Tables that print the row, not told that."""
    unique: bool
    unique_without_both_solved: bool
    reprinted: dict[str, str | int]
    """The row, printed from the first table."""
    comparison: Comparison


class FoundTables(Record):
    """What ``tables.json`` holds."""

    schema_version: int = 1
    rows: list[FoundRow]


def reprint(table: Table, confidence: float = 0.95) -> Printed:
    """A row's figures from its table, rounded as the cards round."""
    limits = paired.normal(table, confidence)
    if limits.low is None or limits.high is None or table.difference is None:
        half = "0.0"
    else:
        half = f"{50 * (limits.high - limits.low):.1f}"
    return Printed(
        f"{100 * (table.both + table.base_only) / table.n:.1f}%",
        f"{100 * (table.both + table.adapter_only) / table.n:.1f}%",
        f"{100 * (table.difference or 0):+.1f} ± {half}",
    )


def candidate_tables(n: int, solved_base: int, solved_adapter: int) -> Iterator[Table]:
    """All tables with these margins."""
    for both in range(max(0, solved_base + solved_adapter - n), min(solved_base, solved_adapter) + 1):
        yield Table(both, solved_base - both, solved_adapter - both, n - solved_base - solved_adapter + both)


def consistent_tables(row: ReportedRow, confidence: float = 0.95) -> list[Table]:
    """Every table that prints the row's rates and difference, whatever number of tasks both solved."""
    wanted = Printed(row.base, row.adapter, row.difference)
    bases = [k for k in range(row.n + 1) if f"{100 * k / row.n:.1f}%" == row.base]
    adapters = [k for k in range(row.n + 1) if f"{100 * k / row.n:.1f}%" == row.adapter]
    return [
        table
        for x in bases
        for y in adapters
        for table in candidate_tables(row.n, x, y)
        if reprint(table, confidence) == wanted
    ]


def nearest_tables(row: ReportedRow, confidence: float = 0.95, count: int = 3) -> list[tuple[Table, Printed]]:
    """The tables of n pairs that come nearest to the printed figures, by the sum of the errors in points."""
    centre, half = (float(part) for part in row.difference.split(" ± "))
    base, adapter = float(row.base[:-1]), float(row.adapter[:-1])
    near_base = sorted(range(row.n + 1), key=lambda k: abs(100 * k / row.n - base))[:5]
    near_adapter = sorted(range(row.n + 1), key=lambda k: abs(100 * k / row.n - adapter))[:5]
    ranked = []
    for x in near_base:
        for y in near_adapter:
            for table in candidate_tables(row.n, x, y):
                limits = paired.normal(table, confidence)
                width = 0.0 if limits.low is None or limits.high is None else 50 * (limits.high - limits.low)
                error = abs(100 * x / row.n - base) + abs(100 * y / row.n - adapter) + abs(width - half)
                error += abs(100 * (y - x) / row.n - centre) + 100 / row.n * abs(table.both - row.both_solved)
                ranked.append((error, table))
    return [(table, reprint(table, confidence)) for _, table in sorted(ranked)[:count]]


def find_row(reported: Reported, harness: str, number: int) -> FoundRow:
    """Tables and comparison of one published row.

    :param number: place of the row in its card, from 0.
    :raises ReportedTablesError: no table fits; names the row and the nearest tables.
    """
    card, row = reported.cards[harness], reported.cards[harness].rows[number]
    confidence = reported.comparison.confidence
    loose = consistent_tables(row, confidence)
    strict = [table for table in loose if table.both == row.both_solved]
    if not strict:
        nearest = "; ".join(
            f"{t.both}/{t.base_only}/{t.adapter_only}/{t.neither} prints {p.base}, {p.adapter}, {p.difference}"
            for t, p in nearest_tables(row, confidence)
        )
        raise ReportedTablesError(
            f"cards.{harness}.rows.{number} ({row.suite}): no table of {row.n} pairs prints {row.base}, {row.adapter}, "
            f"{row.difference} with {row.both_solved} solved by both; nearest (both/base only/adapter only/neither): "
            f"{nearest}. Check the row's figures"
        )
    again = reprint(strict[0], confidence)
    return FoundRow(
        harness=harness,
        step=card.step,
        printed=row.model_dump(),
        tables=[TableRecord(**table._asdict()) for table in strict],
        tables_without_both_solved=[TableRecord(**table._asdict()) for table in loose],
        unique=len(strict) == 1,
        unique_without_both_solved=len(loose) == 1,
        reprinted={
            "suite": row.suite,
            "n": strict[0].n,
            **again._asdict(),
            "calls": f"{row.calls_percent:+.0f}%",
            "both_solved": strict[0].both,
        },
        comparison=comparison_of(reported, harness, card, row, strict[0]),
    )


def find_tables(reported: Reported) -> FoundTables:
    """All rows of all cards.

    :raises ReportedTablesError: of the first row that no table fits.
    """
    rows = [
        find_row(reported, name, number) for name, card in reported.cards.items() for number in range(len(card.rows))
    ]
    return FoundTables(rows=rows)


def comparison_of(reported: Reported, harness: str, card: ReportedCard, row: ReportedRow, table: Table) -> Comparison:
    """The comparison that a table gives; what needs the single tasks stays undefined, with the reason."""
    settings = reported.comparison
    suite = reported.suites[row.suite]
    rows_unknown = "the single tasks were not published"
    intervals = estimates.all_intervals(table, paired.table_array(table), None, settings.confidence)
    dropped = suite.tasks - row.n
    unknown: list[tuple[float | None, float | None]] = [(None, None)] * dropped
    counts = [((1.0, 1.0), table.both), ((1.0, 0.0), table.base_only), ((0.0, 1.0), table.adapter_only)]
    known = [pair for pair, count in [*counts, ((0.0, 0.0), table.neither)] for _ in range(count)]
    optimism = Optimism(on=card.picked_on, candidates=card.candidates, optimism_points=0.0, method="none")
    if card.picked_on == "heldout":
        main = next(iter(reported.suites))
        optimism = (
            estimates.analytic_optimism(card.candidates, table)
            if row.suite == main
            else optimism.model_copy(update={"reason": f"the checkpoint was picked on {main}, not on these tasks"})
        )
    bounds = estimates.bounds_of([*known, *unknown], row.n)
    return Comparison(
        kind="reported",
        suite=row.suite,
        harness=harness,
        confidence=settings.confidence,
        tasks_in_suite=suite.tasks,
        n=table.n,
        attempts_per_task=reported.evaluation.attempts,
        base=_side(reported, card, "base", table.both + table.base_only, table.n, settings.confidence),
        adapter=_side(
            reported, card, f"step-{card.step}", table.both + table.adapter_only, table.n, settings.confidence
        ),
        table=TableRecord(**table._asdict()),
        difference_points=estimates.points(table.difference),
        intervals=intervals,
        mcnemar=estimates.mcnemar_of(table),
        calls=Calls(
            tasks=row.both_solved,
            base_total=None,
            adapter_total=None,
            change_percent=row.calls_percent,
            low_percent=None,
            high_percent=None,
            reason=rows_unknown,
        ),
        power=estimates.power_of((table.base_only + table.adapter_only) / table.n, table.n, settings),
        bounds=Bounds(
            dropped_pairs=dropped,
            worst_points=bounds.worst_points,
            best_points=bounds.best_points,
            reason="on which side a grade is missing was not published; both are taken to be" if dropped else None,
        ),
        non_inferiority=estimates.non_inferiority_of(intervals, True, settings.margin_points),
        selection=optimism,
        by_difficulty=[],
        clusters=None,
        tasks=[],
        notes=["Counts are worked back from the printed figures; tool calls are as printed."],
    )


def _side(reported: Reported, card: ReportedCard, policy: str, solved: int, n: int, confidence: float) -> Side:
    limits = paired.wilson(solved, n, confidence)
    return Side(
        policy=policy,
        source=Source(path=card.source, kind="printed", rows=1),
        model=reported.base.hub_id,
        harness_version=card.harness.version,
        solved=float(solved),
        rate_percent=100 * solved / n,
        rate_low_percent=estimates.points(limits.low),
        rate_high_percent=estimates.points(limits.high),
        attempts=n,
        scored=n,
        dropped={},
    )


def to_markdown(reported: Reported, found: FoundTables) -> str:
    """The published tables, printed from the counts, then the counts and what the printed rows leave out."""
    lines = ["# The published results, derived again", ""]
    for harness, card in reported.cards.items():
        lines += [
            f"## {card.harness.title}",
            "",
            f"| Tasks | n | Base model | This adapter (step {card.step}) | Difference (points) | Tool calls |",
            "|---|---|---|---|---|---|",
        ]
        rows = [row for row in found.rows if row.harness == harness]
        for row in rows:
            suite = reported.suites[row.comparison.suite]
            again = row.reprinted
            lines.append(
                f"| {suite.tasks} held-out tasks of {suite.hub_id} | {again['n']} | {again['base']} "
                f"| {again['adapter']} | {again['difference']} | {again['calls']} ({again['both_solved']} tasks) |"
            )
        lines += [
            "",
            "| Tasks | Both | Base only | Adapter only | Neither | Only table that fits | Also if both is not given |",
            "|---|---|---|---|---|---|---|",
        ]
        for row in rows:
            table = row.tables[0]
            loose = len(row.tables_without_both_solved)
            with_both = "yes" if row.unique else f"no, {len(row.tables)} fit"
            without = "yes" if loose == 1 else f"no, {loose} fit"
            lines.append(
                f"| {row.comparison.suite} | {table.both} | {table.base_only} | {table.adapter_only} | {table.neither} "
                f"| {with_both} | {without} |"
            )
        lines += [
            "",
            "| Tasks | Tango interval | McNemar mid-p | Detectable | Margin cleared | Optimism of picking |",
            "|---|---|---|---|---|---|",
            *(_left_out(row.comparison) for row in rows),
            "",
        ]
    return "\n".join(lines)


def _left_out(comparison: Comparison) -> str:
    tango, margin, picked = comparison.intervals["tango"], comparison.non_inferiority, comparison.selection
    detectable = comparison.power.detectable_points
    optimism = "none" if picked.method == "none" else f"{picked.optimism_points:.1f}"
    if picked.low_points is not None and picked.high_points is not None:
        optimism += f" ({picked.low_points:.1f} to {picked.high_points:.1f})"
    midp = comparison.mcnemar.midp
    return (
        f"| {comparison.suite} | {tango.low_points:+.1f} to {tango.high_points:+.1f} "
        f"| {'–' if midp is None else f'{midp:.2f}'} "
        f"| {'–' if detectable is None else f'{detectable:.1f}'} | {'yes' if margin.shown else 'no'} | {optimism} |"
    )
