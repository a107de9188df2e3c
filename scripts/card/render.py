"""From facts to Markdown: the templates with everything they may say."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from scripts.card import cells, formats, limitations, serving, wording
from scripts.card.facts import Card, possible_pictures
from scripts.card.front_matter import front_matter
from scripts.card.harness_use import HARNESS_USE
from scripts.stats.records import Comparison

VLLM_PORT = 8000
LLAMA_PORT = 8080


def environment(html: bool = False) -> Environment:
    """Jinja's environment: an undefined name is an error; numbers are formatted by filters of ours."""
    made = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=html,
    )
    for name in ("plain", "signed", "percent", "points", "count", "scientific", "probability", "divergence", "size"):
        made.filters[name] = getattr(formats, name)
    made.filters |= {"duration": formats.duration, "causes": formats.causes, "listing": formats.listing}
    made.globals |= {"span": formats.span, "wording": wording, "cells": cells, "limits": limitations}
    return made


def context(card: Card) -> dict[str, Any]:
    """What the templates can name."""
    use = HARNESS_USE[card.harness.name]
    model, limits = card.repositories.served_name, card.serving

    def config(port: int) -> str:
        return use.config_text(model, f"http://localhost:{port}/v1", limits.max_model_len, limits.max_output_tokens)

    return {
        "card": card,
        "use": use,
        "main": card.comparisons[0],
        "pictures": possible_pictures(card),
        "names": [m.suite for m in card.comparisons],
        "small": [m for m in card.comparisons if m.comparison.n < wording.SMALL],
        "vllm_command": serving.vllm_command(card),
        "llama_command": serving.llama_command(card, LLAMA_PORT) if card.gguf else None,
        "harness_config": config(VLLM_PORT),
        "llama_config": config(LLAMA_PORT),
        "harness_config_notes": use.notes(limits.max_model_len, limits.max_output_tokens),
        "vllm_url": f"http://localhost:{VLLM_PORT}/v1",
        "llama_url": f"http://localhost:{LLAMA_PORT}/v1",
        "run_command": use.run(model, limits.example),
    }


def render_card(card: Card, images: str = "") -> str:
    """The card of the adapter.

    :param images: folder of the pictures as seen from the card, with its slash; empty for the same folder.
    :raises CardError: the front matter would be refused.
    """
    return _page(front_matter(card), "card.md.j2", context(card) | {"images": images})


def render_gguf_card(card: Card) -> str:
    """The card of the GGUF repository.

    :raises CardError: the front matter would be refused.
    """
    return _page(front_matter(card, "gguf"), "gguf.md.j2", context(card))


def render_tables(card: Card) -> str:
    """The tables of results as one HTML page, for the workflow's report."""
    return environment(html=True).get_template("results.html.j2").render(context(card))


def render_comparison_card(comparison: dict[str, Any], path: str | Path) -> None:
    """A short card of a comparison alone, for results from elsewhere, with two pictures beside it.

    :param comparison: a comparison's JSON (:class:`scripts.stats.records.Comparison`).
    :param path: the Markdown file; its pictures are ``<stem>_hero.png`` and ``<stem>_forest.png``.
    """
    # Drawing is slow to import, and only this function of the module draws.
    from scripts.card import plots

    path, record = Path(path), Comparison.model_validate(comparison)
    adapter = record.adapter.policy
    title = f"{adapter} against {record.base.model or record.base.policy}"
    plots.save(
        plots.hero_of(record, f"{title} under {record.harness}" if record.harness else title), _beside(path, "hero")
    )
    plots.save(plots.forest_of([record]), _beside(path, "forest"))
    text = (
        environment()
        .get_template("comparison.md.j2")
        .render(c=record, title=title, hero=_beside(path, "hero").name, forest=_beside(path, "forest").name)
    )
    path.write_text(_tidy(text), encoding="utf-8")


def _beside(path: Path, name: str) -> Path:
    return path.with_name(f"{path.stem}_{name}.png")


def _tidy(text: str) -> str:
    """Blocks that render to nothing leave empty lines behind; no code block of ours has two in a row."""
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def _page(head: str, template: str, names: dict[str, Any]) -> str:
    body = environment().get_template(template).render(names)
    return f"---\n{head}\n---\n\n{_tidy(body)}"
