"""Keys that the command line changes."""

from __future__ import annotations

import yaml

from scripts.study.overrides import with_numbers


def merged(text: str) -> dict:
    """What is made of ``snakemake --config 'training={text}'`` on top of a file."""
    given = {"training": yaml.load(text, Loader=yaml.BaseLoader)}
    config = {"name": "1", "training": {"steps": 3, "lora": {"rank": 16}} | given["training"]}
    return with_numbers(config, given)["training"]


def test_numbers_and_truth_values_are_read_as_in_a_file() -> None:
    assert merged("{learning_rate: 1.0e-3, gradient_checkpointing: true, lora: {rank: 8}, tags: [a, 2]}") == {
        "steps": 3,
        "learning_rate": 0.001,
        "gradient_checkpointing": True,
        "lora": {"rank": 8},
        "tags": ["a", 2],
    }


def test_text_stays_text() -> None:
    assert merged("{title: 'a: b: c', rate: 1e-5, id: org/model, nothing: null}") == {
        "steps": 3,
        "lora": {"rank": 16},
        "title": "a: b: c",
        "rate": "1e-5",
        "id": "org/model",
        "nothing": None,
    }


def test_the_file_s_own_values_are_left_alone() -> None:
    assert with_numbers({"name": "1", "policy": {"license": "2"}}, {}) == {"name": "1", "policy": {"license": "2"}}
