"""Harbor task folders of the closed world, in the layout of the SmolDataEnvs data sets."""

from __future__ import annotations

import json
import random
from pathlib import Path

from scripts.demo import grader
from scripts.demo.world import LEVELS, Task, draw_task
from scripts.study.config import Difficulty

ORGANISATION = "harness-cards"

TASK_TOML = """\
schema_version = "1.4"

[task]
name = "{organisation}/{task_id}"
description = "One question over one CSV file"

[metadata]
domain = "data-analysis"
kind = "{kind}"
level = {level}
difficulty_tier = "{difficulty}"

[agent]
timeout_sec = 120.0

[verifier]
timeout_sec = 60.0

[environment]
build_timeout_sec = 300.0
cpus = 1
memory_mb = 1024
workdir = "/workdir"
"""

DOCKERFILE = """\
FROM python:3.11-slim
COPY input /workdir
WORKDIR /workdir
"""

TEST_SCRIPT = """\
#!/bin/bash
exec python3 -I /tests/grader.py
"""

SOLUTION = """\
#!/bin/bash
set -e
cd /workdir
{command}
"""


def difficulty(task: Task) -> Difficulty:
    """The difficulty tier of a task."""
    return "medium" if LEVELS[task.question.kind] >= 3 else "easy"


def draw_tasks(role: str, seed: int, limit: int, wanted: list[Difficulty]) -> list[Task]:
    """Draw the tasks of a suite: no two with the same instruction, all of a wanted difficulty.

    :param role: the suite's role, which decides what may be asked.
    :param seed: same seed, same tasks.
    :param limit: number of tasks.
    """
    if "easy" not in wanted and "medium" not in wanted:
        raise ValueError("generated tasks are easy or medium; add one of them to the suite's `difficulty`")
    rng = random.Random(f"suite {role} {seed}")
    tasks: dict[str, Task] = {}
    misses = 0
    while len(tasks) < limit:
        task = draw_task(rng, role)
        if difficulty(task) not in wanted or task.instruction() in tasks:
            misses += 1
            if misses > 1000 + 100 * limit:
                raise ValueError(f"the closed world has no {limit} different tasks of that kind; lower `limit`")
            continue
        tasks[task.instruction()] = task
    return list(tasks.values())


def write_task(task: Task, task_id: str, folder: Path) -> None:
    """Write one Harbor task folder, with its grader and oracle solution."""
    gold = task.answer()
    assert gold is not None
    files = {
        "task.toml": TASK_TOML.format(
            organisation=ORGANISATION,
            task_id=task_id,
            kind=task.question.kind,
            level=LEVELS[task.question.kind],
            difficulty=difficulty(task),
        ),
        "instruction.md": task.instruction() + "\n",
        "environment/Dockerfile": DOCKERFILE,
        f"environment/input/{task.question.file}": task.csv(),
        "tests/test.sh": TEST_SCRIPT,
        "tests/grader.py": Path(grader.__file__).read_text(encoding="utf-8"),
        "tests/gold.json": json.dumps({"answer": gold}) + "\n",
        "solution/solve.sh": SOLUTION.format(command=task.command()),
    }
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
        if path.suffix == ".sh":
            path.chmod(0o755)


def write_source(root: Path, name: str, role: str, seed: int, limit: int, wanted: list[Difficulty]) -> None:
    """Write a source of generated tasks: folders ``root/<name>-<number>`` in order of drawing."""
    for number, task in enumerate(draw_tasks(role, seed, limit, wanted)):
        task_id = f"{name}-{number:04d}"
        write_task(task, task_id, root / task_id)
