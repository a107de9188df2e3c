"""Running Snakemake in the background for the end-to-end test, and killing parts of it."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import psutil

ROOT = Path(__file__).parent.parent
LIMIT_S = 1500
"""A run that takes longer than this is stuck; the test ends it and fails."""


class Run:
    """One Snakemake run and every process that it ever started.

    :param arguments: Snakemake's arguments after ``--cores all``.
    :param log: file for its output.
    """

    started: ClassVar[list[Run]] = []

    def __init__(self, *arguments: str, log: Path) -> None:
        Run.started.append(self)
        command = [sys.executable, "-m", "snakemake", "--cores", "all", *arguments]
        self.log = log
        self.seen: dict[int, psutil.Process] = {}
        with log.open("ab") as file:
            self.process = psutil.Popen(
                command,
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def look(self) -> None:
        """Remember the processes that live below Snakemake now."""
        try:
            for child in self.process.children(recursive=True):
                self.seen.setdefault(child.pid, child)
        except psutil.NoSuchProcess:
            pass

    def wait(self, condition: Callable[[], bool] | None = None) -> int | None:
        """Wait until the condition holds (None is returned), or until Snakemake ends (its exit code is)."""
        until = time.monotonic() + LIMIT_S
        while time.monotonic() < until:
            self.look()
            code = self.process.poll()
            if code is not None:
                return code
            if condition is not None and condition():
                return None
            time.sleep(0.1)
        self.end()
        raise AssertionError(f"not done after {LIMIT_S} s:\n{self.tail()}")

    def job(self, program: str) -> psutil.Process:
        """The running program of a rule, such as ``scripts.train_adapter``: the oldest process of that command."""
        self.look()
        found = []
        for process in self.seen.values():
            try:
                if process.cmdline()[1:3] == ["-m", program]:
                    found.append(process)
            except (psutil.NoSuchProcess, psutil.ZombieProcess):
                continue
        assert found, f"{program} is not running:\n{self.tail()}"
        return min(found, key=lambda process: process.create_time())

    def survivors(self, within_s: float = 30.0) -> list[str]:
        """Commands of processes that still live ``within_s`` seconds after the kill."""
        until = time.monotonic() + within_s
        left: list[str] = []
        while time.monotonic() < until:
            left = []
            for process in self.seen.values():
                try:
                    if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                        left.append(" ".join(process.cmdline())[:200])
                except psutil.NoSuchProcess:
                    continue
            if not left:
                return []
            time.sleep(0.2)
        return left

    @classmethod
    def end_all(cls) -> None:
        """End every run that is still going on."""
        for run in cls.started:
            run.end()

    def end(self) -> None:
        """End Snakemake and what it started, by process id."""
        self.look()
        for process in [self.process, *self.seen.values()]:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue

    def tail(self) -> str:
        """The end of its output."""
        return self.log.read_text(errors="replace")[-4000:]


def count_lines(folder: Path, pattern: str) -> int:
    """Whole lines in all files of a folder that match a pattern; 0 while there are none."""
    return sum(path.read_bytes().count(b"\n") for path in folder.glob(pattern))
