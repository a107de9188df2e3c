"""The card as text: front matter, blocks, undefined names, and that every number in it can be traced."""

from __future__ import annotations

import json
import re
import shlex
from typing import Any

import pytest
import yaml
from huggingface_hub import ModelCard
from jinja2 import UndefinedError

from scripts import compare_paired, render_card
from scripts.card import formats
from scripts.card.blocks import read_blocks
from scripts.card.facts import Card, CardError, leaves, write_card
from scripts.card.front_matter import check_front_matter
from scripts.card.render import environment, render_comparison_card, render_gguf_card, render_tables
from scripts.card.render import render_card as render
from tests.sample_study import Sample, shared_sample

NUMBER = re.compile(r"\d+(?:,\d{3})*(?:\.\d+)?(?:e-?\d+)?")
# What the templates and the harness's data say themselves: headings, SHA-256, the number of tasks below which the score
# interval stands beside the normal one, ports, Node's version, pi's reserve (alone, and added to the engine's context).
CONSTANTS = {"1", "2", "256", "100", "0", "8000", "8080", "22.19", "16,384", "24576"}


@pytest.fixture(scope="module")
def sample() -> Sample:
    return shared_sample()


@pytest.fixture(scope="module")
def text(sample: Sample) -> str:
    return render(sample.card, "card_pi/")


def printed(value: Any) -> set[str]:
    """Every way in which a fact may be printed."""
    if isinstance(value, bool) or value is None:
        return set()
    if isinstance(value, str):
        return set(NUMBER.findall(value))
    ways = {str(value), f"{value:g}", formats.count(value), formats.scientific(value) if value else "0"}
    ways |= {formats.plain(abs(value), digits) for digits in (0, 1, 2)}
    ways |= {formats.plain(100 * value, 0), formats.plain(100 * (1 - value), 0), formats.divergence(abs(value))}
    ways |= set(NUMBER.findall(formats.probability(value))) if 0 <= value <= 1 else set()
    ways |= set(NUMBER.findall(formats.size(int(value)))) | set(NUMBER.findall(formats.duration(value)))
    return ways


def untraced(card: Card, text: str) -> set[str]:
    """Numbers of a text that are neither facts of the card nor constants of the templates."""
    known = CONSTANTS.union(*(printed(value) for _, value in leaves(card.model_dump())))
    return {number for number in NUMBER.findall(text) if number not in known}


def test_every_number_is_a_fact(sample: Sample, text: str) -> None:
    assert untraced(sample.card, text) == set()
    assert untraced(sample.card, render_gguf_card(sample.card)) == set()
    # Not because anything passes:
    assert untraced(sample.card, "73.9% of 137 tasks") == {"73.9", "137"}


def test_every_fact_has_a_source(sample: Sample) -> None:
    card = sample.card
    assert card.source_of("comparisons.0.comparison.n") == card.sources["comparisons.0"]
    assert card.sources["comparisons.0"].rows == card.comparisons[0].comparison.n
    assert card.sources["training.tasks_trained"].file == "train/pi/rollouts.jsonl"
    orphaned = card.model_dump(mode="json")
    del orphaned["sources"]["training"]
    with pytest.raises(ValueError, match=r"no source for training\.learning_rate"):
        Card.model_validate(orphaned)


def test_front_matter_is_what_the_hub_reads(text: str) -> None:
    data = ModelCard(text).data
    assert data.base_model == "harness-cards/demo-policy"
    assert data.get("base_model_relation") == "adapter"
    assert data.library_name == "peft"
    assert data.license == "mit"
    assert data.pipeline_tag == "text-generation"
    assert {"lora", "harbor", "pi"} <= set(data.tags or [])
    assert data.datasets is None
    assert yaml.safe_load(text.split("---")[1])["base_model"] == "harness-cards/demo-policy"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"base_model": "a/local/folder"}, "base_model"),
        ({"base_model": "/models/base"}, "base_model"),
        ({"datasets": ["my data"]}, "datasets"),
        ({"license": "other"}, "license_name"),
        ({"license": "other", "license_name": "mine"}, "license_link"),
        ({"license": "other", "license_name": "My License", "license_link": "https://x.org"}, "license_name"),
        ({"license": "MIT License"}, "license"),
    ],
)
def test_front_matter_that_the_hub_would_refuse_is_refused(changes: dict[str, object], message: str) -> None:
    good: dict[str, object] = {"base_model": "owner/base", "license": "mit", "datasets": ["owner/data"]}
    check_front_matter(good)
    with pytest.raises(CardError, match=message):
        check_front_matter(good | changes)


def test_undefined_names_are_errors() -> None:
    with pytest.raises(UndefinedError):
        environment().from_string("{{ card.nothing }}").render(card=Card)


def test_blocks_can_be_tried_as_they_stand(sample: Sample, text: str) -> None:
    blocks = read_blocks(text)
    assert {"vllm-serve", "harness-config", "harness-install", "harness-run", "llama-serve"} <= set(blocks)
    serve = shlex.split(blocks["vllm-serve"].text.replace("\\\n", " "))
    assert serve[:3] == ["vllm", "serve", "harness-cards/demo-policy"]
    for flag, value in {
        "--lora-modules": "demo-harbor-pi=harness-cards/demo-policy-pi",
        "--max-model-len": "8192",
        "--tool-call-parser": "qwen3_coder",
        "--chat-template": "chat_template.jinja",
        "--dtype": "float32",
    }.items():
        assert serve[serve.index(flag) + 1] == value
    sampling = json.loads(serve[serve.index("--override-generation-config") + 1])
    assert sampling == {"temperature": 0.8, "top_p": 1.0, "top_k": 0}
    config = json.loads(blocks["harness-config"].text)["providers"]["local"]
    assert config["api"] == "openai-completions"
    model = config["models"][0]
    assert model["id"] == "demo-harbor-pi"
    assert model["maxTokens"] == sample.study.rollout.max_output_tokens
    # pi summarises from contextWindow - 16384 on, and must not do so before the engine's context is full.
    assert model["contextWindow"] - 16384 >= sample.study.engine.max_model_len
    run = shlex.split(blocks["harness-run"].text)
    assert run[:5] == ["pi", "--provider", "local", "--model", "demo-harbor-pi"]
    assert run[-1] == "What is the sum of amount in sample-heldout.csv?"


def test_two_blocks_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="two blocks are named a"):
        read_blocks("<!-- block: a -->\n\n```sh\nx\n```\n\n<!-- block: a -->\n\n```sh\ny\n```\n")


def test_the_published_form_of_the_table(text: str) -> None:
    assert "| Tasks | n | Base model | This adapter (step 12) | Difference (points) | Tool calls |" in text
    row = next(line for line in text.splitlines() if line.startswith("| Sample tables | 39 |"))
    assert re.search(r"\| 74\.4% \| 92\.3% \| \+17\.9 ± 17\.4 \(score interval .* to .*\) \| -\d+% \(26 tasks; ", row)


def test_pictures_are_named_with_their_folder(sample: Sample, text: str) -> None:
    assert set(re.findall(r"\]\((card_pi/)?(\w+)\.png\)", text)) == {
        ("card_pi/", name) for name in ("hero", "forest", "calls", "outcomes", "training")
    }
    assert "](hero.png)" in render(sample.card)


def test_parts_that_are_not_there_leave_no_trace(sample: Sample) -> None:
    bare = sample.card.model_copy(
        update={"gguf": None, "curve": [], "files": [], "versions": {}, "comparisons": sample.card.comparisons[:1]}
    )
    text = render(bare)
    assert "llama" not in text
    assert "training.png" not in text
    assert "forest.png" not in text
    assert "\n\n\n" not in text


def test_gguf_card(sample: Sample) -> None:
    text = render_gguf_card(sample.card)
    assert ModelCard(text).data.base_model == "harness-cards/demo-policy"
    assert "99.8%" in text
    assert "localhost:8080" in text
    assert "localhost:8000" not in text


def test_tables_for_the_report(sample: Sample) -> None:
    html = render_tables(sample.card)
    assert html.count("<table") == 3
    assert "+17.9 ± 17.4" in html


def test_program(sample: Sample, tmp_path: Any, text: str) -> None:
    write_card(sample.card, tmp_path / "card.json")
    arguments = ["--card", str(tmp_path / "card.json"), "--images", "card_pi/", "--out", str(tmp_path / "card.md")]
    assert render_card.main(arguments) == 0
    assert (tmp_path / "card.md").read_text() == text


def test_program_names_a_missing_file(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert render_card.main(["--card", str(tmp_path / "none.json"), "--out", str(tmp_path / "card.md")]) == 1
    assert "none.json" in capsys.readouterr().err


def test_card_of_a_comparison_alone(sample: Sample, tmp_path: Any) -> None:
    comparison = sample.card.comparisons[0].comparison
    render_comparison_card(comparison.model_dump(mode="json"), tmp_path / "mine.md")
    text = (tmp_path / "mine.md").read_text()
    assert "+17.9 ± 17.4" in text
    assert {path.name for path in tmp_path.iterdir()} == {"mine.md", "mine_hero.png", "mine_forest.png"}


def test_compare_paired_writes_a_card(sample: Sample, tmp_path: Any) -> None:
    arguments = [
        *("--base", str(sample.outdir / "eval/pi/base/sample-heldout.jsonl")),
        *("--adapter", str(sample.outdir / "eval/pi/selected/sample-heldout.jsonl")),
        *("--out", str(tmp_path / "comparison.json"), "--card", str(tmp_path / "card.md")),
    ]
    assert compare_paired.main(arguments) == 0
    assert "How this checkpoint was picked is not known" in (tmp_path / "card.md").read_text()
