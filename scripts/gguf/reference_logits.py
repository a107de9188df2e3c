"""The evaluated adapter's logits, in float32, where the engine sampled: the reference that GGUF files are held to."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from scripts.gguf.turns import Turn


def logits_file(folder: Path, number: int, kind: str) -> Path:
    """File with a turn's logits, of shape (tokens of the reply, vocabulary)."""
    return folder / f"{number:04d}.{kind}.npy"


def save_reference(
    base: Path, adapter: Path, turns: Sequence[Turn], folder: Path, report: Callable[[int], None] = lambda _: None
) -> None:
    """Compute each turn's logits with transformers and PEFT and save them, with the tokens and texts to compare.

    Row i of a turn's logits predicts token i of the reply from the prompt and the reply's earlier tokens.
    ``turns.json`` gets the tokens of each turn, the text that they decode to, and what the model's own tokenizer makes
    of that text again.

    :param folder: existing folder that the files go to.
    :param report: called with the number of finished turns.
    """
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    tokenizer = AutoTokenizer.from_pretrained(base)
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32).to(device)
    model = PeftModel.from_pretrained(model, str(adapter)).eval()
    listed = []
    for number, turn in enumerate(turns):
        ids = torch.tensor([[*turn.prompt, *turn.completion]], device=device)
        with torch.inference_mode():
            logits = model(input_ids=ids, logits_to_keep=len(turn.completion) + 1, use_cache=False).logits[0, :-1]
        np.save(logits_file(folder, number, "reference"), logits.float().cpu().numpy())
        text = tokenizer.decode(turn.prompt, skip_special_tokens=False, clean_up_tokenization_spaces=False)
        again = tokenizer(text, add_special_tokens=False)["input_ids"]
        listed.append({"prompt": turn.prompt, "completion": turn.completion, "text": text, "tokens": again})
        report(number + 1)
    (folder / "turns.json").write_text(json.dumps(listed))
