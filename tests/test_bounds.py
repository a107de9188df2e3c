"""Bounds of the difference where grades are missing."""

from __future__ import annotations

import pytest

from scripts.stats.bounds import missing_bounds


def test_by_hand() -> None:
    pairs = [(1.0, 1.0), (0.0, 1.0), (None, 1.0), (0.0, None), (None, None)]
    worst, best = missing_bounds(pairs) or (9, 9)
    assert worst == pytest.approx((0 + 1 + 0 + 0 - 1) / 5)
    assert best == pytest.approx((0 + 1 + 1 + 1 + 1) / 5)


def test_nothing_missing_is_a_point() -> None:
    assert missing_bounds([(1.0, 0.0), (0.0, 0.0)]) == (-0.5, -0.5)


def test_all_missing_says_nothing() -> None:
    assert missing_bounds([(None, None)]) == (-1.0, 1.0)


def test_no_tasks() -> None:
    assert missing_bounds([]) is None
