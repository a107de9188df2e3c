"""Pictures: drawn from the facts, the same bytes each time, and told when they cannot be drawn."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

from scripts import plot_card
from scripts.card.facts import CardError, possible_pictures, write_card
from scripts.card.plots import PICTURES, draw
from tests.sample_study import Sample, shared_sample


@pytest.fixture(scope="module")
def sample() -> Sample:
    return shared_sample()


@pytest.mark.parametrize("name", list(PICTURES))
def test_the_same_facts_give_the_same_bytes(sample: Sample, tmp_path: Path, name: str) -> None:
    draw(sample.card, name, tmp_path / "a.png")
    draw(sample.card, name, tmp_path / "b.png")
    data = (tmp_path / "a.png").read_bytes()
    assert data == (tmp_path / "b.png").read_bytes()
    assert b"Software" not in data
    assert b"tIME" not in data
    width, height = struct.unpack(">II", data[16:24])
    assert 900 <= width <= 1400
    assert height >= 300


def test_titles_say_what_was_found(sample: Sample) -> None:
    figure = PICTURES["hero"](sample.card)
    assert "+17.9 ± 17.4 points" in "".join(text.get_text() for text in figure.texts)
    outcomes = PICTURES["outcomes"](sample.card)
    assert outcomes.get_suptitle() == "Of 39 tasks, 10 were solved by the adapter alone, 3 by the base alone"
    assert "tool calls 3.8 → 2.1" in PICTURES["training"](sample.card).get_suptitle()


@pytest.mark.parametrize("name", list(PICTURES))
def test_titles_are_not_cut(sample: Sample, name: str) -> None:
    assert_titles_inside(PICTURES[name](sample.card))


def test_the_title_over_a_single_table_is_not_cut(sample: Sample) -> None:
    main = sample.card.comparisons[0]
    comparison = main.comparison.model_copy(update={"by_difficulty": []})
    card = sample.card.model_copy(update={"comparisons": [main.model_copy(update={"comparison": comparison})]})
    assert_titles_inside(PICTURES["outcomes"](card))


def assert_titles_inside(figure: Figure) -> None:
    figure.canvas.draw()
    titles = [text for axes in figure.axes for text in axes.get_children() if isinstance(text, Text)]
    for text in [*figure.texts, *titles]:
        if text.get_text():
            box = text.get_window_extent()
            assert box.x0 >= -1, text.get_text()
            assert box.x1 <= figure.bbox.x1 + 1, text.get_text()


def test_pictures_that_the_facts_do_not_allow(sample: Sample, tmp_path: Path) -> None:
    main = sample.card.comparisons[0]
    comparison = main.comparison.model_copy(update={"table": None, "by_difficulty": []})
    bare = main.model_copy(update={"calls_base": {}, "calls_adapter": {}, "comparison": comparison})
    card = sample.card.model_copy(update={"curve": [], "comparisons": [bare]})
    assert possible_pictures(card) == ["hero", "forest"]
    for name in ("calls", "outcomes", "training"):
        with pytest.raises(CardError, match="cannot be drawn|no 2×2 table"):
            draw(card, name, tmp_path / "x.png")


def test_hero_without_comparable_calls(sample: Sample, tmp_path: Path) -> None:
    main = sample.card.comparisons[0]
    none = {
        "change_percent": None,
        "low_percent": None,
        "high_percent": None,
        "base_total": None,
        "adapter_total": None,
    }
    comparison = main.comparison.model_copy(update={"calls": main.comparison.calls.model_copy(update=none)})
    card = sample.card.model_copy(update={"comparisons": [main.model_copy(update={"comparison": comparison})]})
    draw(card, "hero", tmp_path / "hero.png")
    assert (tmp_path / "hero.png").stat().st_size > 10_000


@pytest.mark.filterwarnings("error")
def test_forest_without_any_pair(sample: Sample, tmp_path: Path) -> None:
    main = sample.card.comparisons[0]
    none = {"low_points": None, "high_points": None, "half_width_points": None, "reason": "no pair"}
    intervals = {name: found.model_copy(update=none) for name, found in main.comparison.intervals.items()}
    empty = main.comparison.model_copy(update={"n": 0, "difference_points": None, "intervals": intervals})
    card = sample.card.model_copy(update={"comparisons": [main.model_copy(update={"comparison": empty})]})
    draw(card, "forest", tmp_path / "forest.png")


def test_program(sample: Sample, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_card(sample.card, tmp_path / "card.json")
    arguments = ["--card", str(tmp_path / "card.json"), "--outdir", str(tmp_path)]
    assert plot_card.main([*arguments, "--pictures", "hero", "--tables", str(tmp_path / "results.html")]) == 0
    assert {path.name for path in tmp_path.iterdir()} == {"card.json", "hero.png", "results.html"}
    (tmp_path / "card.json").write_text("{}")
    assert plot_card.main(arguments) == 1
    assert "card.json: kind" in capsys.readouterr().err
