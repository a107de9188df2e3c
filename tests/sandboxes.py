"""A small task and sandboxes for it, for the tests of the sandbox; import it after `pytest.importorskip("harbor")`."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

from harbor.models.task.config import EnvironmentConfig
from harbor.models.trial.paths import TrialPaths

from scripts.rollout.bubblewrap import BubblewrapEnvironment

REPOSITORY = Path(__file__).resolve().parents[1]
DOCKERFILE = "FROM python:3.11-slim\nCOPY input /workdir\nWORKDIR /workdir\n"
GOLD = "gold-answer-7341"
TEST_SH = f"""#!/bin/bash
echo '{GOLD}' > /dev/null
python3 -c "
import json, pathlib
p = pathlib.Path('/workdir/answer.txt')
got = p.read_text(errors='replace').strip() if p.is_file() else ''
pathlib.Path('/logs/verifier/reward.json').write_text(json.dumps({{'correctness': float(got == '{GOLD}')}}))
"
"""


def make(task: Path, agents: Path, ports: list[int] | None = None, **config: Any) -> BubblewrapEnvironment:
    """An environment for the task, not yet started."""
    paths = TrialPaths(task.parent / "trial")
    paths.mkdir()
    return BubblewrapEnvironment(
        environment_dir=task / "environment",
        environment_name="t",
        session_id="t__env",
        trial_paths=paths,
        task_env_config=EnvironmentConfig(**config),
        expose_ports=ports or [],
        agents_dir=str(agents),
        root=str(task.parent / "sandboxes"),
    )


@contextlib.asynccontextmanager
async def running(task: Path, agents: Path, **more: Any) -> AsyncIterator[BubblewrapEnvironment]:
    """A started sandbox, stopped at the end."""
    environment = make(task, agents, **more)
    await environment.start(force_build=False)
    try:
        yield environment
    finally:
        await environment.stop(delete=True)


def inside(task: Path, agents: Path, *commands: str, **more: Any) -> list[tuple[int, str]]:
    """Run commands one after another in a fresh sandbox: exit code and both streams' text of each."""

    async def work() -> list[tuple[int, str]]:
        async with running(task, agents, **more) as environment:
            results = [await environment.exec(command) for command in commands]
            return [(result.return_code, (result.stdout or "") + (result.stderr or "")) for result in results]

    return asyncio.run(work())


async def grade(environment: BubblewrapEnvironment, task: Path) -> float:
    """Upload the tests and grade as Harbor's verifier does; the correctness."""
    await environment.exec("rm -f -- /logs/verifier/reward.txt /logs/verifier/reward.json", user="root")
    await environment.upload_dir(task / "tests", "/tests")
    await environment.exec("chmod +x /tests/test.sh", user="root")
    await environment.exec("(/tests/test.sh) > /logs/verifier/test-stdout.txt 2>&1")
    target = task.parent / "verifier"
    await environment.download_dir("/logs/verifier", target)
    return json.loads((target / "reward.json").read_text())["correctness"]


def graded_after(task: Path, agents: Path, *commands: str) -> float:
    """The grade that a fresh sandbox gives after an agent ran these commands."""

    async def work() -> float:
        async with running(task, agents) as environment:
            for command in commands:
                await environment.exec(command)
            return await grade(environment, task)

    return asyncio.run(work())


@contextlib.contextmanager
def listener() -> Iterator[tuple[int, list[bytes]]]:
    """A server on the host's loopback that keeps what it is sent and answers `pong`."""
    got: list[bytes] = []
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            with connection:
                got.append(connection.recv(1000))
                connection.sendall(b"pong")

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield server.getsockname()[1], got
    finally:
        server.close()


def talk(port: int, host: str = "127.0.0.1") -> str:
    """Shell command that sends `ping` to a port and prints the answer."""
    return (
        f"python3 -c \"import socket; s = socket.create_connection(('{host}', {port}), 3); s.sendall(b'ping'); "
        'print(s.recv(100).decode())"'
    )
