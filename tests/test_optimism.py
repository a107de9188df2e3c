"""Optimism of picking the best checkpoint, against order statistics and simulation."""

from __future__ import annotations

import numpy as np
import pytest

from scripts.stats import optimism


@pytest.mark.parametrize(("m", "mean"), [(1, 0.0), (2, 0.56419), (3, 0.84628), (5, 1.16296), (10, 1.53875)])
def test_published_order_statistics(m: int, mean: float) -> None:
    """H. L. Harter, Biometrika 48 (1961) 151, table 1."""
    assert optimism.expected_maximum(m) == pytest.approx(mean, abs=5e-6)


def test_at_least_one_checkpoint() -> None:
    with pytest.raises(ValueError, match="at least one"):
        optimism.expected_maximum(0)


def simulate(candidates: int, n: int, rng: np.random.Generator) -> np.ndarray:
    """Equally good checkpoints over tasks of different difficulty."""
    difficulty = rng.beta(1.2, 0.5, n)
    return (rng.random((candidates, n)) < difficulty).astype(float)


def test_both_estimates_meet_the_truth() -> None:
    """Ten equally good checkpoints, 150 tasks: the best one's lead is what the estimates say, on average."""
    rng = np.random.default_rng(3)
    leads, analytic, bootstrap = [], [], []
    for _ in range(40):
        outcomes = simulate(10, 150, rng)
        rates = outcomes.mean(axis=1)
        leads.append(rates.max() - rates.mean())
        discordant = np.mean([np.mean(outcomes[i] != outcomes[i + 1]) for i in range(9)])
        analytic.append(optimism.optimism_of_equals(10, float(discordant), 150))
        bootstrap.append(optimism.optimism_by_bootstrap(outcomes, 200, 0))
    truth = np.mean(leads)
    assert np.mean(analytic) == pytest.approx(truth, rel=0.1)
    # Observed rates are already spread by chance, so the bootstrap sees less of a tie than there is.
    assert 0.4 * truth < np.mean(bootstrap) < 1.1 * truth


def test_bootstrap_by_hand() -> None:
    """Two tasks, each solved by one of two checkpoints: half the draws are lopsided, and the best scores 1 for 0.5."""
    assert optimism.optimism_by_bootstrap([[1, 0], [0, 1]], 20000, 0) == pytest.approx(0.25, abs=0.02)


def test_a_clear_winner_is_not_flattered() -> None:
    outcomes = np.array([[0.0] * 40, [1.0] * 40])
    assert optimism.optimism_by_bootstrap(outcomes, 200, 0) == pytest.approx(0, abs=1e-12)


def test_one_checkpoint_is_not_flattered() -> None:
    assert optimism.optimism_by_bootstrap([[1, 0, 1]], 500, 0) == 0
    assert optimism.optimism_of_equals(1, 0.3, 100) == 0


def test_edges() -> None:
    assert optimism.optimism_by_bootstrap(np.zeros((3, 0)), 10, 0) is None
    assert optimism.optimism_of_equals(10, 0.1, 0) is None
    with pytest.raises(ValueError, match="checkpoints × tasks"):
        optimism.optimism_by_bootstrap([1, 0], 10, 0)


def test_independent_checkpoints_are_the_upper_estimate() -> None:
    assert optimism.optimism_of_independent(10, 0.849, 146) > optimism.optimism_of_equals(10, 19 / 146, 146)
