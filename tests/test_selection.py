"""The choice of a checkpoint: the rule, its ties, and what cannot be compared."""

import pytest
from statsmodels.stats.proportion import proportion_confint

from scripts.stats.selection import SelectionError, choose, standard_error, wilson
from tests.test_attempts import BROKEN, attempt

ENDED = {**BROKEN, "error": {"type": "EngineDied", "message": "gone"}}


def rows(policy, outcomes, calls=3):
    """Attempts of one policy: 1 solved, 0 not, None infrastructure; calls are those of each attempt."""
    made = []
    for number, outcome in enumerate(outcomes):
        changes = ENDED if outcome is None else {"solved": bool(outcome), "rewards": {"correctness": float(outcome)}}
        counts = {"tool_calls": calls, "tool_calls_by_name": {"bash": calls}}
        made.append(attempt(f"task-{number}", policy=policy, suite="val", **counts, **changes))
    return made


def test_most_solved_wins():
    choice = choose("validation", {"step-6": rows("step-6", [1, 0, 0]), "step-12": rows("step-12", [1, 1, 0], calls=9)})
    assert (choice.selected, choice.step, choice.tied) == ("step-12", 12, ["step-12"])
    assert [candidate.policy for candidate in choice.candidates] == ["step-6", "step-12"]
    assert not choice.optimistic


def test_ties_go_to_fewer_calls_on_solved_then_to_the_earlier_step():
    many, few = rows("step-6", [1, 1, 0], calls=4), rows("step-12", [1, 0, 1], calls=2)
    assert choose("validation", {"step-6": many, "step-12": few}).selected == "step-12"
    alike = rows("step-100", [1, 1, 0], calls=2)
    choice = choose("validation", {"step-100": alike, "step-12": few, "step-6": many})
    assert choice.selected == "step-12"
    assert choice.tied == ["step-6", "step-12", "step-100"]


def test_within_a_standard_error_fewer_calls_win():
    """38 of 40 solved: one standard error is 1.73 attempts, from 40 of 44; 36 are too few, 37 are not."""
    assert standard_error(38, 40) == pytest.approx(40 * (40 / 44 * 4 / 44 / 44) ** 0.5)
    solves_most = rows("step-6", [1] * 38 + [0] * 2, calls=4)
    near = rows("step-12", [0] * 3 + [1] * 37, calls=2)
    far = rows("step-18", [0] * 4 + [1] * 36, calls=1)
    three = {"step-6": solves_most, "step-12": near, "step-18": far}
    choice = choose("validation", three, standard_errors=1.0)
    assert (choice.selected, choice.tied) == ("step-12", ["step-6", "step-12"])
    assert "within 1 standard error of the most" in choice.rule
    assert choose("validation", three).selected == "step-6"


def test_standard_error_where_all_are_solved_is_above_zero():
    assert standard_error(40, 40) == pytest.approx(1.256, abs=1e-3)
    assert standard_error(0, 40) == pytest.approx(standard_error(40, 40))


def test_calls_of_unsolved_attempts_do_not_count():
    one = rows("step-6", [1, 0], calls=2)
    wasteful = [*rows("step-12", [1], calls=1), *rows("step-12", [1, 0], calls=9)[1:]]
    choice = choose("validation", {"step-6": one, "step-12": wasteful})
    assert choice.candidates[1].tool_calls == 1.0
    assert choice.selected == "step-12"


def test_an_ungraded_attempt_counts_for_nobody():
    broken, whole = rows("step-6", [1, 1, None]), rows("step-12", [1, 0, 1])
    choice = choose("validation", {"step-6": broken, "step-12": whole})
    assert choice.selected == "step-6"
    assert [(c.n, c.solved, c.scored, c.infrastructure) for c in choice.candidates] == [(2, 2, 2, 1), (2, 1, 3, 0)]


def test_none_solved_takes_the_earliest():
    choice = choose("validation", {"step-12": rows("step-12", [0]), "step-6": rows("step-6", [0])})
    assert choice.selected == "step-6"
    assert choice.candidates[0].tool_calls is None


def test_heldout_says_that_it_is_optimistic():
    choice = choose("heldout", {"step-6": rows("step-6", [1])})
    assert choice.optimistic
    assert "optimistic" in choice.rule


def test_final_takes_the_last_even_without_attempts():
    assert choose("final", {}, steps=[6, 24, 18]).selected == "step-24"
    measured = {"step-6": rows("step-6", [1]), "step-12": rows("step-12", [0])}
    assert choose("final", measured).selected == "step-12"
    with pytest.raises(SelectionError, match="no checkpoint"):
        choose("final", {})


def test_what_cannot_be_compared_is_refused():
    with pytest.raises(SelectionError, match="no attempts"):
        choose("validation", {})
    with pytest.raises(SelectionError, match="not measured on the same attempts: 1 differ, such as val/task-1"):
        choose("validation", {"step-6": rows("step-6", [1]), "step-12": rows("step-12", [1, 1])})
    with pytest.raises(SelectionError, match="graded for every checkpoint"):
        choose("validation", {"step-6": rows("step-6", [1, None]), "step-12": rows("step-12", [None, 1])})
    other = [row.model_copy(update={"sampling": {"temperature": 0.0}}) for row in rows("step-12", [1])]
    with pytest.raises(SelectionError, match="differ in sampling"):
        choose("validation", {"step-6": rows("step-6", [1]), "step-12": other})
    with pytest.raises(SelectionError, match="not a checkpoint"):
        choose("validation", {"base": rows("base", [1])})


@pytest.mark.parametrize(("solved", "n"), [(0, 10), (10, 10), (3, 40), (81, 148)])
def test_wilson_is_statsmodels(solved, n):
    assert wilson(solved, n, 0.95) == pytest.approx(proportion_confint(solved, n, 0.05, "wilson"))
    assert wilson(0, 0, 0.95) is None
