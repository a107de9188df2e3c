"""Ratio of tool-call totals and its bootstrap."""

from __future__ import annotations

import numpy as np
import pytest

from scripts.stats import calls


def test_change_of_totals() -> None:
    assert calls.change_of_totals([4, 6], [3, 2]) == (pytest.approx(-0.5), None)


@pytest.mark.parametrize(
    ("base", "adapter", "change", "reason"),
    [
        ([], [], None, "no task was solved by both"),
        ([0, 0], [1, 2], None, "the base made no tool call"),
        ([4], [2], -0.5, "one task"),
        ([4, 2, 8], [2, 1, 4], -0.5, "the same on every task"),
    ],
)
def test_edges(base: list[int], adapter: list[int], change: float | None, reason: str) -> None:
    ratio = calls.ratio_interval(base, adapter, 10, 500, 0)
    assert ratio.change == change
    assert ratio.low is None
    assert ratio.high is None
    assert reason in (ratio.reason or "")


def test_interval_agrees_with_the_delta_method() -> None:
    """At 2,000 tasks the percentile interval is the linearised one to a few hundredths."""
    rng = np.random.default_rng(5)
    base = rng.integers(2, 9, 2000)
    adapter = rng.integers(1, 6, 2000)
    ratio = calls.ratio_interval(base, adapter, 2500, 4000, 1)
    centre = adapter.sum() / base.sum()
    residuals = adapter - centre * base
    half = 1.96 * np.sqrt((residuals**2).sum()) / base.sum()
    assert ratio.low == pytest.approx(centre - 1 - half, rel=0.05)
    assert ratio.high == pytest.approx(centre - 1 + half, rel=0.05)


def test_the_multinomial_is_the_bootstrap_of_tasks() -> None:
    """Drawing kinds of tasks gives the limits of drawing the tasks one by one."""
    base, adapter, n = np.array([3, 3, 5, 9, 2, 3]), np.array([1, 1, 5, 4, 2, 2]), 9
    rng = np.random.default_rng(0)
    x, y = np.append(base, [0, 0, 0]), np.append(adapter, [0, 0, 0])
    draws = rng.integers(0, n, (20000, n))
    total = x[draws].sum(axis=1)
    naive = np.quantile(y[draws].sum(axis=1)[total > 0] / total[total > 0] - 1, [0.025, 0.975])
    ratio = calls.ratio_interval(base, adapter, n, 20000, 0)
    assert (ratio.low, ratio.high) == pytest.approx(tuple(naive), abs=0.015)


def test_same_seed_same_limits() -> None:
    base, adapter = list(range(1, 40)), [(7 * i) % 11 for i in range(1, 40)]
    one, two, other = (calls.ratio_interval(base, adapter, 50, 300, seed) for seed in (7, 7, 8))
    assert one == two
    assert one != other


def test_few_tasks_that_both_solved() -> None:
    """Where many draws hold none of them the interval is not defined, rather than taken from the rest."""
    ratio = calls.ratio_interval([4, 2], [1, 2], 300, 2000, 0)
    assert ratio.low is None
    assert "of the draws" in (ratio.reason or "")


def test_chunks_do_not_change_the_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "CHUNK_CELLS", 40)
    ratio = calls.ratio_interval([4, 6, 3, 8], [3, 1, 3, 2], 6, 1001, 0)
    assert ratio.low < ratio.change < ratio.high


def test_misaligned_counts_are_refused() -> None:
    with pytest.raises(ValueError, match="must be aligned"):
        calls.ratio_interval([1, 2], [1], 5, 10, 0)
    with pytest.raises(ValueError, match="at most n"):
        calls.ratio_interval([1, 2], [1, 2], 1, 10, 0)
