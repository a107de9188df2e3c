"""The benchmark runs, and a comparison of many attempts takes seconds."""

from __future__ import annotations

import pytest

from benchmarks.compare_speed import main, measure
from scripts.study.config import Comparison as Settings


def test_one_row_for_each_n(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--n", "20", "40", "--attempts", "2", "--draws", "100"]) == 0
    assert [line.split("|")[1].strip() for line in capsys.readouterr().out.splitlines()[2:]] == ["20", "40"]


def test_five_thousand_attempts_with_all_draws_in_seconds() -> None:
    assert sum(measure(5000, 1, Settings())) < 20
