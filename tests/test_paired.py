"""The paired intervals and tests, against published worked examples and against exact enumeration of coverage."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest, multinomial

from scripts.stats import paired
from scripts.stats.paired import Limits, Table

SCORE = [paired.tango, paired.newcombe, paired.agresti_min]
ALL = [paired.normal, paired.student, *SCORE]

# Complete response before and after consolidation therapy (Cavo et al. 2012), worked in Fagerland, Lydersen, Laake,
# Statistical Analysis of Contingency Tables (2017), chapter 8. There the difference is first − second.
CAVO = Table(both=59, base_only=6, adapter_only=16, neither=80)
# Airway hyper-responsiveness before and after transplantation (Bentur et al. 2009), worked in Fagerland, Lydersen,
# Laake, Statistics in Medicine 33 (2014) 2850, table II.
BENTUR = Table(both=1, base_only=1, adapter_only=7, neither=12)


def rounded(limits: Limits, digits: int) -> tuple[float, float]:
    assert limits.low is not None
    assert limits.high is not None
    return round(limits.low, digits), round(limits.high, digits)


@pytest.mark.parametrize(
    ("method", "table", "expected", "digits"),
    [
        (paired.tango, CAVO, (0.0054, 0.1240), 4),
        (paired.newcombe, CAVO, (0.0046, 0.1186), 4),
        (paired.agresti_min, CAVO, (0.0045, 0.1182), 4),
        (paired.tango, BENTUR, (0.026, 0.517), 3),
        (paired.newcombe, BENTUR, (0.026, 0.507), 3),
    ],
)
def test_published_intervals(
    method: Callable[..., Limits], table: Table, expected: tuple[float, float], digits: int
) -> None:
    assert rounded(method(table), digits) == expected


def test_normal_interval_is_the_published_one_but_for_the_degree_of_freedom() -> None:
    """The book's Wald interval of the Cavo data, (0.0058, 0.1184), has n where ours has n − 1."""
    low, high = rounded(paired.normal(CAVO), 12)
    half = (high - low) / 2 * np.sqrt((CAVO.n - 1) / CAVO.n)
    assert round(10 / 161 - half, 4) == 0.0058
    assert round(10 / 161 + half, 4) == 0.1184


def test_score_interval_at_another_level() -> None:
    """R, PropCIs 0.3-0: scoreci.mp(25, 28, 618, conf.level = 0.90) gives −0.0148 to 0.0247."""
    assert rounded(paired.tango(Table(400, 25, 28, 165), 0.90), 4) == (-0.0148, 0.0247)


def test_published_p_values() -> None:
    exact, midp, reason = paired.mcnemar_p(CAVO)
    assert reason is None
    assert (round(exact or 0, 6), round(midp or 0, 6)) == (0.052479, 0.034690)
    exact, midp, _ = paired.mcnemar_p(BENTUR)
    assert (round(exact or 0, 4), round(midp or 0, 4)) == (0.0703, 0.0391)


@pytest.mark.parametrize(
    ("table", "printed"),
    [
        (Table(112, 7, 12, 15), "+3.4 ± 5.8"),
        (Table(8, 3, 5, 19), "+5.7 ± 16.0"),
        (Table(104, 12, 11, 23), "-0.7 ± 6.3"),
        (Table(9, 6, 4, 16), "-5.7 ± 17.9"),
    ],
)
def test_normal_interval_prints_the_published_cards(table: Table, printed: str) -> None:
    low, high = rounded(paired.normal(table), 12)
    assert f"{50 * (low + high):+.1f} ± {50 * (high - low):.1f}" == printed


def coverage(low: np.ndarray, high: np.ndarray, weights: np.ndarray, truth: float) -> float:
    return float(weights[(low <= truth) & (truth <= high)].sum() / weights.sum())


def two_counts(n: int, p_base: float, p_adapter: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Every (base_only, adapter_only) that matters, with its exact probability."""
    c, b = (grid.ravel() for grid in np.meshgrid(np.arange(n + 1), np.arange(n + 1)))
    c, b = c[c + b <= n], b[c + b <= n]
    weights = multinomial.pmf(np.stack([c, b, n - b - c], axis=1), n, [p_base, p_adapter, 1 - p_base - p_adapter])
    keep = weights > 1e-9
    return c[keep], b[keep], weights[keep]


NORMAL = {35: [0.9711, 0.9471, 0.9437, 0.9362], 150: [0.9559, 0.9486, 0.9485, 0.9491]}
"""Coverage of the cards' interval in the scenarios: to be read beside 95 %."""
SCENARIOS = [(0.04, 0.04), (0.09, 0.14), (0.17, 0.11), (0.05, 0.15)]


@pytest.mark.parametrize("n", [35, 150])
@pytest.mark.parametrize(("p_base", "p_adapter"), SCENARIOS)
def test_exact_coverage(n: int, p_base: float, p_adapter: float) -> None:
    c, b, weights = two_counts(n, p_base, p_adapter)
    assert weights.sum() > 1 - 1e-5
    truth = p_adapter - p_base
    tango = coverage(*paired.tango_limits(c, b, n), weights, truth)
    tables = [Table(n - int(x) - int(y), int(x), int(y), 0) for x, y in zip(c, b, strict=True)]
    plain = [paired.normal(table) for table in tables]
    # Without a spread the interval that the cards print has no width: it covers nothing but its own centre.
    low = np.array([table.difference if lim.low is None else lim.low for table, lim in zip(tables, plain, strict=True)])
    high = np.array(
        [table.difference if lim.high is None else lim.high for table, lim in zip(tables, plain, strict=True)]
    )
    normal = coverage(low, high, weights, truth)
    adjusted = [paired.agresti_min(table) for table in tables]
    agresti = coverage(np.array([x.low for x in adjusted]), np.array([x.high for x in adjusted]), weights, truth)
    assert 0.935 < tango < 0.985
    assert 0.93 < agresti < 0.995
    assert normal == pytest.approx(NORMAL[n][SCENARIOS.index((p_base, p_adapter))], abs=6e-4)


def test_normal_interval_falls_short_in_small_samples() -> None:
    """At n = 35 with few discordant pairs the headline interval covers 83 %, the score interval keeps its level."""
    c, b, weights = two_counts(35, 0.02, 0.05)
    tables = [Table(35 - int(x) - int(y), int(x), int(y), 0) for x, y in zip(c, b, strict=True)]
    plain = [paired.normal(table) for table in tables]
    low = np.array([2.0 if lim.low is None else lim.low for lim in plain])
    high = np.array([-2.0 if lim.high is None else lim.high for lim in plain])
    assert 0.75 < coverage(low, high, weights, 0.03) < 0.90
    assert coverage(*paired.tango_limits(c, b, 35), weights, 0.03) > 0.94


@pytest.mark.parametrize(("n", "least"), [(35, 0.94), (150, 0.94)])
def test_exact_coverage_of_newcombe(n: int, least: float) -> None:
    """Its limits depend on all four cells, so all four are enumerated."""
    p = np.array([0.6, 0.09, 0.14, 0.17])
    spans = [range(*np.clip(np.array([mean - 6 * sd, mean + 6 * sd + 2]), 0, n + 1).astype(int)) for mean, sd in
             zip(n * p[:3], np.sqrt(n * p[:3] * (1 - p[:3])), strict=True)]  # fmt: skip
    a, c, b = (grid.ravel() for grid in np.meshgrid(*spans))
    keep = a + b + c <= n
    a, b, c = a[keep], b[keep], c[keep]
    weights = multinomial.pmf(np.stack([a, c, b, n - a - b - c], axis=1), n, p)
    assert weights.sum() > 1 - 1e-6
    assert least < coverage(*paired.newcombe_limits(a, c, b, n), weights, 0.05) < 0.98


@pytest.mark.parametrize("method", ALL)
def test_no_pairs(method: Callable[..., Limits]) -> None:
    assert method(Table(0, 0, 0, 0)) == Limits(None, None, paired.NO_PAIRS)


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        (Table(1, 0, 0, 0), paired.ONE_PAIR),
        (Table(0, 0, 1, 0), paired.ONE_PAIR),
        (Table(20, 0, 0, 15), paired.NO_SPREAD),
        (Table(0, 0, 35, 0), paired.NO_SPREAD),
        (Table(0, 35, 0, 0), paired.NO_SPREAD),
    ],
)
def test_without_spread_only_the_score_intervals_are_defined(table: Table, reason: str) -> None:
    for method in (paired.normal, paired.student):
        assert method(table) == Limits(None, None, reason)
    for method in SCORE:
        limits = method(table)
        assert limits.reason is None
        assert -1 <= limits.low < limits.high <= 1


def test_no_discordant_pair_in_closed_form() -> None:
    """Then Tango's limits are ± z² / (n + z²)."""
    z2 = paired.z_value(0.95) ** 2
    low, high = rounded(paired.tango(Table(20, 0, 0, 15)), 12)
    assert high == pytest.approx(z2 / (35 + z2), abs=1e-11)
    assert low == -high
    assert paired.mcnemar_p(Table(20, 0, 0, 15)) == (None, None, "no pair differs")


def test_limits_solve_the_score_equation() -> None:
    for table in (CAVO, BENTUR, Table(0, 10, 0, 25), Table(3, 0, 1, 3)):
        limits = paired.tango(table)
        for limit, z in ((limits.low, 1.959964), (limits.high, -1.959964)):
            if abs(limit) < 1:
                assert paired.tango_score(table.base_only, table.adapter_only, table.n, limit) == pytest.approx(
                    z, abs=1e-5
                )


counts = st.integers(0, 60)


@settings(max_examples=150, deadline=None)
@given(counts, counts, counts, counts)
def test_swapping_the_sides_mirrors_every_interval(both: int, base: int, adapter: int, neither: int) -> None:
    table, mirrored = Table(both, base, adapter, neither), Table(both, adapter, base, neither)
    for method in ALL:
        one, other = method(table), method(mirrored)
        assert one.reason == other.reason
        if one.reason is None:
            assert one.low == pytest.approx(-other.high, abs=1e-9)
            assert np.isfinite([one.low, one.high]).all()
            assert one.low - 1e-9 <= table.difference <= one.high + 1e-9
    assert (
        paired.mcnemar_p(table) == pytest.approx(paired.mcnemar_p(mirrored), nan_ok=False) if base + adapter else True
    )


def test_exact_p_value_is_the_binomial_one() -> None:
    assert paired.mcnemar_p(Table(0, 3, 9, 5))[0] == pytest.approx(binomtest(3, 12).pvalue)


def test_midp_of_equal_tails() -> None:
    """With 2 and 2 discordant pairs the exact value is 1 and mid-p 1 − (6/16)/2."""
    assert paired.mcnemar_p(Table(0, 2, 2, 0))[:2] == (1.0, pytest.approx(0.8125))


def test_cluster_interval_by_hand() -> None:
    """Four sources: sums of residuals ±; variance = G/(G − 1) Σ s² / n², t with 3 degrees of freedom."""
    differences = [1, 1, 0, 0, 0, -1, 0, 0]
    sources = ["a", "a", "b", "b", "c", "c", "d", "d"]
    mean = 1 / 8
    sums = np.array([2 - 2 * mean, -2 * mean, -1 - 2 * mean, -2 * mean])
    half = 3.182446 * np.sqrt(4 / 3 * (sums**2).sum()) / 8
    limits = paired.cluster_robust(differences, sources)
    assert limits.low == pytest.approx(mean - half, abs=1e-6)
    assert limits.high == pytest.approx(mean + half, abs=1e-6)


def test_clusters_of_one_are_students_interval() -> None:
    differences = [1, 0, 0, -1, 1, 1, 0]
    limits = paired.cluster_robust(differences, [str(i) for i in range(7)])
    assert limits[:2] == pytest.approx(paired.student_of_means(differences)[:2])


def test_clusters_at_the_edges() -> None:
    assert paired.cluster_robust([], []).reason == paired.NO_PAIRS
    assert paired.cluster_robust([1, 0], ["a", "a"]).reason == "all pairs come from one source data set"
    assert "standard error is zero" in (paired.cluster_robust([1, 0, 1, 0], ["a", "a", "b", "b"]).reason or "")
    with pytest.raises(ValueError, match="2 differences, but 1 clusters"):
        paired.cluster_robust([1, 0], ["a"])


def test_means_agree_with_the_table() -> None:
    differences = [1] * 12 + [-1] * 7 + [0] * 127
    assert paired.normal_of_means(differences)[:2] == pytest.approx(paired.normal(Table(112, 7, 12, 15))[:2])
    assert paired.student_of_means(differences)[:2] == pytest.approx(paired.student(Table(112, 7, 12, 15))[:2])
    assert paired.normal_of_means([0.3] * 9).reason == paired.NO_SPREAD
    assert paired.normal_of_means([]).reason == paired.NO_PAIRS


def test_count_pairs() -> None:
    assert paired.count_pairs([True, True, False, False], [True, False, True, False]) == Table(1, 1, 1, 1)
    with pytest.raises(ValueError, match="must be aligned"):
        paired.count_pairs([True], [])


def test_non_inferiority() -> None:
    """Shown for the published pi row, not for OpenCode's."""
    assert paired.is_non_inferior(paired.tango(Table(112, 7, 12, 15)).low, 0.05) is True
    assert paired.is_non_inferior(paired.tango(Table(104, 12, 11, 23)).low, 0.05) is False
    assert paired.is_non_inferior(-0.05, 0.05) is False
    assert paired.is_non_inferior(None, 0.05) is None


def test_wilson() -> None:
    """Newcombe, Statistics in Medicine 17 (1998) 857, table I: 81 of 263 gives 0.2553 to 0.3662."""
    assert rounded(paired.wilson(81, 263), 4) == (0.2553, 0.3662)
    assert paired.wilson(0, 0).reason == paired.NO_PAIRS
