"""Reading the output of a sandbox's command, and knowing when its last process is gone."""

from __future__ import annotations

import asyncio
import json
import os
import select

OUTPUT_BYTES = 2 * 2**20


async def read_bounded(stream: asyncio.StreamReader) -> str:
    """All of a stream's text if it is short, else its first and last half of ``OUTPUT_BYTES``."""
    half = OUTPUT_BYTES // 2
    head, tail, dropped = bytearray(), bytearray(), 0
    while chunk := await stream.read(65536):
        space = half - len(head)
        head += chunk[:space]
        tail += chunk[space:] if space > 0 else chunk
        if len(tail) > half:
            dropped += len(tail) - half
            del tail[: len(tail) - half]
    middle = f"\n[{dropped} bytes left out]\n".encode() if dropped else b""
    return bytes(head + middle + tail).decode(errors="replace")


def open_first_process(info: int, patience_s: float) -> int | None:
    """A descriptor of the namespace's first process, from what bubblewrap wrote; None if there is none (any more)."""
    if not select.select([info], [], [], patience_s)[0]:
        return None
    try:
        return os.pidfd_open(int(json.loads(os.read(info, 4096))["child-pid"]))
    except (OSError, ValueError, KeyError):
        return None


def wait_gone(pidfd: int) -> None:
    """Wait until a process, and with it its namespace, has ended; then close the descriptor."""
    try:
        select.select([pidfd], [], [], 10.0)
    finally:
        os.close(pidfd)
