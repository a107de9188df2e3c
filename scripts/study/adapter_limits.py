"""What an adapter may be: plain LoRA on linear layers, which vLLM serves and llama.cpp converts.

Checked before training, so that no GPU-day ends in an adapter that cannot be carried, and again before conversion.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_WHOLE_MATRICES = re.compile(r"(?:^|[.|(*])(lm_head|embed_tokens|embed_out|word_embeddings|wte)\b")


def refuse_adapter(adapter_config: Mapping[str, Any]) -> list[str]:
    """Reasons why an adapter cannot be served by vLLM or converted to GGUF.

    :param adapter_config: what PEFT writes to ``adapter_config.json`` (or ``LoraConfig.to_dict()``).
    :return: one sentence for each reason, naming the key; empty if the adapter is fine.
    """
    reasons = []
    kind = adapter_config.get("peft_type", "LORA")
    if str(getattr(kind, "value", kind)).upper() != "LORA":
        reasons.append(f"peft_type is {kind}: only LORA is served by vLLM and converted by llama.cpp")
    if adapter_config.get("use_rslora"):
        reasons.append("use_rslora: llama.cpp scales rank-stabilised adapters by the wrong factor after conversion")
    if adapter_config.get("use_dora"):
        reasons.append("use_dora: vLLM cannot serve DoRA, and GGUF has no place for its magnitudes")
    if adapter_config.get("bias", "none") != "none":
        reasons.append(f"bias is {adapter_config['bias']}: neither vLLM nor GGUF carries trained biases")
    for key, why in (
        ("rank_pattern", "a GGUF adapter has one rank"),
        ("alpha_pattern", "a GGUF adapter has one alpha"),
        ("modules_to_save", "neither vLLM nor GGUF carries whole modules"),
        ("trainable_token_indices", "neither vLLM nor GGUF carries trained tokens"),
        ("target_parameters", "llama.cpp's converter knows LoRA on modules only"),
    ):
        if adapter_config.get(key):
            reasons.append(f"{key} is set: {why}")
    targets = adapter_config.get("target_modules") or []
    for name in [targets] if isinstance(targets, str) else sorted(targets):
        if _WHOLE_MATRICES.search(name):
            reasons.append(f"target_modules has {name!r}: LoRA on embeddings or the head is skipped or aborts in GGUF")
    return reasons


def refuse_tensors(names: list[str]) -> list[str]:
    """Reasons by tensor name, for an adapter whose config hides them (``all-linear`` may reach an untied head).

    :param names: keys of ``adapter_model.safetensors``.
    """
    heads = sorted({match.group(1) for name in names if (match := _WHOLE_MATRICES.search(name))})
    reasons = [f"the adapter has tensors for {name}, which GGUF conversion skips or aborts on" for name in heads]
    if any("lora_magnitude_vector" in name for name in names):
        reasons.append("the adapter has DoRA magnitudes, which vLLM cannot serve")
    return reasons
