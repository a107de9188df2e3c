"""Grades a task's answer file. Copied into each generated task as tests/grader.py and run there by `python3 -I`.

Reads gold.json beside it ({"answer": text}) and /workdir/answer.txt, writes /logs/verifier/reward.json:
`correctness` (1 or 0), `submission` (1 if there is an answer), `tool_efficiency` (1 - calls / 15 within 0 and 1, of
solved tasks, by the agent's own log: for information only, an agent can write its log).

An answer counts if it equals the gold answer as text, as a number within tolerance, as a percentage, or as a list
whose items do. The agent owns /workdir and /logs: what lies there may be a link, a pipe, huge, or no text at all.
"""

import json
import math
import os
import re
import shutil
import stat
import sys
from pathlib import Path

LARGEST_ANSWER = 64 * 1024  # bytes; a longer file is no answer
LARGEST_LOG = 16 * 1024 * 1024  # bytes of the agent's logs that are looked at, all together
MOST_LOGS = 64  # files of them
CALLS_WITHOUT_BONUS = 15


def read_regular_file(folder: Path, name: str, limit: int) -> bytes | None:
    """Read a file that the agent wrote: a regular one, not through a link, at most `limit` bytes; else None."""
    try:
        # Non-blocking, so that opening a pipe returns; a folder that was replaced by a link is refused too.
        folder_handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder_handle)
        finally:
            os.close(folder_handle)
    except OSError:
        return None
    try:
        facts = os.fstat(handle)
        if not stat.S_ISREG(facts.st_mode) or facts.st_size > limit:
            return None
        with os.fdopen(os.dup(handle), "rb") as file:
            content = file.read(limit + 1)
    finally:
        os.close(handle)
    return content if len(content) <= limit else None


def as_number(text: str) -> float | None:
    """A plain decimal number, with or without thousands' commas; None for anything else, NaN and infinities too."""
    if re.fullmatch(r"[-+]?\d{1,3}(,\d{3})+(\.\d*)?", text):
        text = text.replace(",", "")
    if len(text) > 40 or not re.fullmatch(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d{1,3})?", text):
        return None
    number = float(text)
    return number if math.isfinite(number) else None


def near(number: float, gold: float) -> bool:
    """Whole numbers must be equal; others may differ by 0.01, one unit of the second decimal."""
    tolerance = 1e-9 if gold == int(gold) else 0.0100001
    return abs(number - gold) <= max(tolerance, 1e-9 * abs(gold))


def item_matches(answer: str, gold: str) -> bool:
    """Compare two items: as text without case, quotes and outer space, as numbers, or one of them as a percentage."""
    answer, gold = (text.strip().strip("'\"`").strip() for text in (answer, gold))
    if answer.casefold() == gold.casefold():
        return True
    sides = []
    for text in (answer, gold):
        number = as_number(text.removesuffix("%").rstrip())
        if number is None:
            return False
        sides.append((number, text.endswith("%")))
    (number, percent), (wanted, gold_percent) = sides
    if near(number, wanted):
        return True
    return percent != gold_percent and (near(number / 100, wanted) if percent else near(number * 100, wanted))


def items(text: str) -> list[str]:
    """The items of a list, given as [a, b], as a, b or one per line."""
    return [item for item in re.split(r"[,;\n]", text.strip().removeprefix("[").removesuffix("]")) if item.strip()]


def matches(answer: str, gold: str) -> bool:
    """Whether an answer counts as the gold answer; an empty one never does."""
    if not answer.strip():
        return False
    if item_matches(answer, gold):
        return True
    given, wanted = items(answer), items(gold)
    return len(wanted) > 1 and len(given) == len(wanted) and all(map(item_matches, given, wanted))


def count_calls(logs: Path) -> int:
    """Tool calls in an agent's logs of pi's format, looking at a bounded part of them."""
    calls, left = 0, LARGEST_LOG
    names: list[tuple[Path, str]] = []
    for folder, _, files in os.walk(logs):
        names += [(Path(folder), name) for name in files if name.endswith((".jsonl", ".txt"))]
        if len(names) > MOST_LOGS:
            break
    for folder_path, name in sorted(names)[:MOST_LOGS]:
        content = read_regular_file(folder_path, name, left)
        if content is not None:
            left -= len(content)
            calls = max(calls, content.count(b'"type":"toolCall"'))
    return calls


def write_reward(folder: Path, reward: dict[str, float]) -> None:
    """Write reward.json in place of whatever the agent may have put there."""
    if folder.is_symlink() or not folder.is_dir():
        folder.unlink(missing_ok=True)
        folder.mkdir(parents=True)
    target = folder / "reward.json"
    if target.is_dir() and not target.is_symlink():
        shutil.rmtree(target)
    else:
        target.unlink(missing_ok=True)
    with target.open("x") as file:
        json.dump(reward, file)


def main(root: Path) -> None:
    """Grade the answer below `root`, the root of the sandbox's file system."""
    gold = json.loads(Path(__file__).with_name("gold.json").read_text())["answer"]
    content = read_regular_file(root / "workdir", "answer.txt", LARGEST_ANSWER)
    answer = (content or b"").decode("utf-8", errors="replace")
    solved = matches(answer, gold)
    calls = count_calls(root / "logs" / "agent") if solved else 0
    reward = {
        "correctness": float(solved),
        "submission": float(bool(answer.strip())),
        "tool_efficiency": max(0.0, 1 - calls / CALLS_WITHOUT_BONUS) if solved else 0.0,
    }
    write_reward(root / "logs" / "verifier", reward)
    print(json.dumps(reward))


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "/"))
