"""How much a checkpoint gains by being picked on the very tasks that it is then reported on.

Two estimates, both of the difference as a fraction:

- with each checkpoint's outcomes: the bootstrap estimate of optimism (B. Efron, Journal of the American Statistical
  Association 78 (1983) 316–331; for the best of several, R. J. and R. Tibshirani, Annals of Applied Statistics 3 (2009)
  822–829). Tasks are drawn anew, the best checkpoint is picked on the draw, and what it scores there is set against
  what it scores on the tasks as they were.
- with nothing but the picked one's counts: m checkpoints that are equally good differ by chance alone, and the best is
  ahead of their mean by E[max of m standard normals] · √(ψ / 2n), where ψ is the share of tasks on which two
  checkpoints differ.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy import integrate, stats

CHUNK_CELLS = 4_000_000


def expected_maximum(m: int) -> float:
    """Mean of the largest of m independent standard normals (H. L. Harter, Biometrika 48 (1961) 151–165)."""
    if m < 1:
        raise ValueError(f"the best of {m} checkpoints: give at least one")
    if m == 1:
        return 0.0

    def density(x: float) -> float:
        return x * m * float(stats.norm.pdf(x)) * float(stats.norm.cdf(x)) ** (m - 1)

    return float(integrate.quad(density, -10, 10, epsabs=1e-12)[0])


def optimism_by_bootstrap(outcomes: ArrayLike, draws: int, seed: int) -> float | None:
    """Expected gain by picking the best checkpoint on the tasks themselves.

    :param outcomes: shape (checkpoints, tasks), 0 to 1, the same tasks for all.
    :return: a fraction, or None without tasks. Ties go to the first, as a fixed order must decide.
    """
    scores = np.asarray(outcomes, dtype=float)
    if scores.ndim != 2:
        raise ValueError(f"outcomes have {scores.ndim} dimensions: give checkpoints × tasks")
    if scores.size == 0:
        return None
    kinds, counts = np.unique(scores, axis=1, return_counts=True)
    rates = scores.mean(axis=1)
    best = int(rates.argmax())
    n = scores.shape[1]
    rng = np.random.default_rng(seed)
    gain = 0.0
    chunk = max(1, CHUNK_CELLS // counts.size)
    for start in range(0, draws, chunk):
        size = min(chunk, draws - start)
        drawn = kinds @ rng.multinomial(n, counts / n, size=size).T / n
        surprise = drawn - rates[:, None]
        # The best checkpoint's own surprise is zero on average; without it the draws' common noise is gone.
        gain += float((surprise[drawn.argmax(axis=0), np.arange(size)] - surprise[best]).sum())
    return gain / draws


def optimism_of_equals(candidates: int, discordant: float, n: int) -> float | None:
    """Expected gain of the best of ``candidates`` equally good checkpoints over n tasks.

    :param discordant: share ψ of tasks on which two of them differ.
    """
    return expected_maximum(candidates) * math.sqrt(discordant / (2 * n)) if n else None


def optimism_of_independent(candidates: int, rate: float, n: int) -> float | None:
    """The same where checkpoints succeed independently of each other: an upper estimate."""
    return optimism_of_equals(candidates, 2 * rate * (1 - rate), n)
