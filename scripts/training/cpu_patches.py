"""What TRL's asynchronous trainer needs on a machine without a GPU; on one with a GPU nothing here takes effect.

TRL packs samples into a tree whose attention is a FlashAttention-3 kernel from the Hub, and asks CUDA for the device's
name to compute its utilisation. Both names are replaced by ones that do the same, or nothing, on CPUs.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as functional

PEAK_FLOPS = 1e12
"""Stands for a CPU's peak rate; TRL only reports a fraction of it, which no record of ours keeps."""


def apply(hardware: str) -> None:
    """Patch TRL in this process if ``hardware`` is ``cpu``; the spawned rollout worker needs it as well."""
    if hardware != "cpu":
        return
    from trl.experimental.async_grpo import async_grpo_trainer, packing

    packing._flash_attn = lambda: SimpleNamespace(flash_attn_varlen_func=varlen_attention)
    async_grpo_trainer.get_peak_flops_per_device = lambda accelerator, dtype: PEAK_FLOPS


def varlen_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    offsets_query: torch.Tensor,
    offsets_key: torch.Tensor,
    longest_query: int,
    longest_key: int,
    softmax_scale: float | None = None,
    causal: bool = True,
    window_size: tuple[int, int] = (-1, -1),
    **unsupported: Any,
) -> torch.Tensor:
    """Attention over packed segments, as ``flash_attn_varlen_func`` computes it.

    :param query: (query tokens, heads, head size).
    :param key: (key tokens, key-value heads, head size); ``value`` alike.
    :param offsets_query: (segments + 1,) where each segment's queries start; ``offsets_key`` alike.
    :param causal: the last query of a segment sees all of its keys, the one before it all but one, and so on.
    :param window_size: keys to the left of its own that a query sees, and to the right; -1 is no limit.
    :return: (query tokens, heads, head size).
    :raises NotImplementedError: an option of the kernel that is not rebuilt here.
    """
    if unsupported or not causal or window_size[1] > 0:
        what = sorted(unsupported) or "attention to later tokens"
        raise NotImplementedError(f"attention on CPUs: {what} is not supported; train this model on a GPU")
    starts_query, starts_key = offsets_query.tolist(), offsets_key.tolist()
    parts = []
    for segment in range(len(starts_query) - 1):
        rows = slice(starts_query[segment], starts_query[segment + 1])
        columns = slice(starts_key[segment], starts_key[segment + 1])
        q = query[rows].transpose(0, 1)[None]
        k = key[columns].transpose(0, 1)[None]
        v = value[columns].transpose(0, 1)[None]
        ahead = k.shape[2] - q.shape[2]
        mask = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device).tril(ahead)
        if window_size[0] >= 0:
            mask = mask.triu(ahead - window_size[0])
        out = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=softmax_scale, enable_gqa=True)
        parts.append(out[0].transpose(0, 1))
    return torch.cat(parts)
