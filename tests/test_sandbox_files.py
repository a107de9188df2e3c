"""Files on their way between host and sandbox lead out of neither."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

pytest.importorskip("harbor")


from scripts.rollout.sandbox_files import SandboxPathError
from tests.sandboxes import running

pytest_plugins = ["tests.sandbox_fixtures"]


def download(task: Path, agents: Path, command: str, path: str) -> Path:
    """Run a command and download the agent's log folder; where it went."""
    target = task.parent / "downloaded"

    async def work() -> None:
        async with running(task, agents) as environment:
            await environment.exec(command)
            await environment.download_dir(path, target)

    asyncio.run(work())
    return target


def test_download_brings_no_file_of_the_host(task: Path, agents: Path) -> None:
    secret = task.parent / "secret.txt"
    secret.write_text("secret of the host")
    command = (
        f"cd /logs/agent; echo fine > plain; ln -s {secret} link; ln -s {task.parent} folder; ln -s /etc/passwd p; "
        "ln -s ../../../../../../../etc/hostname up; mkfifo pipe; "
        "python3 -c \"import socket; socket.socket(socket.AF_UNIX).bind('sock')\""
    )
    target = download(task, agents, command, "/logs/agent")
    assert [path.name for path in target.iterdir()] == ["plain"]


def test_download_of_a_linked_folder_is_refused(task: Path, agents: Path) -> None:
    with pytest.raises(SandboxPathError, match="refused"):
        download(task, agents, f"rm -rf /logs/agent; ln -s {task.parent} /logs/agent", "/logs/agent")


def test_download_leaves_out_what_is_too_large(task: Path, agents: Path) -> None:
    command = "cd /logs/agent; truncate -s 200M sparse; echo fine > plain; mkdir -p $(printf 'd/%.0s' $(seq 100))"
    target = download(task, agents, command, "/logs/agent")
    assert (target / "plain").read_text() == "fine\n"
    assert not (target / "sparse").exists()


def test_download_file_refuses_links_and_other_places(task: Path, agents: Path) -> None:
    async def work() -> None:
        async with running(task, agents) as environment:
            await environment.exec("ln -s /etc/hostname answer.txt; mkfifo pipe")
            for path in ("/workdir/answer.txt", "/workdir/pipe", "/etc/hostname", "/workdir/../etc/hostname"):
                with pytest.raises(SandboxPathError):
                    await environment.download_file(path, task.parent / "got")
            with pytest.raises(FileNotFoundError):
                await environment.download_file("/workdir/none", task.parent / "got")

    asyncio.run(work())
    assert not (task.parent / "got").exists()


def test_upload_writes_through_no_link(task: Path, agents: Path) -> None:
    victim = task.parent / "victim"
    victim.mkdir()
    (victim / "file").write_text("untouched")

    async def work() -> None:
        async with running(task, agents) as environment:
            await environment.exec(f"ln -s {victim}/file /workdir/a; ln -s {victim} /workdir/d")
            await environment.upload_file(task / "tests/gold.txt", "/workdir/a")
            with pytest.raises(SandboxPathError):
                await environment.upload_file(task / "tests/gold.txt", "/workdir/d/file")
            with pytest.raises(SandboxPathError):
                await environment.upload_dir(task / "tests", "/workdir/d")

    asyncio.run(work())
    assert (victim / "file").read_text() == "untouched"
    assert [path.name for path in victim.iterdir()] == ["file"]
