"""Turn the statistics' fractions into the comparison's records, in points and percent, each with its source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from scripts.stats import bounds, calls, optimism, paired, power
from scripts.stats.records import Bounds, Calls, Interval, McNemar, NonInferiority, Optimism, Power
from scripts.study.config import Comparison as Settings

SEVERAL = "several attempts per task: outcomes are means, not yes or no"

METHODS = {
    "normal": ("paired normal", "mean ± z·sd/√n, ddof 1"),
    "student": ("paired Student t", "mean ± t·sd/√n, ddof 1"),
    "tango": ("Tango score", "Tango 1998, Stat Med 17:891"),
    "newcombe": ("Newcombe hybrid score", "Newcombe 1998, Stat Med 17:2635, method 10"),
    "agresti_min": ("Agresti–Min adjusted Wald", "Agresti and Min 2005, Stat Med 24:729"),
    "cluster": ("cluster-robust by source data set", "Liang and Zeger 1986, Biometrika 73:13; t with G − 1 df"),
}
EFFECTS = (2, 5, 10)
"""Differences, in points, that the needed number of tasks is given for."""


def points(fraction: float | None) -> float | None:
    """A fraction in points or percent; None stays None."""
    return None if fraction is None else 100 * fraction


def as_interval(name: str, limits: paired.Limits) -> Interval:
    """The record of an interval."""
    label, source = METHODS[name]
    low, high = points(limits.low), points(limits.high)
    half = None if low is None or high is None else (high - low) / 2
    return Interval(
        name=name,
        label=label,
        low_points=low,
        high_points=high,
        half_width_points=half,
        reason=limits.reason,
        source=source,
    )


def all_intervals(
    table: paired.Table | None,
    differences: NDArray[np.float64],
    clusters: Sequence[str | None] | None,
    confidence: float,
) -> dict[str, Interval]:
    """Every interval by name.

    :param table: the 2×2 table, or None where outcomes are means over several attempts.
    :param differences: shape (n,); used where there is no table, and with clusters.
    :param clusters: source data set of each pair, or None where rows are not known.
    """
    if table is None:
        found = {
            "normal": paired.normal_of_means(differences, confidence),
            "student": paired.student_of_means(differences, confidence),
            **{name: paired.undefined(SEVERAL) for name in ("tango", "newcombe", "agresti_min")},
        }
    else:
        found = {
            "normal": paired.normal(table, confidence),
            "student": paired.student(table, confidence),
            "tango": paired.tango(table, confidence),
            "newcombe": paired.newcombe(table, confidence),
            "agresti_min": paired.agresti_min(table, confidence),
        }
    found["cluster"] = _cluster(differences, clusters, confidence)
    return {name: as_interval(name, limits) for name, limits in found.items()}


def _cluster(
    differences: NDArray[np.float64], clusters: Sequence[str | None] | None, confidence: float
) -> paired.Limits:
    if clusters is None:
        return paired.undefined("the source data sets are not known")
    known = [cluster for cluster in clusters if cluster is not None]
    if len(known) < len(clusters):
        return paired.undefined(f"{len(clusters) - len(known)} of {len(clusters)} pairs have no known source data set")
    return paired.cluster_robust(differences, known, confidence)


def mcnemar_of(table: paired.Table | None) -> McNemar:
    """McNemar's p-values."""
    if table is None:
        return McNemar(exact=None, midp=None, reason=SEVERAL)
    exact, midp, reason = paired.mcnemar_p(table)
    return McNemar(exact=exact, midp=midp, reason=reason)


def calls_of(base: Sequence[float], adapter: Sequence[float], n: int, settings: Settings, seed: int) -> Calls:
    """Tool calls on the tasks that both solved, with the bootstrap interval of their change."""
    ratio = calls.ratio_interval(base, adapter, n, settings.bootstrap_draws, seed, settings.confidence)
    return Calls(
        tasks=len(base),
        base_total=float(sum(base)),
        adapter_total=float(sum(adapter)),
        change_percent=points(ratio.change),
        low_percent=points(ratio.low),
        high_percent=points(ratio.high),
        draws=None if ratio.low is None else settings.bootstrap_draws,
        seed=None if ratio.low is None else seed,
        reason=ratio.reason,
    )


def power_of(discordant: float | None, n: int, settings: Settings) -> Power:
    """What n pairs could have shown, given the share of pairs that differ.

    :param discordant: mean squared difference of a pair, which is that share where outcomes are yes or no.
    """
    if discordant is None:
        return Power(
            power=settings.power, discordant_percent=None, detectable_points=None, needed={}, reason=paired.NO_PAIRS
        )
    effect, reason = power.detectable(discordant, n, settings.confidence, settings.power)
    needed = {
        str(size): power.needed_n(size / 100, discordant, settings.confidence, settings.power) for size in EFFECTS
    }
    return Power(
        power=settings.power,
        discordant_percent=points(discordant),
        detectable_points=points(effect),
        needed=needed,
        reason=reason,
    )


def bounds_of(outcomes: Sequence[tuple[float | None, float | None]], n: int) -> Bounds:
    """Bounds of the difference over all tasks of the suite."""
    found = bounds.missing_bounds(outcomes)
    if found is None:
        return Bounds(dropped_pairs=0, worst_points=None, best_points=None, reason="the suite has no task")
    return Bounds(dropped_pairs=len(outcomes) - n, worst_points=points(found[0]), best_points=points(found[1]))


def non_inferiority_of(intervals: Mapping[str, Interval], binary: bool, margin_points: float) -> NonInferiority:
    """Non-inferiority by the score interval, or by Student's where outcomes are means."""
    name = "tango" if binary else "student"
    interval = intervals[name]
    return NonInferiority(
        margin_points=margin_points,
        interval=name,
        lower_points=interval.low_points,
        shown=paired.is_non_inferior(interval.low_points, margin_points),
        reason=interval.reason,
    )


def analytic_optimism(candidates: int | None, table: paired.Table | None) -> Optimism:
    """Optimism of the best of several checkpoints where only the picked one's counts are known.

    The estimate takes the share of tasks on which two checkpoints differ to be the one on which base and adapter do;
    the lower one halves it, the upper one lets checkpoints succeed independently of each other.
    """
    reason = None
    if candidates is None:
        reason = "how many checkpoints were looked at is not known"
    elif table is None:
        reason = SEVERAL
    elif table.n == 0:
        reason = paired.NO_PAIRS
    if candidates is None or table is None or reason:
        return Optimism(on="heldout", candidates=candidates, optimism_points=None, method="analytic", reason=reason)
    discordant = (table.base_only + table.adapter_only) / table.n
    rate = (table.both + table.adapter_only) / table.n
    return Optimism(
        on="heldout",
        candidates=candidates,
        optimism_points=points(optimism.optimism_of_equals(candidates, discordant, table.n)),
        method="analytic",
        low_points=points(optimism.optimism_of_equals(candidates, discordant / 2, table.n)),
        high_points=points(optimism.optimism_of_independent(candidates, rate, table.n)),
        reason="checkpoints taken to be equally good and to differ on as many tasks as base and adapter do",
    )
