"""Reads a task's Dockerfile for a sandbox that cannot build images.

Only what places files and names the working folder is carried out: ``FROM``, ``COPY``, ``WORKDIR`` and ``ENV``.
Instructions that only describe the image are skipped; one that needs a real build is an error.
"""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path
from posixpath import join, normpath

DESCRIPTIVE = frozenset({"LABEL", "MAINTAINER", "EXPOSE", "CMD", "ENTRYPOINT", "STOPSIGNAL", "USER", "HEALTHCHECK"})


class TaskNeedsBuild(ValueError):
    """The task's environment cannot be made without a container engine; the message names task, line and remedy."""


@dataclass(frozen=True)
class Copy:
    """One ``COPY``: files or folders below the task's ``environment/`` and where they go in the sandbox."""

    sources: tuple[Path, ...]
    target: str
    into_folder: bool

    @property
    def is_file(self) -> bool:
        """Whether the target may name a file itself: a single file is copied, and not expressly into a folder."""
        return len(self.sources) == 1 and self.sources[0].is_file() and not self.into_folder


@dataclass
class ImagePlan:
    """What a Dockerfile asks for, without its image."""

    workdir: str | None = None
    copies: list[Copy] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)


def _lines(text: str) -> list[tuple[int, str]]:
    """Logical lines with the number of their first physical line; comments dropped, continuations joined."""
    result: list[tuple[int, str]] = []
    start, parts = 0, []
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        start = start or number
        if line.endswith("\\"):
            parts.append(line[:-1])
            continue
        result.append((start, " ".join([*parts, line]).strip()))
        start, parts = 0, []
    if parts:
        result.append((start, " ".join(parts).strip()))
    return result


def _sources(context: Path, pattern: str, where: str) -> list[Path]:
    """Files that a ``COPY`` source names, inside the build context."""
    relative = normpath(pattern).lstrip("/")
    if relative.startswith(".."):
        raise TaskNeedsBuild(f"{where}: {pattern} lies outside the task's environment folder")
    found = sorted(context.glob(relative)) if re.search(r"[*?\[]", relative) else [context / relative]
    found = [path for path in found if path.exists()]
    if not found:
        raise TaskNeedsBuild(f"{where}: {pattern} does not exist in {context}; add the file or mend the line")
    for path in found:
        if not path.resolve().is_relative_to(context.resolve()):
            raise TaskNeedsBuild(f"{where}: {pattern} is a link that leaves the task's environment folder")
    return found


def _copy(context: Path, arguments: str, workdir: str | None, where: str) -> Copy:
    """Parse the arguments of ``COPY`` in its plain and its JSON form."""
    flags = re.match(r"(?:--\S+\s+)*", arguments)
    given = flags.group(0) if flags else ""
    if "--from" in given:
        raise TaskNeedsBuild(f"{where}: COPY --from takes files of another image; this needs docker or podman")
    rest = arguments[len(given) :]
    words = json.loads(rest) if rest.startswith("[") else shlex.split(rest)
    if len(words) < 2:
        raise TaskNeedsBuild(f"{where}: COPY needs a source and a target")
    sources = [path for word in words[:-1] for path in _sources(context, word, where)]
    target = normpath(join(workdir or "/", words[-1]))
    into_folder = words[-1].endswith("/") or words[-1] in {".", ".."} or len(sources) > 1
    return Copy(tuple(sources), target, into_folder)


def _environment(arguments: str, where: str) -> dict[str, str]:
    """Parse the arguments of ``ENV``; values that refer to other variables are refused."""
    words = shlex.split(arguments)
    pairs = dict(word.split("=", 1) for word in words) if all("=" in word for word in words) else {words[0]: ""}
    if pairs == {words[0]: ""}:
        pairs = {words[0]: " ".join(words[1:])}
    if any("$" in value for value in pairs.values()):
        raise TaskNeedsBuild(f"{where}: ENV with a variable in its value; this needs docker or podman")
    return pairs


def read_dockerfile(task: str, environment_dir: Path) -> ImagePlan:
    """What the task's Dockerfile asks for.

    :param task: name of the task, for messages.
    :param environment_dir: the task's ``environment/`` folder, which is the build context.
    :raises TaskNeedsBuild: for an instruction that needs a real build, naming task, line and remedy.
    """
    plan = ImagePlan()
    for compose in ("docker-compose.yaml", "docker-compose.yml"):
        if (environment_dir / compose).exists():
            raise TaskNeedsBuild(
                f"task {task}: {compose} needs docker or podman; set sandbox.environment to one of them"
            )
    path = environment_dir / "Dockerfile"
    if not path.is_file():
        return plan
    stages = 0
    for number, line in _lines(path.read_text()):
        word, _, arguments = line.partition(" ")
        name, where = word.upper(), f"task {task}: {path.parent.name}/Dockerfile line {number}"
        if name == "FROM" and not stages:
            stages += 1
        elif name == "COPY":
            plan.copies.append(_copy(environment_dir, arguments.strip(), plan.workdir, where))
        elif name == "WORKDIR":
            plan.workdir = normpath(join(plan.workdir or "/", arguments.strip().strip("\"'")))
        elif name == "ENV":
            plan.env |= _environment(arguments.strip(), where)
        elif name not in DESCRIPTIVE:
            raise TaskNeedsBuild(
                f"{where}: {word} needs a real image build, which the bubblewrap sandbox does not do; "
                "set sandbox.environment to docker or podman for this suite"
            )
    return plan
