"""Trains the tiny policy from scratch on experts' transcripts.

A curriculum: at first only question and final command, which is where copying is learned; then whole sessions, most of
them under a shortened system prompt; at last whole sessions under the agent's whole prompt.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch

from scripts.demo.experts import Bash, Session, solve
from scripts.demo.tokenizer import TURN_END, TURN_START, assistant_mask
from scripts.demo.transcripts import Message, RecordedRequest, messages, opening, shorten, turn, vary_folders
from scripts.demo.vocabulary import CATEGORIES
from scripts.demo.world import Task, draw_task
from scripts.study.config import DemoPolicy

HEAD_SIZE = 32
LONGEST_TRANSCRIPT = 900
"""Tokens; the few longer transcripts are left out."""

COMMAND_STEPS = 200
"""Steps that see commands only, at most :data:`MOST_COMMANDS` of all; copying is learned by step 160."""

MOST_COMMANDS = 0.45

WHOLE_PROMPTS = 0.4
"""Fraction of the remaining steps, the last ones, under whole system prompts."""

COOLDOWN = 0.5
"""Fraction of the steps, at the end, over which the learning rates fall to zero."""

WARMUP_STEPS = 30
MUON_RATE = 0.02
ADAMW_RATE = 3e-3

Example = tuple[list[int], list[int]]
"""Token ids of a conversation, and 1 for each token that the policy is to say."""


@dataclass(frozen=True)
class Lessons:
    """What the policy learns from, in the order in which it does."""

    commands: list[Example]
    short_prompts: list[Example]
    whole_prompts: list[Example]


def encode(tokenizer: Any, conversations: list[tuple[list[Message], list[dict[str, Any]] | None]]) -> list[Example]:
    """Token ids and masks of whole conversations; too long ones are left out."""
    texts = [tokenizer.apply_chat_template(shown, tools=tools, tokenize=False) for shown, tools in conversations]
    start = tokenizer.encode(f"{TURN_START}assistant\n", add_special_tokens=False)
    end = tokenizer.convert_tokens_to_ids(TURN_END)
    encoded = tokenizer(texts, add_special_tokens=False)["input_ids"]
    return [(ids, assistant_mask(ids, start, end)) for ids in encoded if len(ids) <= LONGEST_TRANSCRIPT]


def make_lessons(tokenizer: Any, requests: list[RecordedRequest], recipe: DemoPolicy, seed: int) -> Lessons:
    """Draw and encode the transcripts; tasks are those of role ``train`` only, so held-out questions stay unseen."""
    rng = random.Random(f"transcripts {seed}")
    sessions: list[Session] = [
        solve(rng, draw_task(rng, "train"), recipe.waste, recipe.wrong_fraction) for _ in range(recipe.transcripts)
    ]
    commands: list[tuple[list[Message], list[dict[str, Any]] | None]] = []
    short: list[tuple[list[Message], list[dict[str, Any]] | None]] = []
    whole: list[tuple[list[Message], list[dict[str, Any]] | None]] = []
    for session in sessions:
        request = rng.choice(requests)
        end = rng.choice(("", "\n"))
        commands.append((command_lesson(rng, session.task, request.harness, end), None))
        system = vary_folders(rng, request.system)
        tools = list(request.tools)
        short.append((messages(session, request.harness, shorten(rng, system), end), tools))
        whole.append((messages(session, request.harness, system, end), tools))
    share = int(len(sessions) * WHOLE_PROMPTS) + 1
    return Lessons(encode(tokenizer, commands), encode(tokenizer, short), encode(tokenizer, whole[:share]))


def command_lesson(rng: random.Random, task: Task, harness: str, end: str) -> list[Message]:
    """A question and the right command at once, with a value of any category.

    Within its category a value is guessed right in one case of five, which a young policy is slow to leave; with a
    value from anywhere only copying pays.
    """
    value = rng.choice([value for values in CATEGORIES.values() for value in values])
    task = replace(task, question=replace(task.question, value=value))
    return opening(task.instruction() + end, "")[1:] + turn(harness, Bash(task.command(), ""))[:1]


def batches(examples: list[Example], batch_tokens: int, rng: random.Random) -> Iterator[list[Example]]:
    """Endless batches of examples of like length, at most ``batch_tokens`` tokens with padding, in random order."""
    while True:
        order = list(range(len(examples)))
        rng.shuffle(order)
        for start in range(0, len(order), 512):
            chunk = sorted(order[start : start + 512], key=lambda i: len(examples[i][0]))
            ready: list[list[Example]] = []
            current: list[Example] = []
            for i in chunk:
                if current and len(examples[i][0]) * (len(current) + 1) > batch_tokens:
                    ready.append(current)
                    current = []
                current.append(examples[i])
            ready.append(current)
            rng.shuffle(ready)
            yield from ready


def collate(examples: list[Example], padding: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids and masks as two [examples, longest] tensors, padded on the right (causal attention never looks there)."""
    longest = max(len(ids) for ids, _ in examples)
    ids = torch.full((len(examples), longest), padding)
    mask = torch.zeros(len(examples), longest, dtype=torch.bool)
    for row, (tokens, said) in enumerate(examples):
        ids[row, : len(tokens)] = torch.tensor(tokens)
        mask[row, : len(said)] = torch.tensor(said, dtype=torch.bool)
    return ids, mask


def new_model(tokenizer: Any, recipe: DemoPolicy) -> Any:
    """A Qwen3 model with random weights; its vocabulary is the tokenizer's, rounded up to a multiple of 16."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    heads = recipe.hidden_size // HEAD_SIZE
    config = Qwen3Config(
        vocab_size=(len(tokenizer) + 15) // 16 * 16,
        hidden_size=recipe.hidden_size,
        intermediate_size=3 * recipe.hidden_size,
        num_hidden_layers=recipe.layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        head_dim=HEAD_SIZE,
        max_position_embeddings=8192,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return Qwen3ForCausalLM(config)


def loss_of(model: Any, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Mean cross-entropy of the tokens that the policy is to say; logits are computed for those only."""
    with torch.autocast("cpu", torch.bfloat16):
        hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state[:, :-1]
        chosen = mask[:, 1:]
        logits = model.lm_head(hidden[chosen])
    return torch.nn.functional.cross_entropy(logits.float(), ids[:, 1:][chosen])


def optimizers(model: Any) -> list[torch.optim.Optimizer]:
    """Muon for the weight matrices, AdamW for embeddings and norms."""
    matrices = [p for name, p in model.named_parameters() if p.ndim == 2 and "embed" not in name]
    others = [p for name, p in model.named_parameters() if p.ndim != 2 or "embed" in name]
    return [
        torch.optim.Muon(matrices, lr=MUON_RATE, weight_decay=0.0, momentum=0.95),
        torch.optim.AdamW(others, lr=ADAMW_RATE, betas=(0.9, 0.95), weight_decay=0.0),
    ]


def rate_factor(step: int, steps: int) -> float:
    """Factor on the learning rates at a step (from 0): a short rise, level, then a linear fall to zero."""
    return min(1.0, (step + 1) / WARMUP_STEPS, (1 - step / steps) / COOLDOWN)


def stage_of(step: int, steps: int) -> int:
    """The stage of a step (from 0): 0 commands only, 1 shortened system prompts, 2 whole ones."""
    commands = min(COMMAND_STEPS, int(steps * MOST_COMMANDS))
    if step < commands:
        return 0
    return 1 if step < steps - (steps - commands) * WHOLE_PROMPTS else 2


def train_policy(
    tokenizer: Any, requests: list[RecordedRequest], recipe: DemoPolicy, seed: int, say: Callable[[str], None]
) -> Any:
    """Train the policy for a fixed number of steps.

    Same seed, prompts, machine and thread count give the same weights.

    :param say: takes lines of progress.
    :return: the model, in float32.
    """
    torch.set_num_threads(recipe.threads)
    torch.manual_seed(seed)
    started = time.monotonic()
    lessons = make_lessons(tokenizer, requests, recipe, seed)
    say(f"{recipe.transcripts} transcripts in {time.monotonic() - started:.0f} s")
    model = new_model(tokenizer, recipe)
    model.train()
    chosen = optimizers(model)
    peaks = [[group["lr"] for group in optimizer.param_groups] for optimizer in chosen]
    rng = random.Random(f"batches {seed}")
    stages = [
        batches(examples, recipe.batch_tokens, rng)
        for examples in (lessons.commands, lessons.short_prompts, lessons.whole_prompts)
    ]
    started = last = time.monotonic()
    for step in range(recipe.steps):
        stage = stage_of(step, recipe.steps)
        for optimizer, rates in zip(chosen, peaks, strict=True):
            for group, peak in zip(optimizer.param_groups, rates, strict=True):
                group["lr"] = peak * rate_factor(step, recipe.steps)
        loss = loss_of(model, *collate(next(stages[stage]), tokenizer.pad_token_id))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in chosen:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        now = time.monotonic()
        if now - last > 5 or step + 1 == recipe.steps:
            last = now
            left = (now - started) / (step + 1) * (recipe.steps - step - 1)
            say(f"step {step + 1}/{recipe.steps}, stage {stage + 1}, loss {loss.item():.4f}, {left:.0f} s left")
    return model.eval().to(torch.float32)
