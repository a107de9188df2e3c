"""How far one model's next-token distributions are from another's, on the same tokens."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Logits = NDArray[np.floating]


@dataclass(frozen=True)
class Divergence:
    """Sums over tokens, so that turns can be added up.

    :param tokens: predicted tokens.
    :param agreeing: tokens whose likeliest next token is the same in both.
    :param kl_sum: sum of the Kullback-Leibler divergences, in nats.
    :param kl_max: the largest of them, in nats.
    """

    tokens: int = 0
    agreeing: int = 0
    kl_sum: float = 0.0
    kl_max: float = 0.0

    def __add__(self, other: Divergence) -> Divergence:
        return Divergence(
            self.tokens + other.tokens,
            self.agreeing + other.agreeing,
            self.kl_sum + other.kl_sum,
            max(self.kl_max, other.kl_max),
        )

    def summary(self) -> dict[str, float | int]:
        """Tokens, top-1 agreement as a fraction, mean and maximum divergence in nats.

        :raises ValueError: there is no token.
        """
        if not self.tokens:
            raise ValueError("no token to compare")
        return {
            "tokens": self.tokens,
            "top1_agreement": self.agreeing / self.tokens,
            "kl_mean": self.kl_sum / self.tokens,
            "kl_max": self.kl_max,
        }


def log_softmax(logits: Logits) -> NDArray[np.float64]:
    """Natural logarithms of the probabilities, in double precision, over the last axis."""
    shifted = logits.astype(np.float64) - logits.max(axis=-1, keepdims=True)
    result: NDArray[np.float64] = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return result


def compare(reference: Logits, candidate: Logits) -> Divergence:
    """Compare two models' logits.

    The divergence is KL(reference || candidate) = sum_v p(v) (ln p(v) - ln q(v)), S. Kullback and R. A. Leibler,
    "On information and sufficiency", 1951. Entries past the shorter vocabulary are padding of the
    embedding and are cut.

    :param reference: logits of shape (tokens, vocabulary).
    :param candidate: the same of the other model; its vocabulary may be padded differently.
    :raises ValueError: the numbers of tokens differ, or a value is not finite.
    """
    if reference.ndim != 2 or candidate.ndim != 2 or len(reference) != len(candidate):
        raise ValueError(f"logits of shapes {reference.shape} and {candidate.shape} cannot be compared")
    width = min(reference.shape[1], candidate.shape[1])
    reference, candidate = reference[:, :width], candidate[:, :width]
    if not (np.isfinite(reference).all() and np.isfinite(candidate).all()):
        raise ValueError("logits hold values that are not finite")
    if not len(reference):
        return Divergence()
    p, q = log_softmax(reference), log_softmax(candidate)
    # A divergence is never negative; rounding makes it so in the last digits where p and q are the same.
    kl = np.maximum((np.exp(p) * (p - q)).sum(axis=-1), 0.0)
    agreeing = int((reference.argmax(axis=-1) == candidate.argmax(axis=-1)).sum())
    return Divergence(len(kl), agreeing, float(kl.sum()), float(kl.max()))
