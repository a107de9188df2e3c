"""The program that derives the published tables."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scripts.derive_reported import main, read_reported
from tests.test_reported import SHIPPED


def test_file_and_json_give_the_same(tmp_path: Path) -> None:
    paths = ["--out", str(tmp_path / "tables.md"), "--json", str(tmp_path / "tables.json")]
    assert main(["--reported", str(SHIPPED), *paths]) == 0
    first = (tmp_path / "tables.md").read_text(), (tmp_path / "tables.json").read_text()
    assert len(json.loads(first[1])["rows"]) == 4
    assert main(["--reported", read_reported(str(SHIPPED)).model_dump_json(), *paths]) == 0
    assert first == ((tmp_path / "tables.md").read_text(), (tmp_path / "tables.json").read_text())


def test_row_that_no_table_fits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(SHIPPED.read_text().replace("+5.7 ± 16.0", "+5.7 ± 12.0"))
    out = tmp_path / "tables.md"
    assert main(["--reported", str(wrong), "--out", str(out), "--json", str(tmp_path / "t.json")]) == 1
    error = capsys.readouterr().err
    assert error.startswith("cards.pi.rows.1 (traj2envs): no table of 35 pairs")
    assert error.count("\n") == 1
    assert not out.exists()


def test_missing_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--reported", "nothing.yaml", "--out", "x", "--json", "y"]) == 1
    assert "nothing.yaml" in capsys.readouterr().err
