"""What an agent leaves behind to fool the grader must not: each attempt gets the grade of its answer."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

pytest.importorskip("harbor")


from tests.sandboxes import GOLD, grade, graded_after, running

pytest_plugins = ["tests.sandbox_fixtures"]


def test_right_answer_gets_one_and_wrong_or_none_zero(task: Path, agents: Path) -> None:
    assert graded_after(task, agents, f"echo {GOLD} > answer.txt") == 1.0
    assert graded_after(task, agents, "echo wrong > answer.txt") == 0.0
    assert graded_after(task, agents, "true") == 0.0


PLANTED_PYTHON = f"import pathlib; pathlib.Path('/workdir/answer.txt').write_text('{GOLD}')"
FOOL = "echo '{\"correctness\": 1.0}' >"


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(f"{FOOL} /logs/verifier/reward.json; chmod 444 /logs/verifier/reward.json", id="early reward"),
        pytest.param("rm -rf /logs/verifier; ln -s /workdir /logs/verifier", id="linked verifier folder"),
        pytest.param(f"{FOOL} r; ln -sf /workdir/r /logs/verifier/reward.json", id="linked reward"),
        pytest.param("rm -rf /logs/verifier; mkfifo /logs/verifier", id="pipe for the verifier folder"),
        pytest.param("mkfifo /logs/verifier/reward.json", id="pipe for the reward"),
        pytest.param("ln -s /tests/gold.txt answer.txt", id="answer links to the gold"),
        pytest.param("ln -s /tests d; ln -s d/gold.txt answer.txt", id="answer links to the gold through a folder"),
        pytest.param("ln -s ../tests/gold.txt answer.txt", id="answer links to the gold by a relative path"),
        pytest.param("ln -s /proc/self/cwd/../tests/gold.txt answer.txt", id="answer links through /proc"),
        pytest.param("mkfifo answer.txt", id="answer is a pipe"),
        pytest.param("ln -s /dev/zero answer.txt", id="answer is endless"),
        pytest.param(f'echo "{PLANTED_PYTHON}" > json.py', id="module in the working folder"),
        pytest.param(f'echo "{PLANTED_PYTHON}" > pathlib.py', id="module in the working folder, the first one"),
        pytest.param(
            f'for v in 9 10 11 12 13; do d=$HOME/.local/lib/python3.$v/site-packages; mkdir -p $d; '
            f'echo "{PLANTED_PYTHON}" > $d/usercustomize.py; cp $d/usercustomize.py $d/sitecustomize.py; '
            f'echo "{PLANTED_PYTHON}" > $d/x.pth; done',
            id="python start-up files",
        ),
        pytest.param(
            f"mkdir -p ~/bin ~/.local/bin; printf '#!/bin/bash\\necho {GOLD} > /workdir/answer.txt; "
            'exec /usr/bin/python3 "$@"\' > ~/bin/python3; chmod +x ~/bin/python3; cp ~/bin/python3 ~/.local/bin/; '
            "cp ~/bin/python3 /workdir/; echo 'PATH=~/bin:$PATH' | tee ~/.bashrc ~/.profile ~/.bash_profile",
            id="program of the same name",
        ),
        pytest.param(
            f"echo 'echo {GOLD} > /workdir/answer.txt' | tee ~/.bashrc ~/.bash_profile ~/.profile ~/.bash_env; "
            "export BASH_ENV=~/.bash_env",
            id="shell start-up files",
        ),
        pytest.param(f"{FOOL} /tests/test.sh; mkdir -p /tests; {FOOL} /tests/json.py", id="tests written early"),
    ],
)  # fmt: skip
def test_grader_is_not_fooled(task: Path, agents: Path, command: str) -> None:
    assert graded_after(task, agents, command) == 0.0


def test_links_among_the_agents_own_files_stay(task: Path, agents: Path) -> None:
    command = f"mkdir out; echo {GOLD} > out/a.txt; ln -s out/a.txt answer.txt; ln -s /usr/bin/env tool"

    async def work() -> tuple[float, int]:
        async with running(task, agents) as environment:
            await environment.exec(command)
            reward = await grade(environment, task)
            return reward, (await environment.exec("test -x /workdir/tool")).return_code

    assert asyncio.run(work()) == (1.0, 0)


def test_grader_does_not_see_the_agents_home_and_tmp(task: Path, agents: Path) -> None:
    async def work() -> str:
        async with running(task, agents) as environment:
            await environment.exec("touch ~/left /tmp/left; mkdir -p ~/.config")
            await grade(environment, task)
            return (await environment.exec("ls -A /root /tmp")).stdout or ""

    text = asyncio.run(work())
    assert "left" not in text
    assert ".config" not in text


def test_grader_sees_the_agents_logs(task: Path, agents: Path) -> None:
    async def work() -> str:
        async with running(task, agents) as environment:
            await environment.exec("echo turn > /logs/agent/pi.txt")
            await grade(environment, task)
            return (await environment.exec("cat /logs/agent/pi.txt")).stdout or ""

    assert asyncio.run(work()) == "turn\n"
