"""Tool calls of the adapter against the base on the tasks that both solved: ratio of totals and its interval.

The interval is a percentile bootstrap over all pairs of the comparison, jointly: a draw takes n pairs with
replacement, so that the number of tasks that both solved varies too (B. Efron, R. J. Tibshirani, An Introduction to the
Bootstrap, 1993, chapters 10 and 13). Pairs with equal counts are interchangeable, so a draw is one multinomial over the
distinct pairs of counts: its cost does not grow with n.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

CHUNK_CELLS = 4_000_000  # numbers held at once: 32 MB


class Ratio(NamedTuple):
    """Change adapter / base − 1 as a fraction, its limits, and why either is missing."""

    change: float | None
    low: float | None
    high: float | None
    reason: str | None = None


def change_of_totals(base: ArrayLike, adapter: ArrayLike) -> tuple[float | None, str | None]:
    """Total of the adapter over total of the base, minus one; both on the same tasks."""
    x, y = np.asarray(base, dtype=float), np.asarray(adapter, dtype=float)
    if x.size == 0:
        return None, "no task was solved by both"
    if x.sum() == 0:
        return None, "the base made no tool call on the tasks that both solved"
    return float(y.sum() / x.sum() - 1), None


def ratio_interval(
    base: ArrayLike, adapter: ArrayLike, n: int, draws: int, seed: int, confidence: float = 0.95
) -> Ratio:
    """Change of the totals with its bootstrap interval.

    :param base: shape (m,), the base's tool calls on the m tasks that both solved.
    :param adapter: shape (m,), the adapter's.
    :param n: number of pairs in the comparison, m of which both solved.
    :param draws: bootstrap draws.
    :param seed: of numpy's default generator; equal seeds give equal limits.
    """
    x, y = np.asarray(base, dtype=float), np.asarray(adapter, dtype=float)
    if x.shape != y.shape or n < x.size:
        raise ValueError(f"{x.size} and {y.size} tool-call counts of {n} pairs: they must be aligned and at most n")
    change, reason = change_of_totals(x, y)
    if change is None:
        return Ratio(None, None, None, reason)
    if x.size == 1:
        return Ratio(change, None, None, "one task that both solved has no spread")
    if np.allclose(y * x.sum(), x * y.sum()):
        return Ratio(change, None, None, "the ratio is the same on every task, so a bootstrap has no spread")
    totals = _draw_totals(x, y, n, draws, np.random.default_rng(seed))
    ratios = totals[1][totals[0] > 0] / totals[0][totals[0] > 0] - 1
    if ratios.size < 0.99 * draws:
        lost = 1 - ratios.size / draws
        return Ratio(change, None, None, f"{100 * lost:.0f} % of the draws hold no tool call of the base")
    low, high = np.quantile(ratios, [0.5 - confidence / 2, 0.5 + confidence / 2])
    return Ratio(change, float(low), float(high))


def _draw_totals(
    x: NDArray[np.float64], y: NDArray[np.float64], n: int, draws: int, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Totals of base and adapter in each draw, shape (2, draws)."""
    kinds, counts = np.unique(np.stack([x, y]), axis=1, return_counts=True)
    kinds = np.concatenate([kinds, np.zeros((2, 1))], axis=1)
    shares = np.append(counts, n - x.size) / n
    out = np.empty((2, draws))
    chunk = max(1, CHUNK_CELLS // shares.size)
    for start in range(0, draws, chunk):
        size = min(chunk, draws - start)
        out[:, start : start + size] = kinds @ rng.multinomial(n, shares, size=size).T
    return out
