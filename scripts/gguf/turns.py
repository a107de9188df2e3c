"""Which recorded model turns the fidelity is measured on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts.study.attempts import read_attempts


class TurnsError(ValueError):
    """The recorded turns cannot be used; the message names the file and what to do."""


@dataclass(frozen=True)
class Turn:
    """One reply of the model as the engine sampled it.

    :param key: suite, task, attempt and turn, as text; unique.
    :param prompt: token ids before the reply.
    :param completion: token ids of the reply.
    """

    key: str
    prompt: tuple[int, ...]
    completion: tuple[int, ...]


def read_turns(attempts: Iterable[Path], outdir: Path) -> list[Turn]:
    """All turns of the scored attempts that have token ids.

    :param attempts: JSONL files of attempts.
    :param outdir: the results folder, to which the rows' ``trajectory`` is relative.
    :raises TurnsError: a trace is missing or is not what it should be.
    """
    turns = []
    for path in attempts:
        for row in read_attempts(path):
            if row.status != "scored" or row.trajectory is None:
                continue
            trace = outdir / row.trajectory
            for number, turn in enumerate(_read_trace(trace, path)):
                prompt, completion = (_ids(turn, name, trace) for name in ("prompt_token_ids", "completion_token_ids"))
                if prompt and completion:
                    turns.append(Turn(f"{row.suite}/{row.task_id}/{row.attempt}/{number}", prompt, completion))
    return turns


def choose_turns(turns: Iterable[Turn], number: int) -> list[Turn]:
    """Up to ``number`` turns, the same ones each time: those whose keys have the smallest hashes, sorted by key."""
    by_hash = sorted(turns, key=lambda turn: hashlib.sha256(turn.key.encode()).digest())
    return sorted(by_hash[:number], key=lambda turn: turn.key)


def _read_trace(trace: Path, source: Path) -> list[dict[str, Any]]:
    try:
        turns = json.loads(trace.read_text())
    except OSError as error:
        raise TurnsError(f"{trace}: {error.strerror}, though {source} names it; evaluate the policy again") from None
    except ValueError:
        raise TurnsError(f"{trace}: not JSON; remove it and evaluate the policy again") from None
    if not isinstance(turns, list) or not all(isinstance(turn, dict) for turn in turns):
        raise TurnsError(f"{trace}: a list of turns is expected")
    return turns


def _ids(turn: dict[str, Any], name: str, trace: Path) -> tuple[int, ...]:
    ids = turn.get(name)
    if not isinstance(ids, list) or not all(isinstance(value, int) for value in ids):
        raise TurnsError(f"{trace}: a turn has no list of token ids `{name}`")
    return tuple(ids)
