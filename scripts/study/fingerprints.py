"""Hashes that say whether two files, folders, tasks or settings are the same."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

NOT_CONTENT = (".snakemake_timestamp",)
"""Files that Snakemake leaves in the folders that its rules make; they say nothing of the content."""


class FingerprintError(ValueError):
    """Something cannot be hashed; the message names the path and what to do."""


def text_sha256(text: str) -> str:
    """SHA-256 of a text in UTF-8, as 64 hex digits."""
    return hashlib.sha256(text.encode()).hexdigest()


def json_sha256(value: Any) -> str:
    """SHA-256 of a JSON value, whatever the order of its keys; NaN and infinities are refused (ValueError)."""
    return text_sha256(json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False))


def file_sha256(path: Path | str) -> str:
    """SHA-256 of a file's bytes, as 64 hex digits."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def folder_files(folder: Path | str) -> dict[str, str]:
    """SHA-256 of every file below a folder, by relative path with slashes, in order of the paths.

    Links to files count as the files they point to (the Hub's cache keeps its files so).

    :raises FingerprintError: the folder is missing, or holds something that is neither file nor folder.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise FingerprintError(f"{folder}: not a folder; check the path")
    return {name: file_sha256(folder / name) for name in sorted(_names(folder))}


def _names(folder: Path) -> Iterator[str]:
    for path in folder.rglob("*"):
        if path.name in NOT_CONTENT:
            continue
        if path.is_file():
            yield path.relative_to(folder).as_posix()
        elif not path.is_dir():
            raise FingerprintError(f"{path}: neither a file nor a folder; remove it")


def files_sha256(files: Mapping[str, str]) -> str:
    """One SHA-256 for a set of files given as {relative path: SHA-256}; empty folders and modes do not count."""
    return text_sha256("".join(f"{digest}  {name}\n" for name, digest in sorted(files.items())))


def folder_sha256(folder: Path | str) -> str:
    """One SHA-256 for all files below a folder: names and bytes, not times, modes or owners.

    :raises FingerprintError: see :func:`folder_files`.
    """
    return files_sha256(folder_files(folder))


def task_content_sha256(task: Path | str) -> str:
    """SHA-256 of what a task asks and of the data it gives, whatever the task is called.

    The instruction without surrounding white space, and every file of ``environment/`` by name and bytes. Two tasks
    with the same value are the same task to an agent, even if name, grader or metadata differ.

    :raises FingerprintError: ``instruction.md`` is missing.
    """
    task = Path(task)
    try:
        instruction = (task / "instruction.md").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise FingerprintError(f"{task}: no readable instruction.md ({error}); it is no Harbor task folder") from None
    data = folder_files(task / "environment") if (task / "environment").is_dir() else {}
    return json_sha256({"instruction": instruction.strip(), "environment": data})
