"""A network namespace of a sandbox's own, in which only chosen ports of the host's loopback answer.

Nothing of the host runs inside: sockets that listen in the namespace are handed to the host's event loop, which pipes
each connection to the same port of the host. As root a short-lived thread makes the namespace; without root a helper
process makes it in a user namespace of its own. Commands then enter through ``nsenter``.
"""

from __future__ import annotations

import array
import asyncio
import contextlib
import fcntl
import os
import shutil
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

SIOCSIFFLAGS = 0x8914
IFF_UP_RUNNING = 0x1 | 0x40
BACKLOG = 64
CHUNK = 65536
HELPER_TIMEOUT_S = 20.0


class NoNamespace(RuntimeError):
    """The kernel or its settings allow no network namespace; the message says what to do."""


def listen_in_namespace(ports: Sequence[int]) -> list[socket.socket]:
    """Bring the current namespace's loopback up and listen there on each port."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        fcntl.ioctl(probe, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", IFF_UP_RUNNING))
    sockets = []
    for port in ports:
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        listener.listen(BACKLOG)
        sockets.append(listener)
    return sockets


def _by_thread(ports: Sequence[int]) -> tuple[list[int], list[socket.socket]]:
    """Make the namespace as root: a thread leaves the host's, its sockets and the namespace's descriptor stay."""
    made: list[tuple[int, list[socket.socket]]] = []
    failed: list[OSError] = []

    def work() -> None:
        try:
            os.unshare(os.CLONE_NEWNET)  # type: ignore[attr-defined]
            sockets = listen_in_namespace(ports)
            made.append((os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC), sockets))
        except OSError as error:
            failed.append(error)

    thread = threading.Thread(target=work, name="sandbox-network")
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return [made[0][0]], made[0][1]


def _helper_main(channel_fd: int, ports: Sequence[int]) -> None:
    """Body of the helper process: user and network namespace, listeners, descriptors back over the channel."""
    uid, gid = os.getuid(), os.getgid()
    os.unshare(os.CLONE_NEWUSER | os.CLONE_NEWNET)  # type: ignore[attr-defined]
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"0 {uid} 1")
    Path("/proc/self/gid_map").write_text(f"0 {gid} 1")
    sockets = listen_in_namespace(ports)
    fds = [os.open(f"/proc/self/ns/{kind}", os.O_RDONLY) for kind in ("user", "net")]
    fds += [listener.fileno() for listener in sockets]
    with socket.socket(fileno=channel_fd) as channel:
        channel.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))])


def _by_helper(ports: Sequence[int]) -> tuple[list[int], list[socket.socket]]:
    """Make the namespace without root, by a helper process in a user namespace of its own."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(HELPER_TIMEOUT_S)
        code = f"from scripts.rollout import sandbox_network as n; n._helper_main({theirs.fileno()}, {list(ports)!r})"
        root = Path(__file__).resolve().parents[2]
        helper = subprocess.Popen(
            [sys.executable, "-c", code],
            pass_fds=[theirs.fileno()],
            cwd=root,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        theirs.close()
        size = socket.CMSG_SPACE(array.array("i").itemsize * (len(ports) + 2))
        try:
            data, ancillary, *_ = ours.recvmsg(1, size)
        except TimeoutError:
            data, ancillary = b"", []
            helper.kill()
        _, complaint = helper.communicate(timeout=HELPER_TIMEOUT_S)
    if not data or not ancillary:
        last = complaint.decode(errors="replace").strip().splitlines()[-1:] or ["no answer"]
        raise OSError(last[0])
    fds = list(array.array("i", ancillary[0][2]))
    return fds[:2], [socket.socket(fileno=fd) for fd in fds[2:]]


def _make(ports: Sequence[int]) -> tuple[list[int], list[socket.socket]]:
    """The quick way as root; the other where that is refused, as in a container without privileges."""
    if os.geteuid() == 0:
        with contextlib.suppress(OSError):
            return _by_thread(ports)
    return _by_helper(ports)


class SandboxNetwork:
    """The namespace of one sandbox and the pipes to the host's ports; ``open`` and ``close`` it.

    :param ports: loopback ports of the host that answer inside, at the same numbers.
    """

    def __init__(self, ports: Sequence[int]) -> None:
        self.ports = list(ports)
        self._fds: list[int] = []
        self._servers: list[asyncio.Server] = []
        self._pipes: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Make the namespace and start to answer.

        :raises NoNamespace: neither root nor unprivileged user namespaces are available.
        """
        if shutil.which("nsenter") is None:
            raise NoNamespace("the bubblewrap sandbox needs `nsenter` (package util-linux); install it")
        try:
            self._fds, sockets = await asyncio.to_thread(_make, self.ports)
        except (OSError, subprocess.SubprocessError) as error:
            raise NoNamespace(
                f"the bubblewrap sandbox cannot make a network namespace ({error}); run as root, allow unprivileged "
                "user namespaces (kernel.unprivileged_userns_clone=1, and on Ubuntu "
                "kernel.apparmor_restrict_unprivileged_userns=0), or set sandbox.environment to docker or podman"
            ) from None
        for listener, port in zip(sockets, self.ports, strict=True):
            listener.setblocking(False)
            self._servers.append(await asyncio.start_server(self._answer(port), sock=listener))

    def command(self) -> list[str]:
        """Words that run a command inside the namespace; put them before it."""
        kinds = ["net"] if len(self._fds) == 1 else ["user", "net"]
        flags = [f"--{kind}=/proc/{os.getpid()}/fd/{fd}" for kind, fd in zip(kinds, self._fds, strict=True)]
        return ["nsenter", *flags, *(["--preserve-credentials"] if len(kinds) > 1 else []), "--"]

    def _answer(self, port: int):  # type: ignore[no-untyped-def]
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._pipes.add(task)
            try:
                await _pipe(reader, writer, port)
            except asyncio.CancelledError:
                writer.transport.abort()
            finally:
                self._pipes.discard(task)

        return serve

    async def close(self) -> None:
        """End every connection and give the namespace back."""
        for server in self._servers:
            server.close()
        for task in list(self._pipes):
            task.cancel()
        self._servers = []
        for fd in self._fds:
            os.close(fd)
        self._fds = []


async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int) -> None:
    """Carry bytes between a connection of the sandbox and the host's port until both sides are done."""
    try:
        host_reader, host_writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        writer.transport.abort()
        return

    async def carry(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(CHUNK):
                target.write(data)
                await target.drain()
            if target.can_write_eof():
                target.write_eof()
        except OSError:
            target.transport.abort()

    try:
        await asyncio.gather(carry(reader, host_writer), carry(host_reader, writer))
    finally:
        for end in (writer, host_writer):
            with contextlib.suppress(OSError, RuntimeError):
                end.close()
