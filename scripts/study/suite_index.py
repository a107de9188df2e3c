"""The index of a suite: which tasks it has, where they lie, and proof that no two roles share one."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from pydantic import ValidationError

from scripts.study.config import Difficulty, Role, Section, explain
from scripts.study.files import write_atomic
from scripts.study.fingerprints import task_content_sha256


class SuiteError(ValueError):
    """A suite or its index cannot be used; the message names file, row or task and what to do."""


class TaskRow(Section):
    """One task of a suite: a line of ``suites/<suite>.jsonl``."""

    suite: str
    role: Role
    task_id: str
    index: int
    """Position in the source, before any selection."""
    path: str
    """Task folder, relative to the study's outdir, with slashes."""
    sha256: str
    """Of the whole task folder (:func:`scripts.study.fingerprints.folder_sha256`)."""
    difficulty: Difficulty
    cluster: str | None
    """Source data set that the task shares with others, or null."""


def write_index(path: Path | str, rows: Iterable[TaskRow]) -> None:
    """Write an index whole, one row per line, in order of index."""
    ordered = sorted(rows, key=lambda row: row.index)
    write_atomic(path, "".join(row.model_dump_json() + "\n" for row in ordered))


def read_index(path: Path | str) -> list[TaskRow]:
    """Read an index.

    :raises SuiteError: unreadable file, bad or cut line, or a task twice; names file and row (from 1).
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise SuiteError(f"{path}: {error.strerror}; make the suite first") from None
    if text and not text.endswith("\n"):
        raise SuiteError(f"{path}: the last line is cut; make the suite anew")
    rows: list[TaskRow] = []
    seen: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        try:
            row = TaskRow.model_validate_json(line)
        except ValidationError as error:
            raise SuiteError(explain(error, f"{path} row {number}")) from None
        if row.task_id in seen:
            raise SuiteError(f"{path} row {number}: task {row.task_id} is already in row {seen[row.task_id]}")
        seen[row.task_id] = number
        rows.append(row)
    return rows


def check_disjoint(rows: Iterable[TaskRow], outdir: Path | str) -> dict[str, str]:
    """Check that no task is in two suites, by what its agent sees (instruction and data), not by its name.

    :param rows: the rows of all suites of a study.
    :param outdir: folder that the rows' paths are relative to.
    :return: content hash of every task, by ``suite/task_id``.
    :raises SuiteError: two tasks have the same content; names both.
    """
    owner: dict[str, TaskRow] = {}
    hashes: dict[str, str] = {}
    for row in rows:
        content = task_content_sha256(Path(outdir) / row.path)
        other = owner.setdefault(content, row)
        if other is not row:
            raise SuiteError(
                f"{row.suite}/{row.task_id} ({row.role}) and {other.suite}/{other.task_id} ({other.role}) are the same "
                "task; leave one of them out, by another index range or seed"
            )
        hashes[f"{row.suite}/{row.task_id}"] = content
    return hashes
