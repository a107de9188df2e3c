"""The published facts: the shipped file is valid, and faults are named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from scripts.study.config import ConfigError
from scripts.study.reported import parse_reported

SHIPPED = Path(__file__).parent.parent / "config" / "reported.yaml"


@pytest.fixture
def data() -> dict[str, Any]:
    return yaml.safe_load(SHIPPED.read_text())


def test_shipped_file(data: dict[str, Any]) -> None:
    reported = parse_reported(data)
    assert reported.harnesses == ["pi", "opencode"]
    assert reported.outdir == "results/reported"
    assert [card.tasks_trained for card in reported.cards.values()] == [142, 116]
    assert [row.calls_percent for card in reported.cards.values() for row in card.rows] == [-37, -24, -32, -27]
    assert reported.cards["opencode"].harness.version == "1.19.5"
    assert reported.training.learning_rate == 1e-5


def test_faults_name_file_and_key(data: dict[str, Any]) -> None:
    data["training"]["learning_rate"] = "1e-5"
    data["cards"]["pi"]["rows"][0]["base"] = "81.53%"
    data["extra"] = 1
    with pytest.raises(ConfigError) as error:
        parse_reported(data, "reported.yaml")
    lines = str(error.value).splitlines()
    assert any("training.learning_rate: '1e-5' is text" in line for line in lines)
    assert any(line.startswith("reported.yaml: cards.pi.rows.0.base") for line in lines)
    assert any("extra: unknown key" in line for line in lines)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("suite", "other", "not among `suites`"),
        ("n", 151, "151 of the 150 tasks"),
    ],
)
def test_rows_belong_to_suites(data: dict[str, Any], key: str, value: Any, message: str) -> None:
    data["cards"]["pi"]["rows"][0][key] = value
    with pytest.raises(ConfigError, match=message):
        parse_reported(data)


def test_a_suite_has_one_row_in_a_card(data: dict[str, Any]) -> None:
    rows = data["cards"]["pi"]["rows"]
    rows.append(rows[0])
    with pytest.raises(ConfigError, match="cards.pi.rows.2.suite: 'smoldataenvs' has a row already"):
        parse_reported(data)
