"""Processes that a job owns: whatever ends the job, nothing of them is left.

A program's servers have children of their own (vLLM's EngineCore, the sandboxes of the rollout server), some in
sessions of their own, so that neither a signal to a process group nor a parent's death reaches them all. Each owned
process therefore runs below a small supervisor: this file, run by itself with nothing but the standard library. The
supervisor adopts every orphan below it (``PR_SET_CHILD_SUBREAPER``), so the whole tree stays visible, and ends it when
the program ends, when the owner asks, or when the owner is gone, however it died. Linux only.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType, TracebackType

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
KILL_ROUNDS = 200
"""Rounds of 50 ms in which the supervisor kills what is left; a process in uninterruptible sleep may outlast them."""
_EXIT_BY_TERM = 143
_handed_out: deque[int] = deque(maxlen=64)


class OwnedProcess:
    """A program whose whole tree of descendants ends with the block, or with this process.

    :param argv: the program and its arguments.
    :param log: file that its output is appended to; its folder is made.
    :param env: its whole environment; None hands on ours.
    :param cwd: its working folder; None hands on ours.
    :param name: what messages call it; the program's file name by default.
    :param grace_s: seconds between the request to end and the kill.
    """

    def __init__(
        self,
        argv: Sequence[str | os.PathLike[str]],
        log: Path,
        env: Mapping[str, str] | None = None,
        cwd: Path | str | None = None,
        name: str | None = None,
        grace_s: float = 5.0,
    ) -> None:
        self.argv = [os.fspath(part) for part in argv]
        self.log = Path(log)
        self.env = None if env is None else dict(env)
        self.cwd = cwd
        self.name = name or Path(self.argv[0]).name
        self.grace_s = grace_s
        self._supervisor: subprocess.Popen[bytes] | None = None

    def start(self) -> OwnedProcess:
        """Start the program under its supervisor; :meth:`stop` must follow (or use ``with``)."""
        if self._supervisor is not None:
            raise RuntimeError(f"{self.name}: already started")
        self.log.parent.mkdir(parents=True, exist_ok=True)
        supervise = [sys.executable, "-I", str(Path(__file__).resolve()), str(os.getpid()), str(self.grace_s), "--"]
        with self.log.open("ab") as log:
            self._supervisor = subprocess.Popen(
                supervise + self.argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self.env,
                cwd=self.cwd,
                start_new_session=True,
            )
        return self

    def poll(self) -> int | None:
        """Exit status of the program (128 + signal if killed), or None while it runs."""
        return None if self._supervisor is None else self._supervisor.poll()

    @property
    def alive(self) -> bool:
        """Whether the program runs."""
        return self._supervisor is not None and self._supervisor.poll() is None

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the program to end by itself.

        :return: exit status.
        :raises subprocess.TimeoutExpired: it still runs after ``timeout`` seconds.
        """
        if self._supervisor is None:
            raise RuntimeError(f"{self.name}: not started")
        return self._supervisor.wait(timeout)

    def tail(self, lines: int = 20) -> str:
        """Last lines of the log, for error messages; empty if there is none."""
        try:
            with self.log.open(errors="replace") as log:
                return "".join(deque(log, maxlen=lines)).rstrip()
        except OSError:
            return ""

    def stop(self) -> None:
        """End the program and all its descendants; no effect if they are gone."""
        supervisor = self._supervisor
        if supervisor is None or supervisor.poll() is not None:
            return
        supervisor.terminate()
        try:
            supervisor.wait(self.grace_s + KILL_ROUNDS * 0.05 + 5)
        except subprocess.TimeoutExpired:
            for pid in descendants(supervisor.pid):
                _kill(pid)
            supervisor.kill()
            supervisor.wait(5)

    def __enter__(self) -> OwnedProcess:
        try:
            return self.start()
        except BaseException:
            self.stop()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def free_port() -> int:
    """A TCP port of the loopback that was free a moment ago; the last 64 answers do not repeat."""
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
        if port not in _handed_out:
            _handed_out.append(port)
            return port


def end_with_workflow() -> None:
    """Call first in a long program: it ends in order on SIGTERM, and ends when Snakemake above it is gone.

    Snakemake that is killed with ``kill -9`` leaves its jobs running; a thread of ours notices and ends this program,
    and with it the processes that it owns. Without Snakemake among the ancestors only SIGTERM changes.
    """
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _exit_in_order)
    watched = [(pid, started) for pid in ancestors() if (started := start_time(pid)) is not None and is_snakemake(pid)]
    if watched:
        threading.Thread(target=_watch, args=(watched, _end_this_program), daemon=True, name="workflow-watch").start()


def end_with_parent() -> None:
    """Call in a child process (such as multiprocessing's): the kernel kills it when the thread that made it ends."""
    parent = os.getppid()
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(_EXIT_BY_TERM)


def ancestors(pid: int | None = None) -> list[int]:
    """Process ids from the parent upwards, without pid 1 and 0."""
    chain: list[int] = []
    current = parent_of(os.getpid() if pid is None else pid)
    while current is not None and current > 1 and current not in chain:
        chain.append(current)
        current = parent_of(current)
    return chain


def descendants(root: int) -> list[int]:
    """Process ids of all descendants of ``root``, parents before their children; zombies included."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):  # noqa: PTH208 - names only, thousands of entries, called in a loop
        if entry.isdigit() and (parent := parent_of(int(entry))) is not None:
            children.setdefault(parent, []).append(int(entry))
    found: list[int] = []
    todo = deque(children.get(root, []))
    while todo:
        pid = todo.popleft()
        found.append(pid)
        todo.extend(children.get(pid, []))
    return found


def parent_of(pid: int) -> int | None:
    """Parent's process id, or None if the process is gone."""
    fields = _stat(pid)
    return int(fields[1]) if fields else None


def start_time(pid: int) -> int | None:
    """Start of the process in clock ticks since boot, which tells it from a later one with the same id."""
    fields = _stat(pid)
    return int(fields[19]) if fields and fields[0] not in "ZX" else None


def is_snakemake(pid: int) -> bool:
    """Whether that process is Snakemake: its program, its script or its ``-m`` module has that name."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return False
    if Path(words[0]).name == "snakemake":
        return True
    if not Path(words[0]).name.startswith("python"):
        return False
    rest = words[1:]
    while rest and rest[0].startswith("-") and rest[0] != "-m":
        rest = rest[1:]
    target = rest[1] if len(rest) > 1 and rest[0] == "-m" else rest[0] if rest else ""
    return Path(target).name == "snakemake" or target.startswith("snakemake.")


def _stat(pid: int) -> list[str] | None:
    """Fields of /proc/<pid>/stat from the state on (the name before it may hold spaces)."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    return text.rpartition(")")[2].split()


def _exit_in_order(number: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second one must not break into the clean-up
    raise SystemExit(_EXIT_BY_TERM)


def _watch(watched: Sequence[tuple[int, int]], end: Callable[[], None]) -> None:
    """Call ``end`` once one of the processes (id, start time) is gone."""
    while all(start_time(pid) == started for pid, started in watched):
        time.sleep(0.5)
    end()


def _end_this_program() -> None:
    print("the workflow above this job is gone; ending", file=sys.stderr, flush=True)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(20)  # the main thread may be deep in native code and never see the signal
    os._exit(_EXIT_BY_TERM)


def _prctl(option: int, value: int) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option})")


def _kill(pid: int, number: int = signal.SIGKILL) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def _reap(child: int) -> int | None:
    """Collect ended children; the exit status of ``child`` if it was among them (128 + signal if killed)."""
    status = None
    while True:
        try:
            pid, raw = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return status
        if pid == 0:
            return status
        if pid == child:
            code = os.waitstatus_to_exitcode(raw)
            status = 128 - code if code < 0 else code


def supervise(owner: int, grace_s: float, argv: list[str]) -> int:
    """Run ``argv``, adopt its orphans, and end them all when it ends, on SIGTERM, or when ``owner`` is gone.

    :return: the program's exit status (128 + signal if killed); 127 if it cannot be started.
    """
    wake = {signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1}
    signal.pthread_sigmask(signal.SIG_BLOCK, wake)
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    # Sent when the owner's *thread* that started us ends; it only wakes us to look whether the owner is gone.
    _prctl(PR_SET_PDEATHSIG, signal.SIGUSR1)

    def prepare() -> None:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, wake)
        _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)

    try:
        child = subprocess.Popen(argv, stdin=subprocess.DEVNULL, preexec_fn=prepare, start_new_session=True)
    except OSError as error:
        print(f"{argv[0]}: {error.strerror}", file=sys.stderr, flush=True)
        return 127
    status: int | None = None
    deadline: float | None = None
    while status is None:
        if deadline is None and os.getppid() != owner:
            deadline = time.monotonic() + min(grace_s, 2.0)
            _kill(child.pid, signal.SIGTERM)
        if deadline is not None and time.monotonic() > deadline:
            break
        info = signal.sigtimedwait(wake, 0.5)
        status = _reap(child.pid)
        if info and info.si_signo in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP) and deadline is None:
            deadline = time.monotonic() + grace_s
            _kill(child.pid, signal.SIGTERM)
    for _ in range(KILL_ROUNDS):
        left = descendants(os.getpid())
        if not left:
            break
        for pid in left:
            _kill(pid)
        time.sleep(0.005 if _ == 0 else 0.05)
        ended = _reap(child.pid)
        status = ended if status is None else status
    return 128 + signal.SIGKILL if status is None else status


if __name__ == "__main__":
    raise SystemExit(supervise(int(sys.argv[1]), float(sys.argv[2]), sys.argv[4:]))
