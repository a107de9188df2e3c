"""Adapters that cannot be served or converted are refused, each for its reason."""

from __future__ import annotations

from typing import Any

import pytest

from scripts.study.adapter_limits import refuse_adapter, refuse_tensors

PLAIN: dict[str, Any] = {
    "peft_type": "LORA",
    "r": 16,
    "lora_alpha": 32,
    "bias": "none",
    "target_modules": ["q_proj", "v_proj", "gate_proj"],
    "use_rslora": False,
    "use_dora": False,
    "modules_to_save": None,
    "rank_pattern": {},
    "alpha_pattern": {},
}


@pytest.mark.parametrize("targets", [["q_proj"], "all-linear", r".*\.(q|v)_proj", {"q_proj", "o_proj"}])
def test_plain_lora_is_fine(targets: Any) -> None:
    assert refuse_adapter({**PLAIN, "target_modules": targets}) == []


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("use_rslora", True),
        ("use_dora", True),
        ("modules_to_save", ["lm_head"]),
        ("rank_pattern", {"q_proj": 8}),
        ("alpha_pattern", {"q_proj": 8}),
        ("bias", "all"),
        ("peft_type", "LOHA"),
        ("trainable_token_indices", [1, 2]),
        ("target_parameters", ["experts.gate"]),
        ("target_modules", ["q_proj", "lm_head"]),
        ("target_modules", ["embed_tokens"]),
        ("target_modules", "model.embed_tokens"),
    ],
)
def test_each_limit_is_named_and_explained(key: str, value: Any) -> None:
    (reason,) = refuse_adapter({**PLAIN, key: value})
    assert key in reason
    assert len(reason) > len(key) + 20


def test_all_reasons_are_given_at_once() -> None:
    assert len(refuse_adapter({**PLAIN, "use_dora": True, "use_rslora": True, "bias": "all"})) == 3


def test_tensors_show_what_the_config_hides() -> None:
    layer = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"
    assert refuse_tensors([layer]) == []
    assert "lm_head" in refuse_tensors([layer, "base_model.model.lm_head.lora_B.weight"])[0]
    assert "embed_tokens" in refuse_tensors(["base_model.model.model.embed_tokens.lora_embedding_A"])[0]
    assert "DoRA" in refuse_tensors([layer.replace("lora_A.weight", "lora_magnitude_vector")])[0]
