"""Divergence of logits, on values worked out by hand."""

from __future__ import annotations

import math

import pytest

np = pytest.importorskip("numpy")

from scripts.gguf.divergence import Divergence, compare, log_softmax  # noqa: E402


def logits(*rows: list[float]):  # type: ignore[no-untyped-def]
    """Logits of rows of probabilities."""
    return np.log(np.array(rows))


def test_a_divergence_of_two_coins() -> None:
    # KL((1/2, 1/2) || (1/4, 3/4)) = 1/2 ln 2 + 1/2 ln(2/3) = ln 2 - 1/2 ln 3
    found = compare(logits([0.5, 0.5]), logits([0.25, 0.75]))
    assert found.kl_sum == pytest.approx(math.log(2) - math.log(3) / 2, abs=1e-12)
    assert found.kl_max == found.kl_sum


def test_the_order_matters() -> None:
    # KL((1/4, 3/4) || (1/2, 1/2)) = 3/4 ln 3 - ln 2
    found = compare(logits([0.25, 0.75]), logits([0.5, 0.5]))
    assert found.kl_sum == pytest.approx(0.75 * math.log(3) - math.log(2), abs=1e-12)


def test_a_constant_added_to_logits_changes_nothing() -> None:
    some = logits([0.2, 0.3, 0.5], [0.6, 0.3, 0.1])
    found = compare(some, some + np.array([[1000.0], [-50.0]]))
    assert found == Divergence(
        tokens=2, agreeing=2, kl_sum=pytest.approx(0, abs=1e-12), kl_max=pytest.approx(0, abs=1e-12)
    )


def test_top_1_agreement_counts_tokens() -> None:
    reference = logits([0.9, 0.1], [0.1, 0.9], [0.6, 0.4])
    candidate = logits([0.8, 0.2], [0.7, 0.3], [0.9, 0.1])
    assert compare(reference, candidate).agreeing == 2


def test_turns_add_up() -> None:
    total = Divergence(2, 1, 0.3, 0.2) + Divergence(3, 3, 0.2, 0.1)
    assert total.summary() == {"tokens": 5, "top1_agreement": 0.8, "kl_mean": pytest.approx(0.1), "kl_max": 0.2}


def test_padding_of_the_vocabulary_is_cut() -> None:
    reference = np.array([[1.0, 2.0, 3.0]])
    candidate = np.array([[1.0, 2.0, 3.0, 99.0]])
    assert compare(reference, candidate).kl_sum == pytest.approx(0, abs=1e-12)


def test_extreme_logits_stay_finite() -> None:
    assert compare(np.array([[1e4, 0.0]]), np.array([[0.0, 1e4]])).kl_sum == pytest.approx(1e4)
    assert log_softmax(np.array([[0.0, 0.0]])).tolist() == [[pytest.approx(-math.log(2))] * 2]


@pytest.mark.parametrize("bad", [np.array([[np.nan, 1.0]]), np.array([[np.inf, 1.0]]), np.zeros((2, 2)), np.zeros(2)])
def test_what_cannot_be_compared_is_refused(bad) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError):
        compare(np.zeros((1, 2)), bad)


def test_no_token_has_no_mean() -> None:
    with pytest.raises(ValueError, match="no token"):
        compare(np.zeros((0, 4)), np.zeros((0, 4))).summary()
