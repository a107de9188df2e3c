"""Make a suite: a folder of selected Harbor tasks and its index, from generated tasks, a folder, or the Hub."""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts.demo.generated_tasks import write_source
from scripts.rollout.processes import end_with_workflow
from scripts.study.config import ConfigError, Difficulty, Suite
from scripts.study.files import folder_written_whole
from scripts.study.fingerprints import FingerprintError, folder_sha256
from scripts.study.hub_files import HubError, HubSource
from scripts.study.jobs import read_settings
from scripts.study.suite_index import SuiteError, TaskRow, write_index

DIFFICULTY_KEYS = ("difficulty_tier", "difficulty")
"""Metadata keys that may hold a task's difficulty, the first one present counts."""

INDEX_DEPTH = 6
"""Folders below the source's root that are searched for tasks, as OpenEnv does."""


@dataclass(frozen=True)
class Candidate:
    """A task of a source that the selection may take."""

    index: int
    task_id: str
    folder: str
    difficulty: str
    cluster: str | None


def task_folders(files: Iterable[str]) -> list[str]:
    """Folders of the tasks among a source's files, in OpenEnv's order: sorted by path, below ``tasks/`` if it exists.

    A task is a folder with a ``task.toml``; folders inside a task and hidden ones do not count. A task's position in
    this list is its index.

    :param files: paths of files relative to the source's root, with slashes.
    """
    folders = sorted(
        {path.removesuffix("/task.toml") for path in files if path.endswith("/task.toml")},
        key=lambda folder: folder.split("/"),
    )
    if any(folder.startswith("tasks/") for folder in folders):
        folders = [folder for folder in folders if folder.startswith("tasks/")]
    taken: list[str] = []
    for folder in folders:
        hidden = any(part.startswith(".") for part in folder.split("/"))
        inside = bool(taken) and folder.startswith(taken[-1] + "/")
        if not hidden and not inside and folder.count("/") <= INDEX_DEPTH:
            taken.append(folder)
    return taken


def read_candidate(root: Path, folder: str, index: int, cluster: str | None) -> Candidate:
    """Read what the selection needs of one task.

    :raises SuiteError: ``task.toml`` is not TOML, or has no difficulty or no cluster key.
    """
    path = root / folder / "task.toml"
    try:
        data: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SuiteError(f"{path}: cannot be read as TOML ({error})") from None
    metadata = data.get("metadata", {})
    found = [str(metadata[key]) for key in DIFFICULTY_KEYS if key in metadata]
    if not found:
        raise SuiteError(f"{path}: [metadata] has none of {', '.join(DIFFICULTY_KEYS)}; the selection needs one")
    if cluster is not None and cluster not in metadata:
        raise SuiteError(f"{path}: [metadata] has no {cluster!r}; correct the suite's `cluster`")
    return Candidate(
        index=index,
        task_id=folder.rsplit("/", 1)[-1],
        folder=folder,
        difficulty=found[0].strip().lower(),
        cluster=None if cluster is None else str(metadata[cluster]),
    )


def in_index_range(folders: list[str], suite: Suite) -> list[tuple[int, str]]:
    """Index and folder of the tasks between the suite's ``min_index`` and ``max_index``."""
    end = len(folders) if suite.max_index is None else suite.max_index
    return list(enumerate(folders))[suite.min_index : end]


def select(candidates: Iterable[Candidate], suite: Suite) -> list[Candidate]:
    """The tasks of wanted difficulty, in order of index, at most ``limit`` of them.

    :raises SuiteError: none is left, or two have the same folder name.
    """
    chosen = [candidate for candidate in candidates if candidate.difficulty in suite.difficulty][: suite.limit]
    if not chosen:
        raise SuiteError("no task is left after the selection; widen `min_index`, `max_index` or `difficulty`")
    seen: dict[str, str] = {}
    for candidate in chosen:
        other = seen.setdefault(candidate.task_id, candidate.folder)
        if other != candidate.folder:
            raise SuiteError(f"{other} and {candidate.folder}: two tasks with the folder name {candidate.task_id}")
    return chosen


def check_task(folder: Path) -> None:
    """Check that a selected task can be run and graded.

    :raises SuiteError: instruction or tests are missing, or the folder holds links.
    """
    for name in ("instruction.md", "tests/test.sh"):
        if not (folder / name).is_file():
            raise SuiteError(f"{folder}: no {name}; it is no Harbor task")
    for path in folder.rglob("*"):
        # Links would dangle in the sandbox, or lead out of it.
        if path.is_symlink():
            raise SuiteError(f"{path}: a link; tasks must hold real files only")


def make_suite(name: str, suite: Suite, out: Path, index: Path, outdir: Path, say: Callable[[str], None]) -> int:
    """Make a suite's folder and index.

    :param name: name of the suite.
    :param out: folder to make, with the tasks in ``out/tasks/<task_id>``.
    :param index: index file to make.
    :param outdir: folder that paths in the index are relative to.
    :param say: takes lines of progress.
    :return: the number of tasks.
    :raises SuiteError, HubError, FingerprintError: with the file, task or key, and what to do.
    """
    with tempfile.TemporaryDirectory(prefix="suite-") as scratch:
        hub: HubSource | None = None
        if suite.source == "hub":
            assert suite.hub_id is not None
            assert suite.revision is not None
            hub = HubSource(suite.hub_id, suite.revision, "dataset", Path(scratch))
            root, files = Path(scratch), hub.names()
        else:
            root = Path(suite.path) if suite.source == "folder" and suite.path else Path(scratch)
            if suite.source == "generated":
                assert suite.limit is not None
                # The whole source: the index range cuts it, as it cuts other sources.
                amount = suite.max_index if suite.max_index is not None else suite.min_index + suite.limit
                write_source(root, name, suite.role, suite.seed, amount, suite.difficulty)
            elif not root.is_dir():
                raise SuiteError(f"suites.{name}.path: {root} is no folder")
            files = [path.relative_to(root).as_posix() for path in root.rglob("task.toml")]
        candidates = in_index_range(task_folders(files), suite)
        if hub:
            say(f"{name}: reading {len(candidates)} task descriptions")
            hub.fetch([f"{folder}/task.toml" for _, folder in candidates])
        chosen = select((read_candidate(root, folder, number, suite.cluster) for number, folder in candidates), suite)
        if hub:
            say(f"{name}: fetching {len(chosen)} tasks")
            prefixes = tuple(f"{candidate.folder}/" for candidate in chosen)
            hub.fetch([file for file in files if file.startswith(prefixes)])
        rows: list[TaskRow] = []
        with folder_written_whole(out) as work:
            for candidate in chosen:
                check_task(root / candidate.folder)
                target = work / "tasks" / candidate.task_id
                shutil.copytree(root / candidate.folder, target)
                rows.append(
                    TaskRow(
                        suite=name,
                        role=suite.role,
                        task_id=candidate.task_id,
                        index=candidate.index,
                        path=relative(out / "tasks" / candidate.task_id, outdir),
                        sha256=folder_sha256(target),
                        difficulty=tier(candidate.difficulty),
                        cluster=candidate.cluster,
                    )
                )
        write_index(index, rows)
    return len(rows)


def tier(text: str) -> Difficulty:
    """A difficulty that the selection took, as its type."""
    for known in ("easy", "medium", "hard"):
        if text == known:
            return known  # type: ignore[return-value]
    raise SuiteError(f"difficulty {text!r} is none of easy, medium, hard")


def relative(path: Path, outdir: Path) -> str:
    """A path relative to the outdir, with slashes.

    :raises SuiteError: it lies outside.
    """
    try:
        return path.absolute().relative_to(outdir.absolute()).as_posix()
    except ValueError:
        raise SuiteError(f"--out {path} does not lie below --outdir {outdir}") from None


def main(argv: list[str] | None = None) -> int:
    """Run the program; 0 on success, 1 on an error of the user's."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--name", required=True, help="name of the suite")
    parser.add_argument("--settings", required=True, help="the suite's part of the config, JSON or a file")
    parser.add_argument("--out", required=True, type=Path, help="folder to make")
    parser.add_argument("--index", required=True, type=Path, help="index file to make")
    parser.add_argument("--outdir", required=True, type=Path, help="folder that paths in the index are relative to")
    args = parser.parse_args(argv)
    end_with_workflow()
    try:
        if not re.fullmatch(r"[a-z0-9]+(?:-[a-z0-9]+)*", args.name):
            raise SuiteError(f"--name {args.name!r}: use lower-case letters, digits and single dashes")
        suite = read_settings(Suite, args.settings)
        count = make_suite(
            args.name, suite, args.out, args.index, args.outdir, lambda line: print(line, file=sys.stderr, flush=True)
        )
    except (ConfigError, SuiteError, HubError, FingerprintError, ValueError) as error:
        print(f"make_suite: {error}", file=sys.stderr)
        return 1
    print(f"{args.name}: {count} tasks of role {suite.role}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
