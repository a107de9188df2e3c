"""The commands that serve an adapter: for vLLM from the study's engine config, and for llama.cpp."""

from __future__ import annotations

import json
import math
import shlex

from scripts.card.facts import Card
from scripts.study.config import Engine, Policy, Rollout

LORA_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""Values that vLLM's ``--max-lora-rank`` takes."""


def lora_rank_limit(wanted: int) -> int:
    """The smallest limit that vLLM takes and that a rank fits in.

    :raises ValueError: the rank is too large for vLLM.
    """
    found = next((rank for rank in LORA_RANKS if rank >= wanted), None)
    if found is None:
        raise ValueError(f"engine.max_lora_rank {wanted}: vLLM serves ranks up to {LORA_RANKS[-1]}")
    return found


def engine_arguments(engine: Engine, policy: Policy, rollout: Rollout) -> list[list[str]]:
    """Arguments of ``vllm serve`` that training and evaluation used, one line of the command each.

    Sampling stands in the command because agents send none: the engine's defaults must be those of the evaluation.
    """
    lines = [["--dtype", policy.dtype, "--max-model-len", str(engine.max_model_len)]]
    parsers = ["--enable-auto-tool-choice", "--tool-call-parser", engine.tool_call_parser]
    if engine.reasoning_parser:
        parsers += ["--reasoning-parser", engine.reasoning_parser]
    lines += [parsers, ["--chat-template", "chat_template.jinja"]]
    if policy.enable_thinking is not None:
        lines.append(["--default-chat-template-kwargs", json.dumps({"enable_thinking": policy.enable_thinking})])
    sampling = {"temperature": rollout.temperature, "top_p": rollout.top_p, "top_k": rollout.top_k}
    lines.append(["--override-generation-config", json.dumps(sampling)])
    load = ["--max-num-seqs", str(engine.max_num_seqs), "--enable-prefix-caching"]
    if engine.tensor_parallel > 1:
        load += ["--tensor-parallel-size", str(engine.tensor_parallel)]
    if engine.gpu_memory_utilization is not None:
        load += ["--gpu-memory-utilization", f"{engine.gpu_memory_utilization:g}"]
    if engine.kv_cache_gib is not None:
        load += ["--kv-cache-memory-bytes", str(math.ceil(engine.kv_cache_gib * 2**30))]
    if engine.enforce_eager:
        load.append("--enforce-eager")
    lines.append(load)
    if engine.extra_args:
        lines.append(list(engine.extra_args))
    return lines


def llama_arguments(rollout: Rollout) -> list[list[str]]:
    """Further arguments of llama.cpp's server: the template's tool calls, and the evaluation's sampling."""
    sampling = ["--temp", f"{rollout.temperature:g}", "--top-p", f"{rollout.top_p:g}", "--top-k", str(rollout.top_k)]
    return [["--jinja"], [*sampling, "--min-p", "0"]]


def _command(words: list[str], lines: list[list[str]], environment: dict[str, str]) -> str:
    prefix = [f"{name}={shlex.quote(value)}" for name, value in environment.items()]
    first = " ".join([*prefix, *map(shlex.quote, words)])
    return " \\\n    ".join([first, *(" ".join(map(shlex.quote, line)) for line in lines)])


def vllm_command(card: Card) -> str:
    """The whole ``vllm serve`` command."""
    lines = [
        ["--enable-lora", "--max-lora-rank", str(card.serving.max_lora_rank)],
        ["--lora-modules", f"{card.repositories.served_name}={card.repositories.adapter}"],
        *card.serving.arguments,
    ]
    return _command(["vllm", "serve", card.base.hub_id], lines, card.serving.environment)


def llama_command(card: Card, port: int) -> str:
    """The whole command of llama.cpp's server.

    :raises ValueError: the card has no GGUF part.
    """
    gguf = card.gguf
    if gguf is None:
        raise ValueError("the card has no GGUF part")
    lines = [
        ["-m", gguf.base_file, "--lora", gguf.adapter_file],
        ["--chat-template-file", "chat_template.jinja", *(gguf.arguments[0] if gguf.arguments else [])],
        *gguf.arguments[1:],
        ["-c", str(gguf.context), "--port", str(port), "--alias", card.repositories.served_name],
    ]
    return _command(gguf.server.split(), lines, {})
