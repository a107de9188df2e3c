"""Intervals and tests of a paired difference of proportions.

A 2×2 table counts pairs: ``both`` solved, ``base_only``, ``adapter_only``, ``neither``. The difference is
adapter − base = (adapter_only − base_only) / n, a fraction here; the comparison turns fractions into points.

Every interval comes as ``Limits``: low and high, or None with the reason why the method is not defined for this table.
A standard error of zero (no pair differs, or all differ the same way) is such a reason, as it would give an interval
of no width that claims to know everything. The score intervals are defined for every table with a pair in it.

Sources:

- normal, Student: the mean of the paired differences with ``ddof`` 1 (statsmodels ``DescrStatsW``).
- Tango: T. Tango, Statistics in Medicine 17 (1998) 891–908.
- Newcombe: R. G. Newcombe, Statistics in Medicine 17 (1998) 2635–2650, method 10.
- Agresti–Min: A. Agresti, Y. Min, Statistics in Medicine 24 (2005) 729–740, "Wald+2".
- McNemar mid-p: M. W. Fagerland, S. Lydersen, P. Laake, BMC Medical Research Methodology 13 (2013) 91.
- a comparison of all of them: Fagerland, Lydersen, Laake, Statistics in Medicine 33 (2014) 2850–2875.
- cluster-robust: K.-Y. Liang, S. L. Zeger, Biometrika 73 (1986) 13–22, with the factor G/(G − 1) and Student's t on
  G − 1 degrees of freedom (A. C. Cameron, D. L. Miller, Journal of Human Resources 50 (2015) 317–372).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats
from statsmodels.regression.linear_model import OLS
from statsmodels.stats.contingency_tables import mcnemar
from statsmodels.stats.proportion import proportion_confint
from statsmodels.stats.weightstats import DescrStatsW

NO_PAIRS = "no pair is scored on both sides"
ONE_PAIR = "one pair has no spread to estimate"
NO_SPREAD = "all pairs have the same difference, so the estimated standard error is zero"


class Table(NamedTuple):
    """Counts of pairs."""

    both: int
    base_only: int
    adapter_only: int
    neither: int

    @property
    def n(self) -> int:
        """Number of pairs."""
        return self.both + self.base_only + self.adapter_only + self.neither

    @property
    def difference(self) -> float | None:
        """Adapter − base as a fraction; None without pairs."""
        return (self.adapter_only - self.base_only) / self.n if self.n else None


class Limits(NamedTuple):
    """An interval of the difference as fractions, or the reason why there is none."""

    low: float | None
    high: float | None
    reason: str | None = None


def undefined(reason: str) -> Limits:
    """No interval, and why."""
    return Limits(None, None, reason)


def z_value(confidence: float) -> float:
    """Two-sided normal quantile: 1.96 for 0.95."""
    return float(stats.norm.ppf(0.5 + confidence / 2))


def count_pairs(base: Sequence[bool], adapter: Sequence[bool]) -> Table:
    """The 2×2 table of two aligned sequences of outcomes."""
    a, b = np.asarray(base, dtype=bool), np.asarray(adapter, dtype=bool)
    if a.shape != b.shape:
        raise ValueError(f"{a.size} outcomes of the base and {b.size} of the adapter: pairs must be aligned")
    return Table(int((a & b).sum()), int((a & ~b).sum()), int((~a & b).sum()), int((~a & ~b).sum()))


def table_array(table: Table) -> NDArray[np.float64]:
    """The paired differences of a table one by one, shape (n,)."""
    return np.repeat([1.0, -1.0, 0.0], [table.adapter_only, table.base_only, table.both + table.neither])


def table_differences(table: Table) -> DescrStatsW:
    """The paired differences of a table (1, −1, 0) with their counts as weights."""
    counts = [table.adapter_only, table.base_only, table.both + table.neither]
    return DescrStatsW([1.0, -1.0, 0.0], weights=counts, ddof=1)


def _mean_limits(sample: DescrStatsW, confidence: float, student: bool) -> Limits:
    if sample.nobs < 1:
        return undefined(NO_PAIRS)
    if sample.nobs < 2:
        return undefined(ONE_PAIR)
    # Equal differences leave a spread of rounding size, not exactly zero.
    if sample.sumsquares <= 1e-12 * sample.nobs:
        return undefined(NO_SPREAD)
    low, high = (sample.tconfint_mean if student else sample.zconfint_mean)(alpha=1 - confidence)
    return Limits(float(low), float(high))


def normal(table: Table, confidence: float = 0.95) -> Limits:
    """Paired normal interval: mean ± z · sd(ddof 1) / √n. The published cards' interval."""
    return undefined(NO_PAIRS) if table.n == 0 else _mean_limits(table_differences(table), confidence, student=False)


def student(table: Table, confidence: float = 0.95) -> Limits:
    """The same with Student's t on n − 1 degrees of freedom."""
    return undefined(NO_PAIRS) if table.n == 0 else _mean_limits(table_differences(table), confidence, student=True)


def normal_of_means(differences: ArrayLike, confidence: float = 0.95) -> Limits:
    """Normal interval of one difference per task, each a mean over that task's attempts.

    :param differences: shape (n,), fractions.
    """
    values = np.asarray(differences, dtype=float)
    return undefined(NO_PAIRS) if values.size == 0 else _mean_limits(DescrStatsW(values, ddof=1), confidence, False)


def student_of_means(differences: ArrayLike, confidence: float = 0.95) -> Limits:
    """Student's interval of one difference per task; see :func:`normal_of_means`."""
    values = np.asarray(differences, dtype=float)
    return undefined(NO_PAIRS) if values.size == 0 else _mean_limits(DescrStatsW(values, ddof=1), confidence, True)


def tango_score(base_only: ArrayLike, adapter_only: ArrayLike, n: int, difference: ArrayLike) -> NDArray[np.float64]:
    """Tango's score statistic of the hypothesis that adapter − base is ``difference``, −1 < difference < 1.

    The nuisance parameter is the larger root of a quadratic: the restricted maximum likelihood estimate of the
    probability of a ``base_only`` pair. Arrays are broadcast. It falls as ``difference`` grows.
    """
    c, b = np.asarray(base_only, dtype=float), np.asarray(adapter_only, dtype=float)
    delta = np.asarray(difference, dtype=float)
    linear = -b - c + (2 * n - b + c) * delta
    constant = -c * delta * (1 - delta)
    root = (np.sqrt(np.maximum(linear**2 - 8 * n * constant, 0)) - linear) / (4 * n)
    # Rounding alone can leave the admissible region; there every cell's probability is at least zero.
    root = np.clip(root, np.maximum(0, -delta), 1)
    variance = n * np.maximum(2 * root + delta * (1 - delta), 1e-300)
    return np.asarray((b - c - n * delta) / np.sqrt(variance))


def tango_limits(
    base_only: ArrayLike, adapter_only: ArrayLike, n: int, confidence: float = 0.95
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Tango's limits for arrays of counts with n > 0 pairs each, by bisection of the score to 1e-15."""
    c, b = np.broadcast_arrays(np.asarray(base_only, dtype=float), np.asarray(adapter_only, dtype=float))
    z = z_value(confidence)
    estimate = (b - c) / n
    limits = []
    for target, edge in ((z, -1.0), (-z, 1.0)):
        # The score is 0 at the estimate and passes the target between there and the edge.
        inner, outer = estimate.copy(), np.full_like(estimate, edge)
        for _ in range(52):
            middle = (inner + outer) / 2
            inside = np.abs(tango_score(c, b, n, middle)) < abs(target)
            inner, outer = np.where(inside, middle, inner), np.where(inside, outer, middle)
        limits.append((inner + outer) / 2)
    return np.where(c == n, -1.0, limits[0]), np.where(b == n, 1.0, limits[1])


def tango(table: Table, confidence: float = 0.95) -> Limits:
    """Tango's score interval; has a width for every table, and keeps its level at small n."""
    if table.n == 0:
        return undefined(NO_PAIRS)
    low, high = tango_limits(table.base_only, table.adapter_only, table.n, confidence)
    return Limits(float(low), float(high))


def newcombe_limits(
    both: ArrayLike, base_only: ArrayLike, adapter_only: ArrayLike, n: int, confidence: float = 0.95
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Newcombe's method 10 for arrays of counts with n > 0 pairs each."""
    a, c, b = (np.asarray(count, dtype=float) for count in (both, base_only, adapter_only))
    d = n - a - b - c
    p1, p2 = (a + b) / n, (a + c) / n
    l1, u1 = proportion_confint(a + b, n, alpha=1 - confidence, method="wilson")
    l2, u2 = proportion_confint(a + c, n, alpha=1 - confidence, method="wilson")
    margins = (a + b) * (c + d) * (a + c) * (b + d)
    determinant = a * d - b * c
    # Newcombe's continuity correction pulls a positive phi towards zero, but not past it.
    determinant = np.where(determinant > 0, np.maximum(determinant - n / 2, 0), determinant)
    phi = np.where(margins > 0, determinant / np.sqrt(np.maximum(margins, 1)), 0)
    down = (p1 - l1) ** 2 - 2 * phi * (p1 - l1) * (u2 - p2) + (u2 - p2) ** 2
    up = (u1 - p1) ** 2 - 2 * phi * (u1 - p1) * (p2 - l2) + (p2 - l2) ** 2
    low, high = p1 - p2 - np.sqrt(np.maximum(down, 0)), p1 - p2 + np.sqrt(np.maximum(up, 0))
    return np.maximum(low, -1), np.minimum(high, 1)


def newcombe(table: Table, confidence: float = 0.95) -> Limits:
    """Newcombe's hybrid score interval for paired proportions (method 10): Wilson limits and a corrected phi."""
    if table.n == 0:
        return undefined(NO_PAIRS)
    low, high = newcombe_limits(table.both, table.base_only, table.adapter_only, table.n, confidence)
    return Limits(float(low), float(high))


def agresti_min(table: Table, confidence: float = 0.95) -> Limits:
    """Agresti and Min's Wald+2: half a pair is added to each cell; cut at ±1."""
    if table.n == 0:
        return undefined(NO_PAIRS)
    n = table.n + 2
    change = table.adapter_only - table.base_only
    spread = np.sqrt(table.adapter_only + table.base_only + 1 - change**2 / n) / n
    half = z_value(confidence) * spread
    return Limits(float(max(change / n - half, -1.0)), float(min(change / n + half, 1.0)))


def cluster_robust(differences: ArrayLike, clusters: Sequence[str], confidence: float = 0.95) -> Limits:
    """Interval of the mean difference where tasks that share a source data set may be alike.

    :param differences: shape (n,), one per task; several attempts are averaged within the task first.
    :param clusters: shape (n,), name of each task's source.
    """
    values = np.asarray(differences, dtype=float)
    if values.size != len(clusters):
        raise ValueError(f"{values.size} differences, but {len(clusters)} clusters: give one for each")
    if values.size == 0:
        return undefined(NO_PAIRS)
    codes = np.unique(np.asarray(clusters), return_inverse=True)[1]
    if codes.max() == 0:
        return undefined("all pairs come from one source data set")
    sums = np.bincount(codes, weights=values - values.mean())
    if float(np.abs(sums).max()) <= 1e-9:
        return undefined("every source data set has the same mean difference, so the standard error is zero")
    fit = OLS(values, np.ones_like(values)).fit(cov_type="cluster", cov_kwds={"groups": codes}, use_t=True)
    low, high = fit.conf_int(alpha=1 - confidence)[0]
    return Limits(float(low), float(high))


def wilson(solved: float, n: int, confidence: float = 0.95) -> Limits:
    """Wilson's interval of one side's rate.

    With several attempts ``solved`` is a sum of task means; n stays the number of tasks, which is conservative.
    """
    if n == 0:
        return undefined(NO_PAIRS)
    low, high = proportion_confint(solved, n, alpha=1 - confidence, method="wilson")
    return Limits(float(low), float(high))


def mcnemar_p(table: Table) -> tuple[float | None, float | None, str | None]:
    """McNemar's exact conditional and mid-p values, two-sided, and the reason where there is no discordant pair."""
    b, c = table.adapter_only, table.base_only
    if b + c == 0:
        return None, None, "no pair differs" if table.n else NO_PAIRS
    exact = float(mcnemar([[table.both, c], [b, table.neither]], exact=True).pvalue)
    point = float(stats.binom.pmf(min(b, c), b + c, 0.5))
    # With b = c the two tails share the middle, which the exact value already cuts at 1.
    midp = 1 - point / 2 if b == c else exact - point
    return exact, midp, None


def is_non_inferior(lower: float | None, margin: float) -> bool | None:
    """True where the interval's lower bound lies above −margin (both fractions); None without a bound.

    With a 95 % interval this is the usual one-sided test at 2.5 %.
    """
    return None if lower is None else lower > -margin
