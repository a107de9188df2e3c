"""Numbers as a card prints them."""

from __future__ import annotations

import pytest

from scripts.card import formats


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (formats.plain(-0.04), "0.0"),
        (formats.signed(3.425), "+3.4"),
        (formats.signed(-0.685), "-0.7"),
        (formats.signed(-0.01), "0.0"),
        (formats.percent(81.5068), "81.5%"),
        (formats.percent(None), "–"),
        (formats.points(None), "–"),
        (formats.span(-2.44, 9.29), "-2.4 to +9.3"),
        (formats.span(-54.6, -39.7, "%"), "-55% to -40%"),
        (formats.span(None, 1.0), "–"),
        (formats.change(-37.2), "-37%"),
        (formats.count(65536), "65,536"),
        (formats.count(1200.0), "1,200"),
        (formats.count(2.5), "2.5"),
        (formats.scientific(1e-5), "1e-5"),
        (formats.scientific(2.5e-3), "2.5e-3"),
        (formats.probability(0.0004), "< 0.001"),
        (formats.probability(0.092), "0.092"),
        (formats.probability(1.0), "1.00"),
        (formats.probability(None), "–"),
        (formats.divergence(0), "0"),
        (formats.divergence(1.23e-5), "1.2e-5"),
        (formats.divergence(0.4211), "0.42"),
        (formats.size(2_100_000), "2.1 MB"),
        (formats.size(97), "97 B"),
        (formats.duration(45), "45 s"),
        (formats.duration(840), "14 min"),
        (formats.duration(12600), "3.5 h"),
        (formats.listing([]), ""),
        (formats.listing(["a", "b", "c"]), "a, b and c"),
        (formats.causes({"b": 0}), "none"),
        (formats.causes({"b": 2, "a": 1}), "1 (a) and 2 (b)"),
        (formats.plural(1, "task"), "1 task"),
        (formats.plural(2, "task"), "2 tasks"),
    ],
)
def test_format(text: str, expected: str) -> None:
    assert text == expected
