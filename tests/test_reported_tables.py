"""The published tables: found, unique, and printed again digit for digit."""

from __future__ import annotations

from itertools import product

import pytest
import yaml

from scripts.stats.paired import Table
from scripts.stats.reported_tables import (
    ReportedTablesError,
    consistent_tables,
    find_row,
    find_tables,
    nearest_tables,
    reprint,
    to_markdown,
)
from scripts.study.reported import Reported, ReportedRow, parse_reported
from tests.test_reported import SHIPPED

TABLES = {
    ("pi", "smoldataenvs"): (112, 7, 12, 15),
    ("pi", "traj2envs"): (8, 3, 5, 19),
    ("opencode", "smoldataenvs"): (104, 12, 11, 23),
    ("opencode", "traj2envs"): (9, 6, 4, 16),
}


@pytest.fixture(scope="module")
def reported() -> Reported:
    return parse_reported(yaml.safe_load(SHIPPED.read_text()))


def test_all_rows_digit_for_digit(reported: Reported) -> None:
    rows = find_tables(reported).rows
    assert {(row.harness, row.comparison.suite): tuple(row.tables[0].model_dump().values()) for row in rows} == TABLES
    for row in rows:
        assert row.reprinted == row.printed
        assert row.unique
        assert row.unique_without_both_solved


def test_search_is_complete(reported: Reported) -> None:
    """Against every table of 35 pairs there is."""
    row = reported.cards["opencode"].rows[1]
    everything = [
        Table(a, c, b, 35 - a - b - c) for a, b, c in product(range(36), repeat=3) if a + b + c <= 35 and a + b > 0
    ]
    wanted = (row.base, row.adapter, row.difference)
    assert [table for table in everything if tuple(reprint(table)) == wanted] == consistent_tables(row)


def test_the_markdown_prints_the_published_rows(reported: Reported) -> None:
    text = to_markdown(reported, find_tables(reported))
    smol = "| 150 held-out tasks of FineEnvs/SmolDataEnvs-harbor-train"
    for line in [
        f"{smol} | 146 | 81.5% | 84.9% | +3.4 ± 5.8 | -37% (112 tasks) |",
        "| 40 held-out tasks of harness-hub/traj2envs-rl | 35 | 31.4% | 37.1% | +5.7 ± 16.0 | -24% (8 tasks) |",
        f"{smol} | 150 | 77.3% | 76.7% | -0.7 ± 6.3 | -32% (104 tasks) |",
        "| 40 held-out tasks of harness-hub/traj2envs-rl | 35 | 42.9% | 37.1% | -5.7 ± 17.9 | -27% (9 tasks) |",
        "| smoldataenvs | -2.6 to +9.8 | 0.26 | 8.3 | yes | 3.2 (2.3 to 4.6) |",
    ]:
        assert line in text.splitlines()


def test_what_the_published_rows_leave_out(reported: Reported) -> None:
    found = {(row.harness, row.comparison.suite): row.comparison for row in find_tables(reported).rows}
    assert {key: value.non_inferiority.shown for key, value in found.items()} == {
        ("pi", "smoldataenvs"): True,
        ("pi", "traj2envs"): False,
        ("opencode", "smoldataenvs"): False,
        ("opencode", "traj2envs"): False,
    }
    main = found["pi", "smoldataenvs"]
    assert main.kind == "reported"
    assert main.bounds.dropped_pairs == 4
    assert main.selection.method == "analytic"
    assert main.calls.change_percent == -37
    assert main.calls.low_percent is None
    assert main.calls.reason
    assert found["pi", "traj2envs"].selection.optimism_points == 0
    assert "picked on smoldataenvs" in (found["pi", "traj2envs"].selection.reason or "")
    assert found["opencode", "smoldataenvs"].selection.on == "final"


def changed(reported: Reported, **fields: object) -> Reported:
    card = reported.cards["pi"]
    row = ReportedRow.model_validate({**card.rows[0].model_dump(), **fields})
    cards = {**reported.cards, "pi": card.model_copy(update={"rows": [row]})}
    return reported.model_copy(update={"cards": cards})


@pytest.mark.parametrize("fields", [{"difference": "+3.4 ± 6.1"}, {"base": "81.9%"}, {"both_solved": 111}])
def test_a_row_that_no_table_fits(reported: Reported, fields: dict[str, object]) -> None:
    with pytest.raises(ReportedTablesError) as error:
        find_row(changed(reported, **fields), "pi", 0)
    message = str(error.value)
    assert message.startswith("cards.pi.rows.0 (smoldataenvs): no table of 146 pairs prints")
    assert "112/7/12/15 prints 81.5%, 84.9%, +3.4 ± 5.8" in message
    assert "\n" not in message


def test_a_row_with_several_tables(reported: Reported) -> None:
    """At a larger n one decimal does not fix the table, and that is said."""
    table = Table(1100, 90, 140, 670)
    again = reprint(table)
    row = ReportedRow(
        suite="smoldataenvs", n=2000, base=again.base, adapter=again.adapter, difference=again.difference,
        calls="-10%", both_solved=1100,
    )  # fmt: skip
    found = consistent_tables(row)
    assert table in found
    assert len(found) > 1
    assert sum(t.both == 1100 for t in found) >= 1


def test_nearest_of_a_row_that_fits_is_its_table(reported: Reported) -> None:
    assert tuple(nearest_tables(reported.cards["pi"].rows[1])[0][0]) == TABLES["pi", "traj2envs"]


def test_a_row_without_a_pair_that_differs_has_a_dash(reported: Reported) -> None:
    row = {"n": 10, "base": "50.0%", "adapter": "50.0%", "difference": "+0.0 ± 0.0", "both_solved": 5}
    same = changed(reported, **row)
    assert "| -27.8 to +27.8 | – | – | no |" in to_markdown(same, find_tables(same))
