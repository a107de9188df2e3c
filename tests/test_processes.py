"""Owned processes: whatever ends the owner, nothing of its tree is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from scripts.rollout import processes
from scripts.rollout.processes import OwnedProcess, free_port, start_time

ROOT = Path(__file__).resolve().parent.parent

# A tree like that of an engine: a child in the same group, a grandchild in its own session, and a double-forked orphan;
# all ignore SIGTERM. Each writes its process id into the folder given as the first argument.
TREE = """
import os, signal, subprocess, sys, time
folder = sys.argv[1]
stubborn = "import os,signal,sys,time;signal.signal(signal.SIGTERM,signal.SIG_IGN);" \\
    "open(os.path.join(sys.argv[1], sys.argv[2]),'w').write(str(os.getpid()));time.sleep(600)"
def note(name):
    with open(os.path.join(folder, name), "w") as file:
        file.write(str(os.getpid()))
subprocess.Popen([sys.executable, "-c", stubborn, folder, "child"])
subprocess.Popen([sys.executable, "-c", stubborn, folder, "session"], start_new_session=True)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execv(sys.executable, [sys.executable, "-c", stubborn, folder, "orphan"])
    os._exit(0)
note("main")
time.sleep(600)
"""

OWNER = """
import sys, time
from pathlib import Path
from scripts.rollout.processes import OwnedProcess, end_with_workflow
end_with_workflow()
folder = Path(sys.argv[1])
with OwnedProcess([sys.executable, "-c", Path(sys.argv[2]).read_text(), str(folder)], log=folder / "log", grace_s=0.5):
    time.sleep(600)
"""

NAMES = ("main", "child", "session", "orphan")


def wait_until(condition, seconds: float = 10.0) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.05)
    return False


def pids(folder: Path) -> dict[str, int]:
    found = {}
    for name in NAMES:
        path = folder / name
        if path.exists() and path.read_text():
            found[name] = int(path.read_text())
    return found


def alive(folder: Path) -> list[str]:
    return [name for name, pid in pids(folder).items() if start_time(pid) is not None]


def complete(folder: Path) -> bool:
    return len(pids(folder)) == len(NAMES)


@pytest.fixture
def tree(tmp_path: Path):
    script = tmp_path / "tree.py"
    script.write_text(TREE)
    yield script
    for pid in pids(tmp_path).values():
        if start_time(pid) is not None:
            os.kill(pid, signal.SIGKILL)


def start_owner(tmp_path: Path, tree: Path, *prefix: str, **kwargs) -> subprocess.Popen:
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    owner = subprocess.Popen(
        [*prefix, sys.executable, "-c", OWNER, str(tmp_path), str(tree)], env=env, start_new_session=True, **kwargs
    )
    assert wait_until(lambda: complete(tmp_path)), "the tree did not start"
    return owner


def test_normal_exit_and_exception_leave_nothing(tmp_path: Path, tree: Path) -> None:
    argv = [sys.executable, str(tree), str(tmp_path)]

    def job() -> None:
        with OwnedProcess(argv, log=tmp_path / "log", grace_s=0.5):
            assert wait_until(lambda: complete(tmp_path))
            raise RuntimeError("on purpose")

    with pytest.raises(RuntimeError, match="on purpose"):
        job()
    assert alive(tmp_path) == []


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_the_owner_leaves_nothing(tmp_path: Path, tree: Path, number: signal.Signals) -> None:
    owner = start_owner(tmp_path, tree, stderr=subprocess.DEVNULL)
    assert len(alive(tmp_path)) == 4
    owner.send_signal(number)
    code = owner.wait(60)
    assert wait_until(lambda: alive(tmp_path) == []), alive(tmp_path)
    assert code == {signal.SIGKILL: -9, signal.SIGTERM: 143, signal.SIGINT: -2}[number]


def test_killed_snakemake_ends_the_job_and_its_tree(tmp_path: Path, tree: Path) -> None:
    # A program named snakemake whose shell runs the job, as Snakemake's local executor does.
    fake = tmp_path / "snakemake"
    fake.write_text(
        textwrap.dedent("""
        import subprocess, sys
        subprocess.run(["bash", "-c", '"$@"; exit $?', "bash", *sys.argv[1:]])
    """)
    )
    owner = start_owner(tmp_path, tree, sys.executable, str(fake), stderr=subprocess.PIPE)
    assert len(alive(tmp_path)) == 4
    owner.kill()
    owner.wait(60)
    assert wait_until(lambda: alive(tmp_path) == []), alive(tmp_path)
    assert owner.stderr is not None
    assert "workflow above this job is gone" in owner.stderr.read().decode()


def test_program_that_ends_by_itself_takes_its_children_along(tmp_path: Path) -> None:
    script = (
        "import subprocess,sys,os;p=subprocess.Popen(['sleep','600'],start_new_session=True);"
        "open(sys.argv[1],'w').write(str(p.pid));print('bye');sys.exit(3)"
    )
    pid_file = tmp_path / "main"
    with OwnedProcess([sys.executable, "-c", script, str(pid_file)], log=tmp_path / "log") as process:
        assert process.wait(10) == 3
        assert not process.alive
        assert process.poll() == 3
        assert process.tail() == "bye"
    assert start_time(int(pid_file.read_text())) is None


def test_missing_program_is_a_status_and_a_line_in_the_log(tmp_path: Path) -> None:
    with OwnedProcess(["no-such-program-here"], log=tmp_path / "deep" / "log") as process:
        assert process.wait(10) == 127
    assert "no-such-program-here: No such file or directory" in process.tail()


def test_owner_thread_may_end_before_the_process(tmp_path: Path) -> None:
    process = OwnedProcess(["sleep", "600"], log=tmp_path / "log", grace_s=0.5)
    thread = threading.Thread(target=process.start)
    thread.start()
    thread.join()
    time.sleep(0.8)
    assert process.alive
    process.stop()
    assert not process.alive
    process.stop()


def test_free_ports_differ() -> None:
    assert len({free_port() for _ in range(20)}) == 20


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["/x/bin/snakemake", "--cores", "2"], True),
        (["/x/bin/python3.11", "/x/bin/snakemake", "--cores"], True),
        (["python", "-m", "snakemake", "--cores", "2"], True),
        (["python", "-s", "-m", "snakemake"], True),
        (["python", "-m", "scripts.train_adapter", "--log", "snakemake"], False),
        (["bash", "-c", "snakemake --cores 1"], False),
        (["vim", "snakemake"], False),
    ],
)
def test_is_snakemake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, argv: list[str], expected: bool) -> None:
    monkeypatch.setattr(processes.Path, "read_bytes", lambda self: "\0".join([*argv, ""]).encode())
    assert processes.is_snakemake(1) is expected


def test_ancestors_and_descendants_of_this_process(tmp_path: Path) -> None:
    with OwnedProcess(["sleep", "600"], log=tmp_path / "log", grace_s=0.5):
        assert wait_until(lambda: len(processes.descendants(os.getpid())) >= 2)
        family = processes.descendants(os.getpid())
        assert os.getpid() in processes.ancestors(family[-1])
