"""Numbers as a card prints them: rounded once, here, with signs that can be read aloud."""

from __future__ import annotations


def plain(value: float, digits: int = 1) -> str:
    """Fixed digits, and never a negative zero."""
    text = f"{value:.{digits}f}"
    return text.removeprefix("-") if float(text) == 0 else text


def signed(value: float, digits: int = 1) -> str:
    """Fixed digits with a sign; zero has none."""
    text = plain(value, digits)
    return text if float(text) <= 0 else f"+{text}"


def percent(value: float | None, digits: int = 1) -> str:
    """``81.5%``; a dash where it is not defined."""
    return "–" if value is None else f"{plain(value, digits)}%"


def points(value: float | None) -> str:
    """A difference of rates, ``+3.4``; a dash where it is not defined."""
    return "–" if value is None else signed(value)


def span(low: float | None, high: float | None, unit: str = "") -> str:
    """An interval, ``-2.4 to +9.3``; a dash where it is not defined."""
    if low is None or high is None:
        return "–"
    digits = 0 if unit == "%" else 1
    return f"{signed(low, digits)}{unit} to {signed(high, digits)}{unit}"


def change(value: float | None) -> str:
    """A relative change in whole percent, ``-37%``; a dash where it is not defined."""
    return "–" if value is None else f"{signed(value, 0)}%"


def count(value: float) -> str:
    """``65,536``; fractions keep one digit."""
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.1f}"


def scientific(value: float) -> str:
    """``1e-5`` and ``2e-3``, as learning rates are written."""
    mantissa, exponent = f"{value:.6e}".split("e")
    return f"{float(mantissa):g}e{int(exponent)}"


def probability(value: float | None) -> str:
    """A p-value with two or three digits; never ``0.00``."""
    if value is None:
        return "–"
    if value < 0.001:
        return "< 0.001"
    return f"{value:.3f}" if value < 0.1 else f"{value:.2f}"


def divergence(value: float) -> str:
    """A KL divergence in nats with two significant digits."""
    text = f"{value:.2g}"
    return scientific(float(text)) if "e" in text else text


def size(value: int) -> str:
    """Bytes in decimal units, as the Hub shows them."""
    for limit, unit in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if value >= limit:
            return f"{value / limit:.1f} {unit}"
    return f"{value} B"


def duration(seconds: float) -> str:
    """``14 min`` or ``3.5 h``."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def listing(words: list[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}" if words else ""


def causes(numbers: dict[str, int]) -> str:
    """``2 (engine) and 1 (timeout)``; ``none`` for nothing."""
    return listing([f"{number} ({cause})" for cause, number in sorted(numbers.items()) if number]) or "none"


def plural(number: int, noun: str) -> str:
    """``1 task``, ``2 tasks``."""
    return f"{count(number)} {noun}{'' if number == 1 else 's'}"
