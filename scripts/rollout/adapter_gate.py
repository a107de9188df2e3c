"""Does the engine serve what was trained? The same tokens through the engine and through transformers with PEFT.

An engine that takes an adapter, lists it and ignores it, or a part of it, answers like the base model. So the gate
asks two things on a fixed prompt: the engine's log-probabilities must agree with PEFT's, and lie closer to PEFT's with
the adapter than to PEFT's without it. Runs in the policy environment; torch is imported when it is needed.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from scripts.rollout.engine import ALIAS, GATE_PROMPT, AdapterNotServed, Engine, has_effect

TOLERANCE = {"float32": 2e-3, "float16": 0.05, "bfloat16": 0.1}
"""Largest mean difference per token, in nats, that precision and kernels explain."""


@dataclass(frozen=True)
class GateResult:
    """Mean absolute differences per token of the fixed prompt, in nats; ``adapter_effect`` is PEFT's own."""

    tokens: int
    engine_against_reference: float
    engine_against_base: float
    adapter_effect: float

    def as_dict(self) -> dict[str, float]:
        """For a facts file."""
        return asdict(self)


def engine_matches_reference(
    engine: Engine,
    model_dir: Path,
    adapter_dir: Path | None,
    name: str = ALIAS,
    dtype: str = "float32",
    prompt: str = GATE_PROMPT,
) -> GateResult:
    """Compare the engine with transformers and PEFT on one prompt.

    :param engine: a running engine.
    :param model_dir: folder of the base model.
    :param adapter_dir: folder of the adapter, or None to compare the base model.
    :param name: name at the engine of what ``adapter_dir`` holds.
    :param dtype: precision of engine and reference.
    :raises AdapterNotServed: the two disagree, or the engine is nearer to the base model than to the adapter.
    """
    scored = engine.scored_prompt(name, prompt)
    ids = engine.tokenize(name, prompt)
    if [token for token, _ in scored] != ids[1:]:
        raise AdapterNotServed(f"{name}: the engine scored other tokens than it says it made of the prompt")
    served = [value for _, value in scored]
    base, adapted = reference_logprobs(model_dir, adapter_dir, ids, dtype)
    result = GateResult(len(served), _mean(served, adapted), _mean(served, base), _mean(adapted, base))
    tolerance = TOLERANCE[dtype]
    if result.engine_against_reference > tolerance:
        raise AdapterNotServed(
            f"{adapter_dir or model_dir}: engine and reference differ by {result.engine_against_reference:.4g} nats "
            f"per token, more than {tolerance:g} ({dtype}); the engine does not serve this policy as it was trained"
        )
    effective = adapter_dir is not None and has_effect(Path(adapter_dir))
    if effective and result.engine_against_reference >= result.engine_against_base and result.adapter_effect > 0:
        raise AdapterNotServed(f"{adapter_dir}: the engine's answers are as near to the base model as to the adapter")
    return result


def reference_logprobs(
    model_dir: Path, adapter_dir: Path | None, ids: list[int], dtype: str
) -> tuple[list[float], list[float]]:
    """Log-probabilities of ``ids[1:]`` under the base and with the adapter, in nats, computed on the CPU."""
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    def logprobs(model: torch.nn.Module) -> list[float]:
        tokens = torch.tensor([ids])
        with torch.no_grad():
            logits = model(tokens).logits[0, :-1].float()
        picked = torch.log_softmax(logits, dim=-1).gather(-1, tokens[0, 1:, None])
        return [float(value) for value in picked[:, 0]]

    model = AutoModelForCausalLM.from_pretrained(model_dir, dtype=getattr(torch, dtype)).eval()
    base = logprobs(model)
    if adapter_dir is None:
        return base, base
    return base, logprobs(PeftModel.from_pretrained(model, adapter_dir).eval())


def _mean(one: list[float], other: list[float]) -> float:
    return sum(abs(a - b) for a, b in zip(one, other, strict=True)) / len(one)
