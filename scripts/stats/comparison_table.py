"""A comparison as a Markdown table, for a terminal, an issue or a README."""

from __future__ import annotations

from scripts.stats.records import Comparison, Interval


def signed(value: float | None, digits: int = 1) -> str:
    """``+3.4``, ``-0.7``, ``0.0``; a dash where there is no value. A zero has no sign."""
    if value is None:
        return "–"
    text = f"{value:+.{digits}f}"
    return text[1:] if float(text) == 0 else text


def span(low: float | None, high: float | None, unit: str = "") -> str:
    """``-2.6 to +9.8``."""
    return "–" if low is None or high is None else f"{signed(low)}{unit} to {signed(high)}{unit}"


def to_markdown(comparison: Comparison) -> str:
    """The figures of a comparison, its intervals, what is missing and what could not be worked out."""
    base, adapter, calls = comparison.base, comparison.adapter, comparison.calls
    normal = comparison.intervals["normal"]
    half = "" if normal.half_width_points is None else f" ± {normal.half_width_points:.1f}"
    change = "–" if calls.change_percent is None else f"{calls.change_percent:+.0f}%"
    lines = [
        f"| Suite | n | {base.policy} | {adapter.policy} | Difference (points) | Tool calls |",
        "|---|---|---|---|---|---|",
        f"| {comparison.suite} | {comparison.n} | {_rate(base.rate_percent)} | {_rate(adapter.rate_percent)} "
        f"| {signed(comparison.difference_points)}{half} | {change} ({calls.tasks or 0} tasks) |",
        "",
        f"| {100 * comparison.confidence:g} % interval of the difference | points |",
        "|---|---|",
        *(f"| {interval.label} | {_interval(interval)} |" for interval in comparison.intervals.values()),
        "",
        "| Also | |",
        "|---|---|",
    ]
    lines += [f"| {name} | {value} |" for name, value in _further(comparison)]
    if comparison.notes:
        lines += ["", *(f"- {note}" for note in comparison.notes)]
    return "\n".join(lines) + "\n"


def _rate(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}%"


def _interval(interval: Interval) -> str:
    if interval.reason is not None:
        return f"not defined: {interval.reason}"
    return span(interval.low_points, interval.high_points)


def _further(comparison: Comparison) -> list[tuple[str, str]]:
    rows = []
    if comparison.table is not None:
        table = comparison.table
        rows.append(
            (
                "Both / base only / adapter only / neither",
                f"{table.both} / {table.base_only} / {table.adapter_only} / {table.neither}",
            )
        )
    test = comparison.mcnemar
    rows.append(
        (
            "McNemar exact, mid-p",
            f"not defined: {test.reason}" if test.exact is None else f"{test.exact:.3f}, {test.midp:.3f}",
        )
    )
    calls = comparison.calls
    rows.append(
        (
            "Tool calls, interval of the change",
            f"not defined: {calls.reason}"
            if calls.low_percent is None
            else span(calls.low_percent, calls.high_percent, "%"),
        )
    )
    margin = comparison.non_inferiority
    verdict = {True: "shown", False: "not shown", None: f"not defined: {margin.reason}"}[margin.shown]
    rows.append((f"At most {margin.margin_points:g} points worse ({margin.interval})", verdict))
    power = comparison.power
    rows.append(
        (
            f"Detectable at {100 * power.power:g} % power",
            f"not defined: {power.reason}"
            if power.detectable_points is None
            else f"{power.detectable_points:.1f} points",
        )
    )
    for name, side in (("base", comparison.base), ("adapter", comparison.adapter)):
        lost = ", ".join(f"{count} {reason}" for reason, count in side.dropped.items())
        rows.append((f"Without a grade on the {name}'s side", lost or "none"))
    bounds = comparison.bounds
    if bounds.dropped_pairs:
        rows.append(
            (
                "Difference with every missing pair against / for the adapter",
                span(bounds.worst_points, bounds.best_points),
            )
        )
    picked = comparison.selection
    if picked.on == "heldout":
        gain = "not known" if picked.optimism_points is None else f"{picked.optimism_points:.1f} points"
        rows.append(("Optimism of picking the checkpoint on these tasks", gain))
    return rows
