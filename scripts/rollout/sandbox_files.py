"""Moves files between the host and a sandbox's folders without trusting what lies in the sandbox.

Every path below a sandbox folder is walked with folder descriptors and ``O_NOFOLLOW``, so no link that an agent
planted leads out of it; pipes, sockets and devices are never opened; sizes and counts are bounded.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
MAX_LINKS = 40


class SandboxPathError(ValueError):
    """A path of the sandbox cannot be used: it leaves its folder by a link, or is no file."""


@dataclass
class Budget:
    """What one download may bring to the host; what exceeds it is left out and listed."""

    file_bytes: int = 64 * 2**20
    total_bytes: int = 256 * 2**20
    entries: int = 20_000
    depth: int = 40
    left_out: list[str] = field(default_factory=list)


@contextlib.contextmanager
def open_below(base: Path, relative: PurePosixPath, create: bool = False) -> Iterator[int]:
    """Descriptor of the folder ``relative`` below ``base``, reached without following a link.

    :param create: make missing folders.
    :raises SandboxPathError: a component is a link or no folder.
    """
    fd = os.open(base, FOLDER)
    try:
        for part in relative.parts:
            if create:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, 0o755, dir_fd=fd)
            try:
                child = os.open(part, FOLDER, dir_fd=fd)
            except NotADirectoryError:
                raise SandboxPathError(f"{relative}: {part} is a link or no folder in the sandbox; refused") from None
            os.close(fd)
            fd = child
        yield fd
    finally:
        os.close(fd)


def remove_entry(name: str, dir_fd: int) -> None:
    """Remove a file, link, pipe or folder by name, never following a link and never opening what is no folder."""
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISDIR(os.stat(name, dir_fd=dir_fd, follow_symlinks=False).st_mode):
            os.unlink(name, dir_fd=dir_fd)
            return
        # By its descriptor's name in /proc: the parent of the folder cannot be exchanged meanwhile.
        remove_tree(Path(f"/proc/self/fd/{dir_fd}", name))


def remove_tree(path: Path) -> None:
    """Remove a folder of the sandbox, whatever permissions its files have; no process of the sandbox may live."""
    path.chmod(0o700)
    for parent, folders, _files in os.walk(path, followlinks=False):
        for name in folders:
            entry = Path(parent, name)
            if not entry.is_symlink():
                with contextlib.suppress(OSError):
                    entry.chmod(0o700)
    shutil.rmtree(path, ignore_errors=True)


def put_file(source: Path, base: Path, relative: PurePosixPath) -> None:
    """Copy a host file into the sandbox; whatever had its name there is removed first."""
    with open_below(base, relative.parent, create=True) as folder:
        remove_entry(relative.name, folder)
        fd = os.open(relative.name, WRITE, 0o600, dir_fd=folder)
        with os.fdopen(fd, "wb") as target, source.open("rb") as origin:
            shutil.copyfileobj(origin, target)
            os.fchmod(target.fileno(), stat.S_IMODE(source.stat().st_mode) & 0o777 | 0o600)


def put_folder(source: Path, base: Path, relative: PurePosixPath) -> None:
    """Copy a host folder's contents into the sandbox; links are followed only inside ``source``.

    :raises SandboxPathError: a link in ``source`` leaves it.
    """
    with open_below(base, relative, create=True):
        pass
    for parent, folders, files in os.walk(source):
        below = relative / Path(parent).relative_to(source).as_posix()
        for name in [*folders, *files]:
            entry = Path(parent, name)
            if entry.is_symlink() and not entry.resolve().is_relative_to(source.resolve()):
                raise SandboxPathError(f"{entry} is a link that leaves {source}; remove it")
            if entry.is_dir():
                with open_below(base, below / name, create=True):
                    pass
                if entry.is_symlink():
                    put_folder(entry.resolve(), base, below / name)
            elif entry.is_file():
                put_file(entry, base, below / name)


def _copy_regular(name: str, folder: int, target: Path, limit: int) -> int | None:
    """Copy one regular file of at most ``limit`` bytes out; its size, or None where it was left out."""
    try:
        fd = os.open(name, READ, dir_fd=folder)
    except OSError:
        return None
    with os.fdopen(fd, "rb") as origin:
        facts = os.fstat(origin.fileno())
        if not stat.S_ISREG(facts.st_mode) or facts.st_size > limit:
            return None
        # A link that an earlier download left on the host must not be written through either.
        target.unlink(missing_ok=True)
        with target.open("xb") as copy:
            remaining = limit
            while chunk := origin.read(min(2**20, remaining)):
                copy.write(chunk)
                remaining -= len(chunk)
    target.chmod(0o644)
    return facts.st_size


def get_file(base: Path, relative: PurePosixPath, target: Path, budget: Budget) -> None:
    """Copy one file of the sandbox to the host.

    :raises FileNotFoundError: it does not exist.
    :raises SandboxPathError: it is a link, no regular file, or larger than the budget.
    """
    with open_below(base, relative.parent) as folder:
        facts = os.stat(relative.name, dir_fd=folder, follow_symlinks=False)
        if not stat.S_ISREG(facts.st_mode):
            raise SandboxPathError(f"{relative} is no regular file in the sandbox; refused")
        target.parent.mkdir(parents=True, exist_ok=True)
        if _copy_regular(relative.name, folder, target, budget.file_bytes) is None:
            raise SandboxPathError(f"{relative} is unreadable or larger than {budget.file_bytes} bytes; refused")


def get_folder(base: Path, relative: PurePosixPath, target: Path, budget: Budget) -> None:
    """Copy a folder's regular files to the host; links, pipes, sockets, devices and excess are left out and listed."""
    with open_below(base, relative) as folder:
        target.mkdir(parents=True, exist_ok=True)
        _get_entries(folder, target, "", 0, budget)


def _get_entries(folder: int, target: Path, prefix: str, depth: int, budget: Budget) -> None:
    with os.scandir(folder) as found:
        entries = sorted(found, key=lambda entry: entry.name)
    for entry in entries:
        path = prefix + entry.name
        budget.entries -= 1
        if budget.entries < 0 or depth > budget.depth:
            budget.left_out.append(f"{path} and what follows")
            return
        if entry.is_dir(follow_symlinks=False):
            try:
                child = os.open(entry.name, FOLDER, dir_fd=folder)
            except OSError:
                budget.left_out.append(path)
                continue
            place = target / entry.name
            if place.is_symlink():
                place.unlink()
            place.mkdir(exist_ok=True)
            try:
                _get_entries(child, place, path + "/", depth + 1, budget)
            finally:
                os.close(child)
            continue
        size = _copy_regular(entry.name, folder, target / entry.name, min(budget.file_bytes, budget.total_bytes))
        if size is None:
            budget.left_out.append(path)
        else:
            budget.total_bytes -= size


def sweep_leftovers(
    base: Path, sandbox_path: str, agent_folders: dict[str, Path], trusted: tuple[str, ...]
) -> list[str]:
    """Remove from a folder what could fool a grader: pipes, sockets, devices, and links to where it must not read.

    A link stays only where it ends at something that exists now, in a folder of the agent or in a trusted one.
    Call it before the tests are in the sandbox: a link to them dangles then.

    :param base: the folder on the host; ``sandbox_path`` its path in the sandbox.
    :param agent_folders: sandbox paths of the agent's folders and where they lie on the host.
    :param trusted: read-only sandbox folders that a link may point into, with the same path on the host.
    :returns: sandbox paths that were removed.
    """
    removed = []
    for parent, folders, files in os.walk(base, followlinks=False):
        for name in [*folders, *files]:
            entry = Path(parent, name)
            seen = PurePosixPath(sandbox_path) / entry.relative_to(base).as_posix()
            mode = entry.lstat().st_mode
            harmless = stat.S_ISREG(mode) or stat.S_ISDIR(mode)
            if stat.S_ISLNK(mode):
                harmless = _ends_well(seen, agent_folders, trusted)
            if not harmless:
                entry.unlink()
                removed.append(str(seen))
    return removed


def _ends_well(link: PurePosixPath, agent_folders: dict[str, Path], trusted: tuple[str, ...]) -> bool:
    """Whether a link, resolved as the sandbox would, ends at an existing file of the agent or in a trusted folder."""
    pending, current = list(reversed(link.parts[1:])), PurePosixPath("/")
    links = 0
    while pending:
        part = pending.pop()
        if part == "..":
            current = current.parent
            continue
        current = current / part
        host = _host_path(current, agent_folders)
        if host is None:
            if any(current == PurePosixPath(top) for top in trusted):
                rest = current.joinpath(*reversed(pending))
                return Path(rest).exists() and ".." not in rest.parts
            # Only a parent of the agent's folders, such as / itself, may be crossed.
            if not any(PurePosixPath(top).is_relative_to(current) for top in (*agent_folders, *trusted)):
                return False
            continue
        if host.is_symlink():
            links += 1
            if links > MAX_LINKS:
                return False
            target = PurePosixPath(host.readlink())
            pending.extend(reversed([part for part in target.parts if part != "/"]))
            current = PurePosixPath("/") if target.is_absolute() else current.parent
        elif not host.exists():
            return False
    return _host_path(current, agent_folders) is not None


def _host_path(path: PurePosixPath, agent_folders: dict[str, Path]) -> Path | None:
    for top, host in agent_folders.items():
        if path.is_relative_to(top):
            return host / path.relative_to(top)
    return None
