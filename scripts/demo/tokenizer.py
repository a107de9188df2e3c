"""The demo policy's tokenizer: byte-level BPE of which every name of the closed world is one token.

Few tokens mean short conversations, and a copied name is one decision: that is what makes minutes of training enough.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from scripts.demo.experts import FAREWELLS, Bash, solve
from scripts.demo.transcripts import RecordedRequest
from scripts.demo.vocabulary import NAMES
from scripts.demo.world import COMMAND_END, COMMAND_REDIRECT, COMMAND_START, EXPRESSIONS, draw_task

END_OF_TEXT, TURN_START, TURN_END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
MARKERS = ("<tool_call>", "</tool_call>", "<think>", "</think>")
"""vLLM's parsers look for these as tokens of their own."""

LONGEST_FRAGMENT = 31
"""Bytes of the longest fragment that the policy may say: llama-cpp-python's detokenizer drops longer tokens."""

SHORTEST_PROMPT_LINE = 12
"""Characters from which on a piece of a system prompt becomes a token; pieces are read, never said."""

QWEN2_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""Qwen2's pre-tokenizer, which llama.cpp knows by the name of qwen2."""

CORPUS_TASKS = 2500
BPE_ENTRIES = 1200
SMALLEST_COUNT = 4

TEMPLATE = Path(__file__).with_name("chat_template.jinja")

FIXED_FRAGMENTS = (
    "user\n",
    "assistant\n",
    "system\n",
    "# Tools:",
    '")',
    "=='",
    "\n<function=bash>\n",
    "<parameter=command>\n",
    "\n<function=read>\n",
    "<parameter=path>\n",
    "\n</parameter>\n",
    "<parameter=limit>\n",
    "</function>\n",
    "<tool_response>\n",
    "\n</tool_response>",
    "(no output)",
    "head: cannot open 'data.csv'",
    " for reading: No such file",
    " or directory\n",
    "Command exited with code 1",
    " more lines in file. Use offset",
    "=4 to continue.]",
    "head -3 ",
    "head -3 data.csv",
    "wc -l ",
    "cat ",
    "answer.txt",
)
"""Pieces of calls and results that recur in every conversation."""


def fragments() -> list[str]:
    """Recurring pieces of commands and messages, each to become a token; none longer than :data:`LONGEST_FRAGMENT`."""
    found: set[str] = set(FIXED_FRAGMENTS)
    for text in (*EXPRESSIONS.values(), COMMAND_START, COMMAND_END + COMMAND_REDIRECT, COMMAND_END, *FAREWELLS):
        for piece in re.split(r"\{[a-z_]+\}", text):
            encoded = piece.encode()
            for start in range(0, len(encoded), LONGEST_FRAGMENT):
                part = encoded[start : start + LONGEST_FRAGMENT].decode()
                if len(part) >= 3:
                    found.add(part)
    return sorted(found)


def prompt_pieces(system: str) -> list[str]:
    """Long pieces of a system prompt between line breaks and the folders that may vary, in order, each once."""
    folders = r"/[\w./@-]*?(?=/node_modules/)|/workdir"
    pieces = (piece for line in system.split("\n") for piece in re.split(folders, line))
    return list(dict.fromkeys(piece for piece in pieces if len(piece) >= SHORTEST_PROMPT_LINE))


def corpus(seed: int, systems: Iterable[str]) -> list[str]:
    """Texts to learn the byte pairs from, with line breaks in place of the names, which are tokens already."""
    rng = random.Random(f"tokenizer {seed}")
    names = re.compile("|".join(map(re.escape, sorted(NAMES, key=len, reverse=True))))
    texts: list[str] = []
    for _ in range(CORPUS_TASKS):
        session = solve(rng, draw_task(rng, "train"), waste=1.0, wrong_fraction=0.3)
        said = [session.task.instruction(), session.farewell]
        for step in session.steps:
            said += [step.command, step.output] if isinstance(step, Bash) else [step.path, step.content]
        texts.append("\n".join(said))
    texts += list(systems) * 8
    return [names.sub("\n", text) for text in texts]


def build_tokenizer(seed: int, requests: Iterable[RecordedRequest]) -> Any:
    """Train the tokenizer.

    :param seed: seed of the corpus; same seed and prompts, same tokenizer.
    :param requests: recorded requests of the agents that the policy is to know.
    :return: a ``PreTrainedTokenizerFast`` with chat template and TRL's response template for qwen3_coder calls.
    """
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast
    from trl.chat_template_utils import qwen3_5_template

    systems = [request.system for request in requests]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(QWEN2_SPLIT), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=BPE_ENTRIES,
        special_tokens=[END_OF_TEXT, TURN_START, TURN_END],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        min_frequency=SMALLEST_COUNT,
        show_progress=False,
    )
    tokenizer.train_from_iterator(corpus(seed, systems), trainer)
    pieces = [piece for system in systems for piece in prompt_pieces(system)]
    added = dict.fromkeys([*MARKERS, *sorted(NAMES), *fragments(), *pieces])
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in added])
    wrapped = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=TURN_END, pad_token=END_OF_TEXT)
    wrapped.chat_template = TEMPLATE.read_text(encoding="utf-8")
    wrapped.response_template = qwen3_5_template
    return wrapped


def assistant_mask(ids: list[int], start: list[int], end: int) -> list[int]:
    """1 for every token that the model says itself, its end-of-turn token included, else 0.

    :param ids: a whole conversation.
    :param start: the tokens that open the assistant's turn.
    :param end: the token that ends a turn.
    """
    mask = [0] * len(ids)
    position, width = 0, len(start)
    while position <= len(ids) - width:
        if ids[position] != start[0] or ids[position : position + width] != start:
            position += 1
            continue
        position += width
        while position < len(ids):
            mask[position] = 1
            position += 1
            if ids[position - 1] == end:
                break
    return mask
