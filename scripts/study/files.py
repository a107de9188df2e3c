"""Writing outputs whole or not at all."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def write_atomic(path: Path | str, content: str | bytes) -> None:
    """Write a file so that a reader, or a later run, sees all of it or none.

    The content goes to a file of another name in the same folder, reaches the disk, and then takes the name.
    Missing parent folders are made.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    data = content.encode() if isinstance(content, str) else content
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        # mkstemp makes files that only their owner can read; outputs get the usual mode.
        Path(name).chmod(0o666 & ~_umask())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def write_json(path: Path | str, value: Any) -> None:
    """Write a value as indented JSON, whole or not at all; NaN and infinities are refused (ValueError)."""
    write_atomic(path, json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


@contextmanager
def folder_written_whole(path: Path | str) -> Iterator[Path]:
    """Give an empty work folder that takes the name ``path`` only if the block ends well.

    An existing folder of that name is replaced then. After an exception the work folder is removed and what was
    there before stays; after a kill a work folder with a leading dot stays behind, which the next call removes.
    """
    path = Path(path)
    work = path.parent / f".{path.name}.unfinished"
    old = path.parent / f".{path.name}.replaced"
    for leftover in (work, old):
        shutil.rmtree(leftover, ignore_errors=True)
    work.mkdir(parents=True)
    try:
        yield work
    except BaseException:
        shutil.rmtree(work, ignore_errors=True)
        raise
    if path.exists():
        path.rename(old)
    work.rename(path)
    shutil.rmtree(old, ignore_errors=True)


def _umask() -> int:
    """The process's umask; it can only be read by setting it."""
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
