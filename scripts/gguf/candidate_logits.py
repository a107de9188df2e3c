"""llama.cpp's logits for recorded turns, with the adapter at a given scale. Runs in the environment ``gguf``.

``python -m scripts.gguf.candidate_logits --base B.gguf --adapter A.gguf --turns FOLDER --scales 1 0``: reads
``turns.json`` in the folder, writes a file of logits for each turn and scale, and ``candidate.json`` with the tokens
that llama.cpp makes of the turns' texts.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scripts.gguf.reference_logits import logits_file
from scripts.rollout.processes import end_with_workflow

BATCH = 512
"""Tokens that are decoded at once."""


class LlamaError(RuntimeError):
    """llama.cpp refused a file or a batch."""


class Model:
    """A GGUF model in a context, with an adapter whose scale can be changed.

    The library's own class keeps logits of every position or of the last; only those of the replies are wanted here.

    :param base: GGUF file of the model.
    :param adapter: GGUF file of the adapter.
    :param context: tokens of the longest turn.
    :param threads: CPU threads.
    :raises LlamaError: a file cannot be loaded.
    """

    def __init__(self, base: Path, adapter: Path, context: int, threads: int) -> None:
        import llama_cpp

        self.lib = llama_cpp
        llama_cpp.llama_backend_init()
        self.model = llama_cpp.llama_model_load_from_file(str(base).encode(), llama_cpp.llama_model_default_params())
        if not self.model:
            raise LlamaError(f"{base}: llama.cpp cannot load this model")
        self.vocab = llama_cpp.llama_model_get_vocab(self.model)
        self.vocabulary = llama_cpp.llama_vocab_n_tokens(self.vocab)
        params = llama_cpp.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_ubatch = context, BATCH, BATCH
        params.n_threads = params.n_threads_batch = threads
        self.context = llama_cpp.llama_init_from_model(self.model, params)
        if not self.context:
            raise LlamaError(f"{base}: llama.cpp cannot make a context of {context} tokens")
        self.adapter = llama_cpp.llama_adapter_lora_init(self.model, str(adapter).encode())
        if not self.adapter:
            raise LlamaError(f"{adapter}: llama.cpp cannot load this adapter on {base}")

    def set_scale(self, scale: float) -> None:
        """Scale the adapter: 1 as trained, 0 not at all."""
        adapters = (self.lib.llama_adapter_lora_p_ctypes * 1)(self.adapter)
        if self.lib.llama_set_adapters_lora(self.context, adapters, 1, (ctypes.c_float * 1)(scale)):
            raise LlamaError(f"llama.cpp cannot set the adapter's scale to {scale}")

    def tokenize(self, text: str) -> list[int]:
        """Token ids of a text, special tokens in it recognised, none added."""
        data = text.encode()
        ids = (self.lib.llama_token * (len(data) + 8))()
        number = self.lib.llama_tokenize(self.vocab, data, len(data), ids, len(ids), False, True)
        return list(ids[: max(number, 0)])

    def logits(self, prompt: Sequence[int], completion: Sequence[int]) -> NDArray[np.float32]:
        """Logits of shape (tokens of the reply, vocabulary); row i predicts token i of the reply."""
        self.lib.llama_memory_clear(self.lib.llama_get_memory(self.context), True)
        tokens, first = [*prompt, *completion][:-1], len(prompt) - 1
        rows = np.empty((len(completion), self.vocabulary), dtype=np.float32)
        for start in range(0, len(tokens), BATCH):
            with self._batch(tokens[start : start + BATCH], start, first) as batch:
                if self.lib.llama_decode(self.context, batch):
                    raise LlamaError(f"llama.cpp cannot decode {batch.n_tokens} tokens at position {start}")
                for offset in range(batch.n_tokens):
                    if batch.logits[offset]:
                        row = self.lib.llama_get_logits_ith(self.context, offset)
                        rows[start + offset - first] = np.ctypeslib.as_array(row, (self.vocabulary,))
        return rows

    @contextmanager
    def _batch(self, tokens: Sequence[int], start: int, first: int) -> Iterator[Any]:
        """A batch of tokens from position ``start`` on; logits are wanted from position ``first`` on."""
        batch = self.lib.llama_batch_init(len(tokens), 0, 1)
        batch.n_tokens = len(tokens)
        for offset, token in enumerate(tokens):
            batch.token[offset], batch.pos[offset] = token, start + offset
            batch.n_seq_id[offset], batch.seq_id[offset][0] = 1, 0
            batch.logits[offset] = start + offset >= first
        try:
            yield batch
        finally:
            self.lib.llama_batch_free(batch)


def main(argv: list[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--base", type=Path, required=True, help="GGUF file of the model")
    parser.add_argument("--adapter", type=Path, required=True, help="GGUF file of the adapter")
    parser.add_argument("--turns", type=Path, required=True, help="folder with turns.json; the logits go there too")
    parser.add_argument("--scales", type=float, nargs="+", default=[1.0, 0.0], help="scales of the adapter")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    args = parser.parse_args(argv)
    end_with_workflow()
    import llama_cpp

    turns = json.loads((args.turns / "turns.json").read_text())
    longest = max(len(turn["prompt"]) + len(turn["completion"]) for turn in turns)
    try:
        model = Model(args.base, args.adapter, longest, args.threads)
        for scale in args.scales:
            model.set_scale(scale)
            for number, turn in enumerate(turns):
                rows = model.logits(turn["prompt"], turn["completion"])
                np.save(logits_file(args.turns, number, f"scale-{scale:g}"), rows)
                print(f"scale {scale:g}: turn {number + 1} of {len(turns)}", flush=True)
    except LlamaError as error:
        print(error, file=sys.stderr)
        return 1
    tokens = [model.tokenize(turn["text"]) for turn in turns]
    facts = {"llama_cpp_python": llama_cpp.__version__, "tokens": tokens}
    (args.turns / "candidate.json").write_text(json.dumps(facts))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
