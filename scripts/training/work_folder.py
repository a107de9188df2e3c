"""The undeclared folder in which a training run works, and from which a killed one resumes.

Its name carries the fingerprint of everything that the adapter depends on. A change of any of it opens another folder
and leaves the old one where it is.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from scripts.study.files import write_json
from scripts.study.fingerprints import json_sha256
from scripts.study.jobs import TRAIN_RUNNING, TrainJob
from scripts.study.suite_index import TaskRow

COMPLETE = "complete.json"
"""Written last into a checkpoint's folder; a folder without it is what a killed run left."""


class WorkFolderError(ValueError):
    """The work folder cannot be used; the message names it and says what to do."""


def identity(job: TrainJob, base_sha256: str, tasks: Sequence[TaskRow]) -> dict[str, Any]:
    """JSON value of everything that the trained adapter depends on (apart from sampling).

    :param job: the job's settings.
    :param base_sha256: hash of the base model's files.
    :param tasks: the training tasks, in any order.
    """
    return {
        "settings": job.model_dump(mode="json", exclude=TRAIN_RUNNING),  # type: ignore[arg-type]
        "base_sha256": base_sha256,
        "tasks": sorted([row.suite, row.task_id, row.sha256] for row in tasks),
    }


@contextmanager
def work_folder(root: Path, what: dict[str, Any]) -> Iterator[Path]:
    """Open the folder of that identity below ``root`` and hold it against a second run.

    :raises WorkFolderError: another process holds it.
    """
    folder = root / json_sha256(what)[:16]
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise WorkFolderError(f"{folder}: another training of the same job runs; wait for it or end it") from None
        write_json(folder / "identity.json", what)
        yield folder


def mark_complete(checkpoint: Path, step: int) -> None:
    """Declare a checkpoint complete: all its files reach the disk first, then the mark does."""
    for path in sorted(checkpoint.rglob("*")):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
    write_json(checkpoint / COMPLETE, {"step": step})


def complete_checkpoints(folder: Path) -> dict[int, Path]:
    """Complete checkpoints by step, ascending."""
    found = {}
    for mark in folder.glob(f"checkpoint-*/{COMPLETE}"):
        number = mark.parent.name.removeprefix("checkpoint-")
        if number.isdigit():
            found[int(number)] = mark.parent
    return dict(sorted(found.items()))


def newest_checkpoint(folder: Path) -> tuple[int, Path | None]:
    """Step and folder of the newest complete checkpoint; (0, None) if there is none."""
    found = complete_checkpoints(folder)
    return max(found.items(), default=(0, None))


def remove_incomplete(folder: Path) -> list[str]:
    """Remove the folders of checkpoints that were never finished, so that nothing can take them for whole.

    :return: their names.
    """
    removed = []
    for checkpoint in sorted(folder.glob("checkpoint-*")):
        if not (checkpoint / COMPLETE).exists():
            shutil.rmtree(checkpoint)
            removed.append(checkpoint.name)
    return removed
