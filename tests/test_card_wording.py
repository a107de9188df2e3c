"""Every sentence that an interval chooses, at every branch."""

from __future__ import annotations

import pytest

from scripts.card import cells, limitations, wording
from scripts.card.facts import Card
from scripts.stats import estimates, paired
from scripts.stats.records import Calls, Comparison, Optimism, Side, Source, Table
from scripts.study.config import Comparison as Settings
from tests.sample_study import Sample, shared_sample


@pytest.fixture(scope="module")
def sample() -> Sample:
    return shared_sample()


def calls(
    change: float | None, low: float | None = None, high: float | None = None, reason: str | None = None
) -> Calls:
    return Calls(
        tasks=26,
        base_total=None,
        adapter_total=None,
        change_percent=change,
        low_percent=low,
        high_percent=high,
        reason=reason,
    )


def made(both: int, base_only: int, adapter_only: int, neither: int, of_calls: Calls | None = None) -> Comparison:
    """A comparison from counts, by the statistics' own functions."""
    table = paired.Table(both, base_only, adapter_only, neither)
    intervals = estimates.all_intervals(table, paired.table_array(table), None, 0.95)

    def side(solved: int) -> Side:
        return Side(
            policy="base",
            source=Source(path="counts", kind="printed", rows=1),
            solved=solved,
            rate_percent=100 * solved / table.n if table.n else None,
            rate_low_percent=None,
            rate_high_percent=None,
            attempts=table.n,
            scored=table.n,
            dropped={},
        )

    return Comparison(
        kind="measured",
        suite="counts",
        harness="pi",
        confidence=0.95,
        tasks_in_suite=table.n,
        n=table.n,
        attempts_per_task=1,
        base=side(both + base_only),
        adapter=side(both + adapter_only),
        table=Table(**table._asdict()),
        difference_points=estimates.points(table.difference),
        intervals=intervals,
        mcnemar=estimates.mcnemar_of(table),
        calls=of_calls or calls(-47.0, -55.0, -40.0),
        power=estimates.power_of((base_only + adapter_only) / table.n if table.n else None, table.n, Settings()),
        bounds=estimates.bounds_of([(1.0, 1.0)] * table.n, table.n),
        non_inferiority=estimates.non_inferiority_of(intervals, True, 5.0),
        selection=Optimism(on="validation", optimism_points=0.0, method="none"),
        by_difficulty=[],
        clusters=None,
        tasks=[],
    )


@pytest.mark.parametrize(
    ("counts", "verdict", "says"),
    [
        ((0, 0, 0, 0), "undefined", "nothing can be said"),
        ((60, 2, 30, 8), "more", "solves more of the held-out tasks"),
        ((60, 30, 2, 8), "fewer", "solves fewer of the held-out tasks"),
        ((9900, 70, 20, 10), "fewer_within", "solves slightly fewer of the held-out tasks"),
        ((112, 7, 12, 15), "as_often", "about as many tasks"),
        ((104, 12, 11, 23), "open", "could not be shown to solve as many"),
        ((8, 3, 5, 19), "open", "could not be shown to solve as many"),
    ],
)
def test_success_is_claimed_only_where_shown(counts: tuple[int, int, int, int], verdict: str, says: str) -> None:
    comparison = made(*counts)
    assert wording.verdict(comparison) == verdict
    assert says in wording.success_clause(comparison)
    assert wording.hero_title(comparison).count("\n") == 1


def test_one_interval_that_reaches_zero_forbids_more() -> None:
    # The normal interval is +0.5 to +35.4, the score interval -0.2 to +35.6.
    comparison = made(26, 3, 10, 0)
    assert (comparison.intervals["normal"].low_points or 0) > 0
    assert wording.verdict(comparison) == "as_often"


def test_four_pairs_one_way_are_not_enough_for_more_or_fewer() -> None:
    # All three intervals exclude zero, but McNemar's mid-p value is 0.0625.
    comparison = made(24, 0, 4, 7)
    assert all((comparison.intervals[name].low_points or 0) > 0 for name in ("normal", "tango", "student"))
    assert wording.verdict(comparison) == "as_often"
    assert wording.verdict(made(24, 4, 0, 7)) == "open"
    assert wording.verdict(made(24, 0, 5, 6)) == "more"


def test_a_cluster_robust_interval_that_reaches_zero_forbids_more() -> None:
    comparison = made(60, 2, 30, 8)
    for low, verdict in ((1.0, "more"), (-1.0, "as_often")):
        cluster = comparison.intervals["cluster"].model_copy(
            update={"low_points": low, "high_points": 50.0, "reason": None}
        )
        intervals = {**comparison.intervals, "cluster": cluster}
        assert wording.verdict(comparison.model_copy(update={"intervals": intervals})) == verdict


def test_no_discordant_pair_shows_only_what_the_score_interval_does() -> None:
    assert wording.verdict(made(30, 0, 0, 5)) == "open"
    assert wording.verdict(made(300, 0, 0, 50)) == "as_often"


@pytest.mark.parametrize(
    ("of_calls", "verdict", "says"),
    [
        (calls(None, reason="no task was solved by both"), "undefined", "no task was solved by both"),
        (
            calls(-47.0, -55.0, -40.0),
            "fewer",
            "47% fewer tool calls on the tasks that both solve (95% interval -55% to -40%)",
        ),
        (calls(12.0, 3.0, 20.0), "more", "12% more tool calls"),
        (calls(-5.0, -12.0, 3.0), "open", "No change in tool calls"),
        (calls(-37.0), "fewer_no_interval", "37% fewer tool calls"),
        (calls(4.0), "more_no_interval", "4% more tool calls"),
        (calls(0.0), "equal_no_interval", "as many tool calls"),
    ],
)
def test_calls_are_claimed_only_where_shown(of_calls: Calls, verdict: str, says: str) -> None:
    comparison = made(112, 7, 12, 15, of_calls)
    assert wording.call_verdict(of_calls) == verdict
    assert says in wording.calls_clause(comparison)
    assert wording.hero_title(comparison)


@pytest.mark.parametrize(
    ("counts", "says"),
    [
        ((0, 0, 0, 0), "no pair of attempts was graded"),
        ((60, 2, 30, 8), "solves more tasks"),
        ((60, 30, 2, 8), "solves fewer tasks"),
        ((8, 3, 5, 19), "within noise"),
    ],
)
def test_further_suites(sample: Sample, counts: tuple[int, int, int, int], says: str) -> None:
    measured = sample.card.comparisons[1].model_copy(update={"comparison": made(*counts)})
    assert says in wording.further_suite(measured, sample.card.suite("sample-other"))


def with_checkpoint(card: Card, **changes: object) -> Card:
    return card.model_copy(update={"checkpoint": card.checkpoint.model_copy(update=changes)})


def with_optimism(card: Card, optimism: Optimism) -> Card:
    main = card.comparisons[0]
    comparison = main.comparison.model_copy(update={"selection": optimism})
    return card.model_copy(update={"comparisons": [main.model_copy(update={"comparison": comparison})]})


def test_selection_on_validation_is_not_called_optimistic(sample: Sample) -> None:
    text = wording.picked(sample.card)
    assert "among 2 checkpoints" in text
    assert "not flattered" in text


def test_the_last_checkpoint_is_not_picked(sample: Sample) -> None:
    assert "nothing was picked" in wording.picked(with_checkpoint(sample.card, picked_on="final"))


@pytest.mark.parametrize(
    ("low", "high", "points", "says"),
    [
        (2.3, 4.6, 3.2, "optimistic, by an estimated 3.2 points (2.3 to 4.6)."),
        (None, None, 1.5, "optimistic, by an estimated 1.5 points."),
        (1.0, 2.0, None, "optimistic, by 1.0 to 2.0 points depending"),
        (None, None, None, "so the difference above is optimistic."),
    ],
)
def test_selection_on_the_heldout_tasks_is_optimistic(
    sample: Sample, low: float | None, high: float | None, points: float | None, says: str
) -> None:
    estimate = Optimism(on="heldout", optimism_points=points, method="analytic", low_points=low, high_points=high)
    card = with_optimism(with_checkpoint(sample.card, picked_on="heldout"), estimate)
    assert says in wording.picked(card)
    assert "Selection" in dict(limitations.limitations(card))


@pytest.mark.parametrize(("gain", "told"), [(3.2, True), (2.0, False)])
def test_optimism_that_uses_up_the_margin_is_told(gain: float, told: bool) -> None:
    # The lower bound is -2.6.
    estimate = Optimism(on="heldout", candidates=10, optimism_points=gain, method="analytic")
    text = wording.optimism(made(112, 7, 12, 15).model_copy(update={"selection": estimate}))
    assert ("; with that taken off, the lower bound would be -5.8 points, below the margin of -5" in text) == told


def test_dropped_pairs_are_told_by_side_and_cause(sample: Sample) -> None:
    text = limitations.dropped(sample.card.comparisons[0].comparison)
    assert text is not None
    assert text.startswith("1 task without a grade")
    assert "base: 1 (infrastructure: NoTurns)" in text
    assert "against the adapter" in text
    assert limitations.dropped(made(5, 1, 1, 3)) is None


def test_limitations_follow_the_facts(sample: Sample) -> None:
    card = sample.card
    assert {"Small evaluation", "One task family", "Closed world", "One harness", "License"} <= set(
        dict(limitations.limitations(card))
    )
    real = card.model_copy(update={"base": card.base.model_copy(update={"built_here": False}), "gguf": None})
    assert not {"Closed world", "GGUF"} & set(dict(limitations.limitations(real)))
    strict = card.base.model_copy(
        update={"license": "other", "license_name": "some-non-commercial-license", "license_link": "https://x.org"}
    )
    assert "forbids commercial use" in limitations.license_note(card.model_copy(update={"base": strict}))
    assert "`mit`" in limitations.license_note(card)


def test_suites_of_training_that_were_never_reached_are_named(sample: Sample) -> None:
    suites = [
        suite.model_copy(update={"trained_tasks": 0}) if suite.role == "train" else suite
        for suite in sample.card.suites
    ]
    assert "Unseen in training" in dict(limitations.limitations(sample.card.model_copy(update={"suites": suites})))
    assert "Unseen in training" not in dict(limitations.limitations(sample.card))


def test_the_score_interval_stands_beside_small_numbers_only() -> None:
    assert "score interval" in cells.difference_cell(made(8, 3, 5, 19))
    assert cells.difference_cell(made(112, 7, 12, 15)) == "+3.4 ± 5.8"


def test_undefined_cells_are_dashes() -> None:
    empty = made(0, 0, 0, 0, calls(None))
    rows = cells.evidence_rows([empty])
    assert {row[0]: row[1] for row in rows}["Tango score interval"] == "–"
    assert cells.call_cell(empty.calls) == "–"
    assert "nan" not in str(rows).lower()
