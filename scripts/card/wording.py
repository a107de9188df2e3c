"""What a card says, chosen by the intervals.

A sentence claims something only where the interval shows it. Where it does not, the sentence says what could not be
shown, and how far off it may be. Each branch has a test.
"""

from __future__ import annotations

from typing import Literal

from scripts.card.facts import Card, Measured, Suite
from scripts.card.formats import (
    change,
    listing,
    percent,
    plain,
    points,
    span,
)
from scripts.stats.records import Calls, Comparison

SMALL = 100
"""Below this many pairs the score interval stands beside the normal one."""

Verdict = Literal["undefined", "more", "fewer", "fewer_within", "as_often", "open"]
CallVerdict = Literal[
    "undefined", "fewer", "more", "open", "fewer_no_interval", "more_no_interval", "equal_no_interval"
]


ROLES = {"train": "training", "validation": "validation", "heldout": "held-out"}


def name_of(suite: Suite) -> str:
    """A suite in words: its title, or number, role and name of its tasks."""
    source = suite.hub_id or suite.name
    number = "the" if suite.tasks is None else str(suite.tasks)
    return suite.title or f"{number} {ROLES[suite.role]} tasks of {source}"


def linked(suite: Suite) -> str:
    """The same with a link to its data set on the Hub."""
    if suite.hub_id is None:
        return name_of(suite)
    return name_of(suite).replace(suite.hub_id, f"[{suite.hub_id}](https://huggingface.co/datasets/{suite.hub_id})", 1)


def placed(suite: Suite) -> str:
    """A suite as the place of a finding: with what its tasks are, where that needs saying."""
    return f"{linked(suite)} ({suite.what})" if suite.what else linked(suite)


def verdict(comparison: Comparison) -> Verdict:
    """What is shown about the rate of solved tasks.

    ``more`` and ``fewer`` need the normal, the score, Student's and, where source data sets are known, the
    cluster-robust interval to exclude zero, and McNemar's mid-p value to agree: with four pairs that differ, all one
    way, the intervals exclude zero at p = 0.06. ``as_often`` needs the lower bound to clear the non-inferiority margin.
    """
    if comparison.n == 0 or comparison.difference_points is None:
        return "undefined"
    bounds = [
        (interval.low_points, interval.high_points)
        for name in ("normal", "tango", "student", "cluster")
        if (interval := comparison.intervals.get(name)) is not None
    ]
    # An interval of no width comes from no discordant pair: it shows nothing.
    usable = [(low, high) for low, high in bounds if low is not None and high is not None]
    if not usable:
        return "undefined"
    shown = comparison.non_inferiority.shown is True
    midp = comparison.mcnemar.midp
    differs = midp is None or midp < 1 - comparison.confidence
    if differs and all(low > 0 for low, _ in usable):
        return "more"
    if differs and all(high < 0 for _, high in usable):
        return "fewer_within" if shown else "fewer"
    return "as_often" if shown else "open"


def call_verdict(calls: Calls) -> CallVerdict:
    """What is shown about tool calls on the tasks that both solved."""
    if calls.change_percent is None:
        return "undefined"
    if calls.low_percent is None or calls.high_percent is None:
        if calls.change_percent < 0:
            return "fewer_no_interval"
        return "more_no_interval" if calls.change_percent > 0 else "equal_no_interval"
    if calls.high_percent < 0:
        return "fewer"
    return "more" if calls.low_percent > 0 else "open"


def difference(comparison: Comparison) -> str:
    """``+3.4 ± 5.8``, the headline figure."""
    normal = comparison.intervals.get("normal")
    half = normal.half_width_points if normal else None
    return points(comparison.difference_points) + (f" ± {plain(half)}" if half is not None else "")


def success_clause(comparison: Comparison) -> str:
    """The first half of the summary: a clause with `this checkpoint` as its subject."""
    margin = plain(comparison.non_inferiority.margin_points, 0)
    figure = f"{difference(comparison)} points"
    lower = comparison.non_inferiority.lower_points
    match verdict(comparison):
        case "undefined":
            return "has no graded pair of attempts, so nothing can be said of how often it solves tasks"
        case "more":
            return f"solves more of the held-out tasks than the base model ({figure})"
        case "fewer_within":
            return f"solves slightly fewer of the held-out tasks than the base model ({figure}), within {margin} points"
        case "fewer":
            return f"solves fewer of the held-out tasks than the base model ({figure})"
        case "as_often":
            return f"solves about as many tasks as the base model ({figure}, at most {margin} points fewer)"
        case "open":
            reach = f"; the interval reaches down to {points(lower)}" if lower is not None else ""
            return (
                f"could not be shown to solve as many tasks as the base model: {figure}{reach}, "
                f"and {margin} points fewer was the limit"
            )


def level(comparison: Comparison) -> str:
    """``95%``: the level of every interval."""
    return percent(100 * comparison.confidence, 0)


def calls_clause(comparison: Comparison) -> str:
    """The second half of the summary, about tool calls."""
    calls = comparison.calls
    amount = f"{abs(round(calls.change_percent or 0))}%"
    interval = f"{level(comparison)} interval {span(calls.low_percent, calls.high_percent, '%')}"
    where = "on the tasks that both solve"
    match call_verdict(calls):
        case "undefined":
            return f"Tool calls could not be compared: {calls.reason or 'no task was solved by both'}"
        case "fewer":
            return f"It makes {amount} fewer tool calls {where} ({interval})"
        case "more":
            return f"It makes {amount} more tool calls {where} ({interval})"
        case "open":
            return f"No change in tool calls {where} could be shown ({change(calls.change_percent)}, {interval})"
        case "fewer_no_interval":
            return f"It makes {amount} fewer tool calls {where}"
        case "more_no_interval":
            return f"It makes {amount} more tool calls {where}"
        case "equal_no_interval":
            return f"It makes as many tool calls {where}"


def summary(comparison: Comparison) -> str:
    """One line on the main evaluation."""
    return f"This checkpoint {success_clause(comparison)}. {calls_clause(comparison)}."


def further_suite(measured: Measured, suite: Suite) -> str:
    """One sentence on a suite beside the main one."""
    comparison = measured.comparison
    figure = f"{difference(comparison)} points, n = {comparison.n}"
    match verdict(comparison):
        case "undefined":
            return f"On {placed(suite)} no pair of attempts was graded."
        case "more":
            return f"On {placed(suite)} it solves more tasks than the base model ({figure})."
        case "fewer" | "fewer_within":
            return f"On {placed(suite)} it solves fewer tasks than the base model ({figure})."
        case _:
            return f"On {placed(suite)} its difference from the base model is within noise ({figure})."


def picked(card: Card) -> str:
    """How the checkpoint was picked, and what that does to the difference."""
    checkpoint = card.checkpoint
    looked = len(checkpoint.candidates) or checkpoint.candidate_count
    name = f"Step {checkpoint.step} of {checkpoint.of_steps}"
    match checkpoint.picked_on:
        case "final":
            return f"Step {checkpoint.step} is the last checkpoint of the run; nothing was picked by score."
        case "validation":
            return (
                f"{name} was picked among {looked} checkpoints on {picked_suites(card)}, before the held-out tasks "
                "were opened, so the difference above is not flattered by the choice."
            )
        case "heldout":
            among = f"among {looked} checkpoints " if looked else ""
            return (
                f"{name} was picked {among}by score on these same held-out tasks, "
                f"so the difference above is optimistic{optimism(card.comparisons[0].comparison)}."
            )


def optimism(comparison: Comparison) -> str:
    """By how much, as far as the data tell; begins with a comma or is empty."""
    estimate = comparison.selection
    if estimate.optimism_points is not None:
        text = f", by an estimated {plain(estimate.optimism_points)} points"
        if estimate.low_points is not None and estimate.high_points is not None:
            text += f" ({plain(estimate.low_points)} to {plain(estimate.high_points)})"
        margin = comparison.non_inferiority
        if margin.shown and margin.lower_points is not None:
            left = margin.lower_points - estimate.optimism_points
            if left <= -margin.margin_points:
                text += (
                    f"; with that taken off, the lower bound would be {points(left)} points, "
                    f"below the margin of -{plain(margin.margin_points, 0)}"
                )
        return text
    if estimate.low_points is not None and estimate.high_points is not None:
        return (
            f", by {plain(estimate.low_points)} to {plain(estimate.high_points)} points "
            "depending on how much the checkpoints agree"
        )
    return ""


def picked_suites(card: Card) -> str:
    """Names of the suites that the checkpoint was picked on."""
    return listing([linked(card.suite(name)) for name in card.checkpoint.suites])


def hero_text(card: Card) -> str:
    """What the hero picture shows, for readers who don't see it."""
    comparison = card.comparisons[0].comparison
    return (
        f"Tasks solved: base {percent(comparison.base.rate_percent)}, "
        f"adapter {percent(comparison.adapter.rate_percent)}; "
        f"tool calls on tasks both solved: {change(comparison.calls.change_percent)}"
    )


def hero_title(comparison: Comparison) -> str:
    """Two short lines for the picture at the top: tasks solved, then tool calls."""
    figure = f"{difference(comparison)} points"
    first = {
        "undefined": "No graded pair of attempts",
        "more": f"Solves more tasks ({figure})",
        "fewer": f"Solves fewer tasks ({figure})",
        "fewer_within": f"Solves slightly fewer tasks ({figure})",
        "as_often": f"Solves about as many tasks ({figure})",
        "open": f"Not shown to solve as many tasks ({figure})",
    }[verdict(comparison)]
    amount = f"{abs(round(comparison.calls.change_percent or 0))}%"
    second = {
        "undefined": "Tool calls could not be compared",
        "fewer": f"{amount} fewer tool calls on tasks both solve",
        "fewer_no_interval": f"{amount} fewer tool calls on tasks both solve",
        "more": f"{amount} more tool calls on tasks both solve",
        "more_no_interval": f"{amount} more tool calls on tasks both solve",
        "equal_no_interval": "As many tool calls on tasks both solve",
        "open": "No change in tool calls shown",
    }[call_verdict(comparison.calls)]
    return f"{first}\n{second}"
