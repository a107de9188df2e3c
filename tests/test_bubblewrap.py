"""Programs that try to get out of the sandbox or to keep running, and tasks that it must accept or refuse."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("harbor")

from harbor.models.task.config import EnvironmentConfig, NetworkMode, NetworkPolicy
from harbor.models.trial.paths import TrialPaths

from scripts.rollout import bubblewrap_command
from scripts.rollout.bubblewrap import BubblewrapEnvironment, sweep_dead
from scripts.rollout.bubblewrap_command import SandboxUnavailable
from scripts.rollout.dockerfile import TaskNeedsBuild
from tests.sandboxes import GOLD, REPOSITORY, grade, inside, listener, make, running, talk

pytest_plugins = ["tests.sandbox_fixtures"]


def test_input_is_placed_where_the_dockerfile_says(task: Path, agents: Path) -> None:
    (task / "environment/Dockerfile").write_text("FROM x\nCOPY input /home/user/input\nWORKDIR /workdir\n")
    (code, text), (_, where) = inside(task, agents, "cat /home/user/input/sales.csv; ls -A /workdir", "pwd")
    assert code == 0
    assert text == "price\n1\n3\n"
    assert where == "/workdir\n"


def test_agent_command_and_node_are_on_the_path(task: Path, agents: Path) -> None:
    (code, text), (_, node) = inside(task, agents, "hello", "node --version; command -v node hello")
    assert (code, text) == (0, "hello from the agent\n")
    assert node.startswith("v22.")
    assert "/opt/node/bin/node" in node
    assert "/opt/agents/node_modules/.bin/hello" in node


def test_workdir_lasts_from_command_to_command(task: Path, agents: Path) -> None:
    *_, (code, text) = inside(task, agents, "echo kept > note; echo x > /tmp/y", "cat note /tmp/y")
    assert (code, text) == (0, "kept\nx\n")


@pytest.mark.parametrize(
    "where", ["{repository}", "{home}", "/home", "/work", "/mnt", "/media", "/srv", "/boot", "/sys"]
)
def test_nothing_of_the_host_is_seen(task: Path, agents: Path, where: str) -> None:
    path = where.format(repository=REPOSITORY, home=Path.home())
    [(_, text)] = inside(task, agents, f"find {path} -type f 2>/dev/null | head")
    assert text == ""


def test_root_holds_only_what_is_meant_to_be_there(task: Path, agents: Path) -> None:
    [(_, text)] = inside(task, agents, "ls -A /")
    system = {path.lstrip("/") for path in bubblewrap_command.SYSTEM}
    own = {path.split("/")[1] for path in bubblewrap_command.AGENT_FOLDERS}
    assert set(text.split()) <= system | own | {"proc", "dev", "run", "var", "etc", "opt"}


def test_tests_and_solution_are_not_seen_before_grading(task: Path, agents: Path) -> None:
    [(_, text)] = inside(
        task, agents, f"ls -A /tests /solution; grep -rs {GOLD} / --exclude-dir=proc --exclude-dir=usr"
    )
    assert GOLD not in text
    assert "test.sh" not in text
    assert "solve.sh" not in text


def test_no_other_trial_is_seen(task: Path, agents: Path) -> None:
    async def work() -> str:
        async with running(task, agents) as first, running(task, agents) as second:
            await first.exec("echo secret-of-first | tee /workdir/a /tmp/a /root/a /logs/agent/a")
            found = await second.exec("grep -rs secret-of-first /workdir /tmp /root /logs /home /run /var /dev/shm")
            return found.stdout or ""

    assert asyncio.run(work()) == ""


def test_processes_of_the_host_are_not_seen(task: Path, agents: Path) -> None:
    with subprocess.Popen(["sleep", "67.25"]) as other:
        try:
            [(_, text)] = inside(task, agents, "cat /proc/[0-9]*/cmdline | tr '\\0' ' '; ls /proc | grep -c '^[0-9]'")
        finally:
            other.kill()
    assert "67.25" not in text
    assert int(text.split()[-1]) < 10


def test_host_process_cannot_be_signalled(task: Path, agents: Path) -> None:
    with subprocess.Popen(["sleep", "60"]) as other:
        try:
            inside(task, agents, f"kill -9 {other.pid}; kill -9 -1; true")
            assert other.poll() is None
        finally:
            other.kill()


def test_environment_variables_of_the_host_are_not_seen(
    task: Path, agents: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "key-of-the-host")
    [(_, text)] = inside(task, agents, "env; cat /proc/*/environ | tr '\\0' '\\n'")
    assert "key-of-the-host" not in text
    names = {line.split("=")[0] for line in text.splitlines() if "=" in line}
    assert names <= {*bubblewrap_command.ENVIRONMENT, "PWD", "SHLVL", "_", "OLDPWD"}


def test_only_the_named_port_answers(task: Path, agents: Path) -> None:
    with listener() as (named, got), listener() as (other, missed):
        (code, text), (refused, _) = inside(task, agents, talk(named), talk(other), ports=[named])
    assert (code, text) == (0, "pong\n")
    assert refused != 0
    assert got == [b"ping"]
    assert missed == []


def test_named_port_answers_when_many_connect_at_once(task: Path, agents: Path) -> None:
    with listener() as (named, got):
        [(code, text)] = inside(task, agents, f"for i in 1 2 3 4 5; do {talk(named)} & done; wait", ports=[named])
    assert code == 0
    assert text.count("pong") == 5
    assert len(got) == 5


def test_no_other_address_is_reached(task: Path, agents: Path) -> None:
    with listener() as (named, _):
        host = socket.gethostname()
        (_, links), (code, _), (by_name, _) = inside(
            task,
            agents,
            "cat /proc/net/dev | tail -n +3 | cut -d: -f1",
            talk(80, "192.0.2.1"),
            talk(named, host),
            ports=[named],
        )
    assert links.split() == ["lo"]
    assert code != 0
    assert by_name != 0


def test_abstract_sockets_of_the_host_are_not_reached(task: Path, agents: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        name = f"harness-cards-test-{os.getpid()}"
        server.bind("\0" + name)
        server.listen()
        [(code, text)] = inside(
            task,
            agents,
            f"python3 -c \"import socket; socket.socket(socket.AF_UNIX).connect('\\0{name}')\"",
        )
    assert code != 0
    assert "ConnectionRefusedError" in text


def test_no_port_is_open_to_the_host(task: Path, agents: Path) -> None:
    async def work() -> bool:
        async with running(task, agents) as environment:
            serve = "python3 -c \"import socket, time; socket.create_server(('0.0.0.0', 45871)); time.sleep(20)\""
            server = asyncio.create_task(environment.exec(serve))
            await asyncio.sleep(0.5)
            with socket.socket() as client:
                client.settimeout(1)
                reached = client.connect_ex(("127.0.0.1", 45871)) == 0
            server.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await server
            return reached

    assert not asyncio.run(work())


def test_no_capability_and_no_way_to_get_one(task: Path, agents: Path) -> None:
    [(_, text)] = inside(task, agents, "grep -E '^(Cap|NoNewPrivs)' /proc/self/status")
    facts = dict(line.split(":\t") for line in text.splitlines())
    assert facts["NoNewPrivs"] == "1"
    assert {int(facts[kind], 16) for kind in ("CapInh", "CapPrm", "CapEff", "CapAmb")} == {0}


@pytest.mark.parametrize(
    "command",
    [
        "mount -t tmpfs none /workdir",
        "mount -o remount,rw /usr",
        "umount /proc",
        "unshare -Urm true",
        "unshare -Un true",
        "nsenter -t 1 -m true",
        "chroot / true",
        "touch /usr/bin/planted",
        "touch /etc/planted",
        "touch /planted",
        "touch /opt/agents/node_modules/.bin/planted",
        "cat /proc/sys/kernel/core_pattern > pattern && cat pattern > /proc/sys/kernel/core_pattern",
        "echo h > /proc/sysrq-trigger",
        "mknod /workdir/disk b 8 0",
        "ls /dev/kmsg /dev/mem /dev/sda /dev/vda",
        "python3 -c 'import os; os.setuid(65534)'",
    ],
)
def test_privileged_acts_fail(task: Path, agents: Path, command: str) -> None:
    [(code, text)] = inside(task, agents, command)
    assert code != 0, text


def test_no_setting_of_the_kernel_can_be_written(task: Path, agents: Path) -> None:
    script = "find /proc -path '/proc/[0-9]*' -prune -o -type f -print"
    # Opening for appending tells what may be written without writing anything.
    tries = f"for f in $({script} 2>/dev/null); do (: >> $f) 2>/dev/null && echo $f; done; true"
    [(_, text)] = inside(task, agents, tries)
    assert text == ""


def test_setuid_programs_give_nothing(task: Path, agents: Path) -> None:
    script = "cp /usr/bin/id own; chmod u+s own; ./own -u; grep CapEff /proc/self/status"
    [(_, text)] = inside(task, agents, script)
    assert text.split() == ["0", "CapEff:", "0000000000000000"]


def test_agent_cannot_change_its_own_program(task: Path, agents: Path) -> None:
    inside(task, agents, "echo hacked > /opt/agents/node_modules/.bin/hello; rm -rf /opt/agents /opt/node /usr/bin/ls")
    assert "hello from the agent" in (agents / "node_modules/.bin/hello").read_text()
    assert Path("/usr/bin/ls").exists()


def alive(marker: str) -> bool:
    """Whether a process of the host has the marker on its command line."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if marker.encode() in path.read_bytes():
                return True
    return False


def test_process_left_behind_is_gone_when_the_command_ends(task: Path, agents: Path) -> None:
    script = "setsid nohup sleep 71.125 >/dev/null 2>&1 </dev/null & (sleep 71.125 &) ; echo started"

    async def work() -> tuple[str, bool]:
        async with running(task, agents) as environment:
            result = await environment.exec(script)
            return result.stdout or "", alive("71.125")

    assert asyncio.run(work()) == ("started\n", False)


def test_timeout_ends_every_process(task: Path, agents: Path) -> None:
    async def work() -> bool:
        async with running(task, agents) as environment:
            with pytest.raises(RuntimeError, match="timed out after 1 seconds"):
                await environment.exec("trap '' TERM; setsid sleep 72.125 & sleep 72.125", timeout_sec=1)
            return alive("72.125")

    assert not asyncio.run(work())


def test_sandbox_whose_first_process_is_traced_still_ends(task: Path, agents: Path) -> None:
    attach = "import ctypes, time; print(ctypes.CDLL(None).ptrace(16, 1, 0, 0), flush=True); time.sleep(75.125)"

    async def work() -> bool:
        async with running(task, agents) as environment:
            with pytest.raises(RuntimeError, match="timed out"):
                await environment.exec(f"python3 -c '{attach}'", timeout_sec=1)
            return alive("75.125")

    assert not asyncio.run(work())


def test_cancelled_command_is_ended(task: Path, agents: Path) -> None:
    async def work() -> bool:
        async with running(task, agents) as environment:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(environment.exec("setsid sleep 73.125 & sleep 73.125"), 1)
            return alive("73.125")

    assert not asyncio.run(work())


def test_background_writer_cannot_change_the_answer_after_the_agent(task: Path, agents: Path) -> None:
    writer = f"(while :; do echo {GOLD} > /workdir/answer.txt; sleep 0.01; done) >/dev/null 2>&1 &"
    script = f"{writer} sleep 0.2; echo wrong > /workdir/answer.txt"

    async def work() -> float:
        async with running(task, agents) as environment:
            await environment.exec(script)
            await environment.exec("echo wrong > /workdir/answer.txt")
            return await grade(environment, task)

    assert asyncio.run(work()) == 0.0


def test_long_output_is_bounded(task: Path, agents: Path) -> None:
    async def work() -> str:
        async with running(task, agents) as environment:
            result = await environment.exec("echo first; head -c 30000000 /dev/zero | tr '\\0' x; echo; echo last")
            return result.stdout or ""

    text = asyncio.run(work())
    assert len(text) < 3_000_000
    assert text.startswith("first\n")
    assert text.endswith("last\n")
    assert "bytes left out" in text


def test_one_file_cannot_fill_the_disk(task: Path, agents: Path) -> None:
    [(code, _)] = inside(task, agents, f"truncate -s {bubblewrap_command.FILE_BYTES + 1} big")
    assert code != 0


def test_memory_of_a_process_is_limited(task: Path, agents: Path) -> None:
    [(code, text)] = inside(task, agents, "python3 -c 'x = bytearray(3 * 2**30)'", memory_mb=1024)
    assert code != 0
    assert "MemoryError" in text


def test_nothing_is_left_after_stop(task: Path, agents: Path) -> None:
    before = set(Path("/proc/self/fd").iterdir())
    inside(task, agents, "mkdir -p deep/er; chmod 000 deep; touch x; chmod 000 x", ports=[45999])
    assert list((task.parent / "sandboxes").iterdir()) == []
    assert len(set(Path("/proc/self/fd").iterdir()) - before) <= 2


def test_leftovers_of_a_killed_run_are_swept(task: Path, agents: Path) -> None:
    root = task.parent / "sandboxes"
    code = (
        "import asyncio, os, sys; from pathlib import Path; from tests.sandboxes import make\n"
        f"e = make(Path({str(task)!r}), Path({str(agents)!r}))\n"
        "async def main():\n"
        "    await e.start(False)\n"
        "    t = asyncio.create_task(e.exec('sleep 74.125'))\n"
        "    await asyncio.sleep(1.0); print('up', flush=True); await t\n"
        "asyncio.run(main())\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "up\n"
        assert alive("74.125")
        assert sweep_dead(root) == 0
        assert len(list(root.iterdir())) == 1
        owner.kill()
    deadline = time.monotonic() + 5
    while alive("74.125") and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not alive("74.125")
    assert sweep_dead(root) == 1
    assert list(root.iterdir()) == []


@pytest.mark.parametrize("mode", [NetworkMode.PUBLIC, NetworkMode.NO_NETWORK])
def test_tasks_with_a_network_mode_are_accepted(task: Path, agents: Path, mode: NetworkMode) -> None:
    paths = TrialPaths(task.parent / "trial")
    environment = BubblewrapEnvironment(
        environment_dir=task / "environment",
        environment_name="t",
        session_id="t",
        trial_paths=paths,
        task_env_config=EnvironmentConfig(),
        network_policy=NetworkPolicy(network_mode=mode),
        agents_dir=str(agents),
    )
    assert environment.network_policy.network_mode == mode


@pytest.mark.parametrize(
    ("dockerfile", "message"),
    [
        ("FROM x\nRUN pip install pandas\n", "task t: environment/Dockerfile line 2: RUN needs a real image build"),
        ("FROM x\nADD https://example.org/a /a\n", "line 2: ADD needs a real image build"),
        ("FROM x\nCOPY --from=build /a /b\n", "line 2: COPY --from"),
        ("FROM x\nCOPY missing /workdir\n", "line 2: missing does not exist"),
        ("FROM x\nCOPY ../tests /workdir\n", "line 2: ../tests lies outside"),
        ("FROM x\nFROM y\n", "line 2: FROM needs a real image build"),
    ],
)
def test_task_that_needs_a_build_is_refused(task: Path, agents: Path, dockerfile: str, message: str) -> None:
    (task / "environment/Dockerfile").write_text(dockerfile)
    with pytest.raises(TaskNeedsBuild, match=message):
        make(task, agents)


@pytest.mark.parametrize("target", ["/usr/share/data", "/etc", "/tests", "/opt/agents", "/"])
def test_input_in_the_systems_folders_is_refused(task: Path, agents: Path, target: str) -> None:
    (task / "environment/Dockerfile").write_text(f"FROM x\nCOPY input {target}\n")
    with pytest.raises(TaskNeedsBuild, match="is the system's"):
        inside(task, agents, "true")


def test_missing_agents_are_named(task: Path) -> None:
    with pytest.raises(SandboxUnavailable, match="holds no node_modules"):
        make(task, task.parent)


@pytest.mark.skipif(os.geteuid() != 0, reason="is about the way that root takes")
def test_isolation_holds_without_root() -> None:
    # In a mount namespace of its own, /root lets others through to a Python that may be installed below it.
    let_through = (
        "mount --make-rprivate / && mount --bind /root /mnt && mount -t tmpfs -o mode=755 none /root && "
        'for e in /mnt/.[!.]*; do [ -d "$e" ] && mkdir "/root/${e##*/}" && mount --bind "$e" "/root/${e##*/}"; done; '
        "umount /mnt 2>/dev/null; "
    )
    chosen = "named_port or other_address or capability or privileged or tests_and_solution or left_behind"
    own = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "env", "HOME=/", sys.executable]
    run = [*own, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", chosen, __file__]
    script = let_through + 'exec "$@"'
    done = subprocess.run(
        ["unshare", "-m", "bash", "-c", script, "bash", *run],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    assert " passed" in done.stdout
    assert "failed" not in done.stdout
