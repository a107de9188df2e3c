"""What a paired comparison of n tasks can show: minimum detectable effect and needed n.

McNemar's test in its normal approximation: under no difference the variance of a paired difference is the share ψ of
discordant pairs, under a difference δ it is ψ − δ². Hence n = (z_{α/2} √ψ + z_β √(ψ − δ²))² / δ²
(R. J. Connor, Biometrics 43 (1987) 207–211; O. S. Miettinen, Biometrics 24 (1968) 339–352), which statsmodels has as
``normal_sample_size_one_tail`` and ``normal_power_het``. All quantities are fractions.
"""

from __future__ import annotations

import math

from scipy.optimize import brentq
from statsmodels.stats.power import normal_power_het, normal_sample_size_one_tail


def power_of(difference: float, discordant: float, n: int, confidence: float = 0.95) -> float:
    """Probability that McNemar's test finds a true difference in its direction.

    :param difference: true difference, 0 < difference <= discordant.
    :param discordant: share ψ of pairs that differ.
    """
    spread = math.sqrt(max(discordant - difference**2, 1e-12))
    power = normal_power_het(
        difference,
        n,
        1 - confidence,
        std_null=math.sqrt(discordant),
        std_alternative=spread,
        alternative="two-sided",
    )
    return float(power)


def needed_n(difference: float, discordant: float, confidence: float = 0.95, power: float = 0.8) -> int | None:
    """Tasks needed to detect ``difference`` with that power; None where it exceeds the share of discordant pairs."""
    if not 0 < difference <= discordant:
        return None
    spread = math.sqrt(max(discordant - difference**2, 0.0))
    n = normal_sample_size_one_tail(
        difference, power, (1 - confidence) / 2, std_null=math.sqrt(discordant), std_alternative=spread
    )
    # 58.0000000001 is 58 tasks; the formula's own error is far larger.
    return math.ceil(float(n) - 1e-6)


def detectable(
    discordant: float, n: int, confidence: float = 0.95, power: float = 0.8
) -> tuple[float | None, str | None]:
    """Smallest true difference that n pairs detect with that power, given the share of discordant pairs.

    :return: the difference, or None and the reason.
    """
    if n == 0:
        return None, "no pair is scored on both sides"
    if discordant <= 0:
        return None, "no pair differs, so the share of pairs that would is not known"

    def shortfall(difference: float) -> float:
        return power_of(difference, discordant, n, confidence) - power

    if shortfall(discordant) < 0:
        return None, f"{n} pairs of which {100 * discordant:.0f} % differ detect nothing at this power"
    return float(brentq(shortfall, 1e-9, discordant, xtol=1e-12)), None
