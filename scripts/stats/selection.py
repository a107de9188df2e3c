"""Choosing a checkpoint: which of a training run's adapters is published, and by what rule. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import NormalDist
from typing import Literal

from scripts.study.attempts import Attempt
from scripts.study.config import Section

On = Literal["validation", "heldout", "final"]

PLACES = {"validation": "validation suites", "heldout": "held-out suites"}


def rule_text(on: On, standard_errors: float) -> str:
    """The rule in words, as it stands in the record and on the card."""
    if on == "final":
        return "The last checkpoint of the run, whatever it solves."
    plural = "" if standard_errors == 1 else "s"
    within = f"within {standard_errors:g} standard error{plural} of the most" if standard_errors else "with the most"
    text = (
        f"Of the checkpoints {within} attempts solved on the {PLACES[on]} (attempts that are graded for every "
        "checkpoint), the one with the fewest tool calls on solved attempts; then the earlier step."
    )
    if on == "heldout":
        text += " The same suites measure the published difference, which is optimistic for it."
    return text


class SelectionError(ValueError):
    """No checkpoint can be chosen; the message says why."""


class Candidate(Section):
    """One checkpoint and what it did on the suites that decide."""

    policy: str
    """`step-<n>`."""
    step: int
    n: int
    """Attempts that count: graded for every candidate."""
    solved: int
    """Of the n."""
    rate: float | None
    """solved / n; null where n is 0."""
    rate_low: float | None
    rate_high: float | None
    """Wilson's score interval of the rate at the given confidence."""
    tool_calls: float | None
    """Mean tool calls of the solved ones among the n; null where none is."""
    attempts: int
    scored: int
    infrastructure: int
    """Attempts in all, graded, and without a grade for this candidate."""


class Choice(Section):
    """The chosen checkpoint, the others, and the rule: a part of ``select/<harness>.json``."""

    on: On
    rule: str
    optimistic: bool
    """True where the suites that decided also measure the published difference."""
    confidence: float
    selected: str
    step: int
    tied: list[str]
    """Checkpoints that solved as many, within the rule's standard errors; the selected one included."""
    candidates: list[Candidate]
    """By step."""


def step_of(policy: str) -> int:
    """The n of ``step-<n>``.

    :raises SelectionError: the name is not of that form.
    """
    name, _, number = policy.partition("-")
    if name != "step" or not number.isdigit():
        raise SelectionError(f"{policy}: not a checkpoint; names are step-<n>")
    return int(number)


def wilson(solved: int, n: int, confidence: float) -> tuple[float, float] | None:
    """Wilson's score interval of a proportion (Wilson 1927, doi:10.1080/01621459.1927.10502953); None for n = 0."""
    if n == 0:
        return None
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    p = solved / n
    centre = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return max(0.0, centre - half), min(1.0, centre + half)


def standard_error(solved: int, n: int) -> float:
    """Standard error of a number of solved attempts, in attempts, from the rate with two solved and two failed added.

    The added four keep it above zero where all or none are solved (Agresti and Coull 1998, doi:10.2307/2685469).
    """
    rate = (solved + 2) / (n + 4)
    return n * math.sqrt(rate * (1 - rate) / (n + 4))


def choose(
    on: On,
    attempts: Mapping[str, Sequence[Attempt]],
    confidence: float = 0.95,
    steps: Sequence[int] = (),
    standard_errors: float = 0.0,
) -> Choice:
    """Choose among checkpoints.

    :param on: where: see :func:`rule_text`.
    :param attempts: by policy (``step-<n>``), its attempts on the deciding suites.
    :param confidence: level of the rates' intervals.
    :param steps: steps of all saved checkpoints; for ``final`` alone they are enough.
    :param standard_errors: how far below the most solved a checkpoint may stay and still count as equal: 0 for the
        most alone; 1 is the one-standard-error rule (Breiman et al. 1984, Classification and Regression Trees, 3.4.3).
    :raises SelectionError: no candidates; candidates that did not try the same attempts at the same tasks under the
        same conditions; nothing that is graded for all of them.
    """
    rows = {policy: {(row.suite, *row.key): row for row in attempts[policy]} for policy in attempts}
    _check_alike(rows)
    by_step = sorted(rows, key=step_of)
    shared = set.intersection(*(_scored(rows[policy]) for policy in by_step)) if by_step else set()
    candidates = [_candidate(policy, rows[policy], shared, confidence) for policy in by_step]
    if on == "final":
        last = max([*steps, *(candidate.step for candidate in candidates)], default=None)
        if last is None:
            raise SelectionError("there is no checkpoint to select")
        selected, tied = f"step-{last}", [f"step-{last}"]
    else:
        if not candidates:
            raise SelectionError(f"no attempts on the {on} suites to select by")
        if not shared:
            raise SelectionError(f"no attempt on the {on} suites is graded for every checkpoint; measure them again")
        most = max(candidate.solved for candidate in candidates)
        enough = most - standard_errors * standard_error(most, len(shared)) if standard_errors else most
        best = [candidate for candidate in candidates if candidate.solved >= enough]
        selected = min(best, key=lambda c: (math.inf if c.tool_calls is None else c.tool_calls, c.step)).policy
        tied = [candidate.policy for candidate in best]
    return Choice(
        on=on,
        rule=rule_text(on, standard_errors),
        optimistic=on == "heldout",
        confidence=confidence,
        selected=selected,
        step=step_of(selected),
        tied=tied,
        candidates=candidates,
    )


Key = tuple[str, str, int]


def _scored(rows: Mapping[Key, Attempt]) -> set[Key]:
    return {key for key, row in rows.items() if row.status == "scored"}


def _candidate(policy: str, rows: Mapping[Key, Attempt], shared: set[Key], confidence: float) -> Candidate:
    solved = [rows[key] for key in shared if rows[key].solved]
    interval = wilson(len(solved), len(shared), confidence)
    return Candidate(
        policy=policy,
        step=step_of(policy),
        n=len(shared),
        solved=len(solved),
        rate=len(solved) / len(shared) if shared else None,
        rate_low=interval[0] if interval else None,
        rate_high=interval[1] if interval else None,
        tool_calls=sum(row.tool_calls for row in solved) / len(solved) if solved else None,
        attempts=len(rows),
        scored=len(_scored(rows)),
        infrastructure=len(rows) - len(_scored(rows)),
    )


def _check_alike(rows: Mapping[str, Mapping[Key, Attempt]]) -> None:
    first: str | None = None
    for policy in sorted(rows, key=step_of):
        if first is None:
            first = policy
            continue
        apart = sorted(rows[policy].keys() ^ rows[first].keys())
        if apart:
            suite, task, attempt = apart[0]
            raise SelectionError(
                f"{policy} and {first} were not measured on the same attempts: {len(apart)} differ, such as "
                f"{suite}/{task}, attempt {attempt}"
            )
        for key, row in rows[policy].items():
            for field in ("task_sha256", "harness", "harness_version", "base_model", "sampling", "limits"):
                if getattr(row, field) != getattr(rows[first][key], field):
                    raise SelectionError(
                        f"{policy} and {first} differ in {field} on {key[0]}/{key[1]}; measure both anew"
                    )
