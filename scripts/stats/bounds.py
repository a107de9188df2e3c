"""What the pairs that are missing could have changed: worst- and best-case bounds of the difference.

C. F. Manski, Partial Identification of Probability Distributions (2003), chapter 1: every unknown outcome is set to
what hurts (or helps) the adapter most. No assumption is made on why it is missing.
"""

from __future__ import annotations

from collections.abc import Iterable


def missing_bounds(pairs: Iterable[tuple[float | None, float | None]]) -> tuple[float, float] | None:
    """Bounds of adapter − base over all tasks, as fractions.

    :param pairs: outcome of base and adapter on each task, 0 to 1; None where there is no grade.
    :return: worst and best case, or None without tasks.
    """
    worst = best = 0.0
    tasks = 0
    for base, adapter in pairs:
        tasks += 1
        worst += (0.0 if adapter is None else adapter) - (1.0 if base is None else base)
        best += (1.0 if adapter is None else adapter) - (0.0 if base is None else base)
    return (worst / tasks, best / tasks) if tasks else None
