"""The pictures of a card. Each takes the card's facts and gives a figure whose title says what was found.

Two colours and their order carry the meaning (base grey and first, adapter blue and second), which holds for every
kind of colour vision and in print. The same facts give the same bytes.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from scripts.card.facts import Card, CardError, Curve
from scripts.card.formats import change, percent, plain, points
from scripts.card.harness_use import HARNESS_USE
from scripts.card.wording import difference, hero_title, level, name_of
from scripts.stats.records import Comparison, Table

BASE, ADAPTER, INK, PALE = "#8C8C8C", "#0072B2", "#222222", "#D9D9D9"
STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 13,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "figure.facecolor": "white",
    "figure.dpi": 100,
    "savefig.dpi": 100,
}


def hero(card: Card) -> Figure:
    """Rates with intervals, and tool calls against the base's, on the main suite; legible at 600 pixels."""
    return hero_of(card.comparisons[0].comparison, f"{card.base.title} under {HARNESS_USE[card.harness.name].title}")


def hero_of(comparison: Comparison, what: str) -> Figure:
    """The same for one comparison; ``what`` names model and agent."""
    with plt.rc_context(STYLE | {"font.size": 24}):
        figure, (left, right) = plt.subplots(1, 2, figsize=(12, 6.3), width_ratios=[1, 1])
        figure.subplots_adjust(left=0.15, right=0.975, top=0.66, bottom=0.19, wspace=0.32)
        figure.text(0.03, 0.945, hero_title(comparison), fontsize=28, weight="bold", va="top", linespacing=1.25)
        _rates(left, comparison)
        _relative_calls(right, comparison)
        figure.text(
            0.03,
            0.035,
            f"{what}: {comparison.n} held-out tasks, {level(comparison)} intervals",
            fontsize=20,
            color="#555555",
        )
    return figure


def _rates(axes: Axes, comparison: Comparison) -> None:
    for row, (side, colour) in enumerate(((comparison.base, BASE), (comparison.adapter, ADAPTER))):
        if side.rate_percent is None:
            continue
        low, high = side.rate_low_percent, side.rate_high_percent
        if low is not None and high is not None:
            axes.plot([low, high], [-row, -row], color=colour, lw=9, alpha=0.45, solid_capstyle="butt")
        axes.plot(side.rate_percent, -row, "o", color=colour, ms=19)
        axes.annotate(
            percent(side.rate_percent), (side.rate_percent, -row), (0, 19), textcoords="offset points", ha="center"
        )
    axes.set(xlim=(0, 104), ylim=(-1.5, 0.75), yticks=[0, -1], xticks=[0, 50, 100])
    axes.set_yticklabels(["Base", "Adapter"])
    axes.set_xticklabels(["0%", "50%", "100%"])
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.set_title("Tasks solved", fontsize=24, loc="left", pad=10)


def _relative_calls(axes: Axes, comparison: Comparison) -> None:
    calls = comparison.calls
    axes.set_title("Tool calls a task", fontsize=24, loc="left", pad=10)
    axes.spines[["left", "bottom"]].set_visible(False)
    axes.set(yticks=[], xticks=[])
    if calls.change_percent is None:
        axes.text(0, 0.5, "not comparable", transform=axes.transAxes)
        return
    ratio = 100 + calls.change_percent
    axes.barh([0, -1], [100, ratio], height=0.56, color=[BASE, ADAPTER])
    axes.text(3, 0, _amount(calls.base_total, calls.tasks, 100), va="center", color="white")
    edge = ratio
    if calls.low_percent is not None and calls.high_percent is not None:
        low, edge = 100 + calls.low_percent, max(ratio, 100 + calls.high_percent)
        axes.plot([low, 100 + calls.high_percent], [-1, -1], color=INK, lw=3, solid_capstyle="butt")
    if ratio > 25:
        axes.text(3, -1, _amount(calls.adapter_total, calls.tasks, ratio), va="center", color="white")
    axes.text(edge + 3, -1, change(calls.change_percent), va="center", weight="bold", color=ADAPTER)
    axes.set(xlim=(0, max(112.0, edge + 32)), ylim=(-1.5, 0.75))


def _amount(total: float | None, tasks: int | None, ratio: float) -> str:
    """Calls a task, or the percentage of the base's calls where totals are not known."""
    return plain(total / tasks, 2) if total is not None and tasks else percent(ratio, 0)


def forest(card: Card) -> Figure:
    """The difference on each held-out suite with the normal and the score interval, and the margin."""
    return forest_of([measured.comparison for measured in card.comparisons])


def forest_of(rows: list[Comparison]) -> Figure:
    """The same for comparisons; the first is named in the title."""
    margin = rows[0].non_inferiority.margin_points
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(figsize=(10, 2.4 + 1.1 * len(rows)), layout="constrained")
        axes.axvline(0, color=INK, lw=1)
        axes.axvline(-margin, color=INK, lw=1, ls=(0, (4, 4)))
        for number, comparison in enumerate(rows):
            _forest_row(axes, comparison, -number, labelled=number == 0)
        axes.set_yticks([-number for number in range(len(rows))])
        axes.set_yticklabels([f"{comparison.suite}\nn = {comparison.n}" for comparison in rows])
        axes.set_ylim(0.3 - len(rows), 0.8)
        axes.tick_params(axis="y", length=0)
        axes.spines["left"].set_visible(False)
        axes.set_xlabel(
            f"Adapter minus base, points of tasks solved; dashed: the margin of −{plain(margin, 0)}", loc="left"
        )
        title = f"Difference from the base model: {difference(rows[0])} points on {rows[0].suite}"
        axes.set_title(title, loc="left")
        if axes.get_legend_handles_labels()[0]:
            axes.legend(
                loc="upper center", bbox_to_anchor=(0.5, -0.22 if len(rows) > 1 else -0.3), ncols=2, frameon=False
            )
    return figure


def _forest_row(axes: Axes, comparison: Comparison, y: float, labelled: bool) -> None:
    centre = comparison.difference_points
    if centre is None:
        axes.annotate("no pair was graded", (0, y), (6, 0), textcoords="offset points", va="center")
        return
    for name, offset, colour, label in (
        ("normal", 0.11, ADAPTER, "normal interval"),
        ("tango", -0.11, "#D55E00", "Tango score interval"),
    ):
        interval = comparison.intervals.get(name)
        if interval and interval.low_points is not None and interval.high_points is not None:
            style = "-" if name == "normal" else (0, (5, 1.5))
            limits = [interval.low_points, interval.high_points]
            axes.plot(limits, [y + offset] * 2, color=colour, lw=4, ls=style, label=label if labelled else None)
        axes.plot(centre, y + offset, "o" if name == "normal" else "D", color=colour, ms=9)
    axes.annotate(points(centre), (centre, y + 0.11), (0, 9), textcoords="offset points", ha="center")


def calls(card: Card) -> Figure:
    """How many tool calls a task took, base against adapter, on the main suite's pairs."""
    main = card.comparisons[0]
    base, adapter = _counts(main.calls_base), _counts(main.calls_adapter)
    if not base or not adapter:
        raise CardError("no tool calls per task are known; the picture of their distribution cannot be drawn")
    numbers = range(min([*base, *adapter]), max([*base, *adapter]) + 1)
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(figsize=(10, 4.6), layout="constrained")
        axes.bar([n - 0.2 for n in numbers], [base.get(n, 0) for n in numbers], 0.38, color=BASE, label="Base")
        axes.bar([n + 0.2 for n in numbers], [adapter.get(n, 0) for n in numbers], 0.38, color=ADAPTER, label="Adapter")
        axes.set_xlabel("Tool calls in a task")
        axes.set_ylabel("Tasks")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=16))
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
        axes.legend(frameon=False)
        axes.set_title(
            f"Tool calls in a task, solved or not: {plain(_mean(base), 2)} with the base model, "
            f"{plain(_mean(adapter), 2)} with the adapter\n"
            f"{name_of(card.suite(main.suite))}, means over {main.comparison.n} pairs",
            loc="left",
        )
    return figure


def _counts(distribution: dict[str, int]) -> dict[int, int]:
    return {int(number): count for number, count in distribution.items()}


def _mean(counts: dict[int, int]) -> float:
    return sum(number * count for number, count in counts.items()) / sum(counts.values())


def outcomes(card: Card) -> Figure:
    """2×2 tables of the main suite by difficulty, as tiles."""
    comparison = card.comparisons[0].comparison
    tables: list[tuple[str, Table]] = [(group.difficulty, group) for group in comparison.by_difficulty]
    if comparison.table and len(tables) != 1:
        tables.append(("all", comparison.table))
    if not tables:
        raise CardError("several attempts per task: there is no 2×2 table of outcomes to draw")
    with plt.rc_context(STYLE):
        figure, row = plt.subplots(
            1, len(tables), figsize=(3.3 * len(tables) + 1.4, 4.4), squeeze=False, layout="constrained"
        )
        for axes, (difficulty, table) in zip(row[0], tables, strict=True):
            total = table.both + table.base_only + table.adapter_only + table.neither
            cells = [[table.both, table.base_only], [table.adapter_only, table.neither]]
            shares = [[cell / total if total else 0 for cell in cells_row] for cells_row in cells]
            axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
            for y in (0, 1):
                for x in (0, 1):
                    colour = "white" if shares[y][x] > 0.55 else INK
                    axes.text(x, y, str(cells[y][x]), ha="center", va="center", fontsize=22, color=colour)
            axes.set(xticks=[0, 1], yticks=[0, 1])
            axes.set_title(f"{difficulty}: {total} tasks", loc="left", fontsize=14)
            axes.set_xticklabels(["adapter\nsolved", "adapter\nnot"])
            axes.set_yticklabels(["base\nsolved", "base\nnot"] if axes is row[0][0] else ["", ""])
            axes.tick_params(length=0)
            axes.spines[:].set_visible(False)
        whole = comparison.table
        if whole:
            title = (
                f"Of {comparison.n} tasks, {whole.adapter_only} were solved by the adapter alone, "
                f"{whole.base_only} by the base alone"
            )
            figure.suptitle(
                # About eight letters of this size fit on an inch; a single table is narrower than the sentence.
                textwrap.fill(title, int(8 * figure.get_figwidth())),
                x=0.01,
                ha="left",
                fontsize=15,
            )
    return figure


PANELS: list[tuple[str, str]] = [
    ("reward", "Reward"),
    ("correctness", "Correctness"),
    ("tool_calls", "Tool calls"),
    ("staleness_mean", "Staleness"),
]


def training(card: Card) -> Figure:
    """Reward, correctness, tool calls and staleness by optimizer step; the published checkpoint is marked."""
    curve = card.curve
    if not curve:
        raise CardError("the training's steps are not known; the picture of its curves cannot be drawn")
    with plt.rc_context(STYLE):
        figure, column = plt.subplots(4, 1, figsize=(10, 9), sharex=True, layout="constrained")
        for axes, (field, label) in zip(column, PANELS, strict=True):
            steps, values = _series(curve, field)
            axes.plot(steps, values, "-o", color=ADAPTER, ms=4, lw=1.8)
            if field == "staleness_mean":
                largest_steps, largest = _series(curve, "staleness_max")
                axes.plot(largest_steps, largest, "--", color=BASE, lw=1.8)
                if largest:
                    place = (largest_steps[-1], largest[-1])
                    axes.annotate("largest", place, (4, 0), textcoords="offset points", va="center")
            axes.axvline(card.checkpoint.step, color=INK, lw=1, ls=":")
            axes.set_ylabel(label)
            axes.set_ylim(bottom=0)
            axes.margins(x=0.02)
        column[-1].set_xlabel("Optimizer step; dotted: this checkpoint")
        column[-1].xaxis.set_major_locator(MaxNLocator(integer=True))
        figure.suptitle(_training_title(card), x=0.01, ha="left", fontsize=15)
    return figure


def _series(curve: list[Curve], field: str) -> tuple[list[int], list[float]]:
    found = [(row.step, value) for row in curve if (value := getattr(row, field)) is not None]
    return [step for step, _ in found], [value for _, value in found]


def _training_title(card: Card) -> str:
    """First against last fifth of the steps up to the checkpoint, of correctness and tool calls."""
    parts = []
    for field, name, digits in (("correctness", "correctness", 2), ("tool_calls", "tool calls", 1)):
        values = [v for step, v in zip(*_series(card.curve, field), strict=True) if step <= card.checkpoint.step]
        if values:
            part = max(1, len(values) // 5)
            first, last = sum(values[:part]) / part, sum(values[-part:]) / part
            parts.append(f"{name} {plain(first, digits)} → {plain(last, digits)}")
    return f"In training, up to step {card.checkpoint.step}: {', '.join(parts)}" if parts else "Training"


PICTURES: dict[str, Callable[[Card], Figure]] = {
    "hero": hero,
    "forest": forest,
    "calls": calls,
    "outcomes": outcomes,
    "training": training,
}
"""Every picture by name."""


def draw(card: Card, name: str, path: str | Path) -> None:
    """Draw one picture into a PNG file, without a date or a version in it.

    :raises CardError: the card's facts do not allow it.
    """
    save(PICTURES[name](card), path)


def save(figure: Figure, path: str | Path) -> None:
    """Write a figure as PNG and close it."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Software": None})
    plt.close(figure)
