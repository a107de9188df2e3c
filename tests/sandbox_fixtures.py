"""Fixtures of the sandbox's tests; a plugin of its own, since the tests import the rest by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sandboxes import DOCKERFILE, GOLD, TEST_SH


@pytest.fixture
def task(tmp_path: Path) -> Path:
    """A task folder with input, tests and a solution."""
    files = {
        "environment/Dockerfile": DOCKERFILE,
        "environment/input/sales.csv": "price\n1\n3\n",
        "tests/test.sh": TEST_SH,
        "tests/gold.txt": GOLD,
        "solution/solve.sh": f"#!/bin/bash\necho {GOLD} > /workdir/answer.txt\n",
    }
    for name, text in files.items():
        path = tmp_path / "task" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "task"


@pytest.fixture
def agents(tmp_path: Path) -> Path:
    """An agents' folder with one command in it."""
    command = tmp_path / "agents" / "node_modules" / ".bin" / "hello"
    command.parent.mkdir(parents=True)
    command.write_text("#!/bin/sh\necho hello from the agent\n")
    command.chmod(0o755)
    return tmp_path / "agents"
