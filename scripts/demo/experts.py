"""Experts of the closed world: they reach an answer, on the way waste calls, and sometimes compute the wrong thing.

The waste and the mistakes are what reinforcement learning can remove later.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from scripts.demo.world import WRONG_KIND, Task

FAREWELLS = ("Done.", "The answer is saved in {answer_file}.")
"""What an expert says when finished."""

STRAIGHT = 0.15
"""Fraction of experts that save the answer at once, so that the policy has seen the short way."""

MISSING_FILE = "data.csv"
"""A file that some experts try though it does not exist."""


@dataclass(frozen=True)
class Bash:
    """A shell command and what it printed; ``failed`` if it ended with code 1."""

    command: str
    output: str
    failed: bool = False


@dataclass(frozen=True)
class ReadFile:
    """The first lines of a file, read by the agent's own tool; ``left`` lines follow."""

    path: str
    lines: int
    content: str
    left: int


Step = Bash | ReadFile


@dataclass(frozen=True)
class Session:
    """What an expert did for one task."""

    task: Task
    steps: tuple[Step, ...]
    farewell: str


def listing(task: Task) -> Bash:
    """Look which files there are."""
    return Bash("ls", f"{task.question.file}\n")


def head(task: Task) -> Bash:
    """Look at the first lines."""
    return Bash(f"head -3 {task.question.file}", task.csv(3))


def look_around(rng: random.Random, task: Task, waste: float) -> list[Step]:
    """Calls that do not help: the instruction already names file and columns."""
    file = task.question.file
    steps: list[Step] = []
    if rng.random() < 0.45 * waste:
        steps.append(listing(task))
    if rng.random() < 0.12 * waste:
        error = f"head: cannot open '{MISSING_FILE}' for reading: No such file or directory\n"
        steps.append(Bash(f"head -3 {MISSING_FILE}", error, failed=True))
        if rng.random() < 0.5:
            steps.append(listing(task))
    if rng.random() < 0.6 * waste:
        steps.append(head(task))
    if rng.random() < 0.2 * waste:
        steps.append(ReadFile(file, 3, task.csv(3), len(task.rows) + 1 - 3))
    if rng.random() < 0.3 * waste:
        steps.append(Bash(f"wc -l {file}", f"{len(task.rows) + 1} {file}\n"))
    return steps


def solve(rng: random.Random, task: Task, waste: float, wrong_fraction: float) -> Session:
    """One expert's session.

    :param waste: scale of the chances of useless calls; 0 for none, 1 for about four calls in all.
    :param wrong_fraction: chance of computing another kind of answer, consistently, to the end.
    """
    kind = task.question.kind
    if rng.random() < wrong_fraction:
        kind = WRONG_KIND[kind]
    printed = f"{task.answer(kind)}\n"
    save = Bash(task.command(kind), "")
    check = Bash(f"cat {task.answer_file}", printed)
    steps: list[Step] = []
    if rng.random() < STRAIGHT:
        steps.append(save)
    else:
        steps += look_around(rng, task, waste)
        if rng.random() < 0.35 * waste:
            steps.append(Bash(task.command(kind, save=False), printed))
        steps.append(save)
        checks = rng.random() < 0.45 * waste
        if checks:
            steps.append(check)
        if rng.random() < 0.15 * waste:
            steps.append(save)
            if checks and rng.random() < 0.5:
                steps.append(check)
    return Session(task, tuple(steps), rng.choice(FAREWELLS).format(answer_file=task.answer_file))
