"""Power of the paired comparison, against a published sample size and against exact enumeration."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom, chi2

from scripts.stats import power


def test_published_sample_size() -> None:
    """Chow, Shao, Wang, Sample Size Calculations in Clinical Research, 2nd edition, section 6.4: discordant 0.2 and 0.5
    of all pairs need 59 pairs for 80 % power at 5 %."""
    assert power.needed_n(0.3, 0.7) == 59


def test_needed_and_detectable_agree() -> None:
    effect, reason = power.detectable(0.13, 146)
    assert reason is None
    assert effect is not None
    assert power.needed_n(effect, 0.13) in (146, 147)
    assert power.power_of(effect, 0.13, 146) == pytest.approx(0.8, abs=1e-6)


def test_power_of_mcnemar_by_enumeration() -> None:
    """The approximation is within 4 points of the exact power of the uncorrected McNemar test at n = 150."""
    n, discordant, difference = 150, 0.13, 0.09
    share = (discordant + difference) / 2 / discordant
    exact = 0.0
    for m in range(1, n + 1):
        k = np.arange(m + 1)
        significant = (2 * k - m) ** 2 / m >= chi2.ppf(0.95, 1)
        exact += binom.pmf(m, n, discordant) * binom.pmf(k, m, share)[significant & (2 * k > m)].sum()
    assert power.power_of(difference, discordant, n) == pytest.approx(exact, abs=0.04)


@pytest.mark.parametrize(
    ("discordant", "n", "reason"),
    [
        (0.1, 0, "no pair is scored on both sides"),
        (0.0, 35, "no pair differs"),
        (0.1, 10, "detect nothing at this power"),
    ],
)
def test_nothing_is_detectable(discordant: float, n: int, reason: str) -> None:
    effect, why = power.detectable(discordant, n)
    assert effect is None
    assert reason in (why or "")


def test_an_effect_larger_than_the_discordant_share_is_impossible() -> None:
    assert power.needed_n(0.2, 0.1) is None
    assert power.needed_n(0.0, 0.1) is None


def test_all_pairs_differ_the_same_way() -> None:
    assert power.detectable(1.0, 35)[0] is not None
    assert power.needed_n(1.0, 1.0) is not None
