"""Resolve every environment's ``envs/*.in`` into its lock, with hashes and without addresses (``make locks``).

A version that a lock already has is kept as long as it still fits; ``--upgrade`` takes the newest. Needs the indexes;
nothing is installed. ``policy-cpu.lock`` needs torch's CPU wheel in a find-links folder and is left as it is without.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from scripts.environments.stages import LOCKS, BuildError, find_links, offers_wheel
from scripts.environments.tools import build_environ, find_uv

TORCH_CPU = "torch-2.13.0+cpu-cp311-"


@dataclass(frozen=True)
class Lock:
    """How one lock is resolved.

    :param source: the ``.in`` file below ``envs``.
    :param python: Python version that it is for.
    :param overrides: file with overrides, or None.
    :param like: lock whose versions a new one starts from, or None.
    :param links: whether find-links count; where not, the lock holds for anybody who reaches PyPI.
    """

    source: str
    python: str
    overrides: str | None = None
    like: str | None = None
    links: bool = False


LOCKFILES = {
    "bootstrap.lock": Lock("bootstrap.in", "3.11"),
    "workflow.lock": Lock("workflow.in", "3.11"),
    "policy-cpu.lock": Lock("policy-cpu.in", "3.11", "policy-cpu-overrides.txt", links=True),
    "policy-cpu-pypi.lock": Lock("policy-cpu.in", "3.11", "policy-cpu-overrides.txt", like="policy-cpu.lock"),
    "policy-cuda.lock": Lock("policy-cuda.in", "3.11", "policy-cuda-overrides.txt"),
    "harbor.lock": Lock("harbor.in", "3.12"),
    "gguf.lock": Lock("gguf.in", "3.11"),
}


def command(uv: Path, name: str, lock: Lock, upgrade: bool) -> list[str]:
    """Command line that resolves one lock; run it in ``envs`` so that no path gets into the lock."""
    argv = [str(uv), "pip", "compile", "--quiet", "--generate-hashes", "--no-emit-index-url", "--no-emit-find-links"]
    argv += ["--python-version", lock.python, lock.source, "--output-file", name]
    if lock.overrides:
        argv += ["--override", lock.overrides]
    return [*argv, "--upgrade"] if upgrade else argv


def main(argv: list[str] | None = None) -> int:
    """Command line; run it from the repository's root."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--upgrade", action="store_true", help="take the newest versions that fit")
    args = parser.parse_args(argv)
    env = {**build_environ(os.environ), "UV_CUSTOM_COMPILE_COMMAND": "make locks"}
    plain = {key: value for key, value in env.items() if key not in ("UV_FIND_LINKS", "PIP_FIND_LINKS")}
    try:
        uv = find_uv(Path(".envs") / "locks.log", env)
    except BuildError as error:
        print(f"lock_environments: {error}", file=sys.stderr)
        return 1
    for name, lock in LOCKFILES.items():
        if lock.links and not any(offers_wheel(place, TORCH_CPU) for place in find_links(env)):
            print(f"envs/{name}: left as it is; set PIP_FIND_LINKS to a folder with {TORCH_CPU}*.whl", file=sys.stderr)
            continue
        if lock.like and not (LOCKS / name).exists():
            shutil.copy2(LOCKS / lock.like, LOCKS / name)
        print(f"envs/{name}", file=sys.stderr, flush=True)
        done = subprocess.run(
            command(uv, name, lock, args.upgrade), cwd=LOCKS, env=env if lock.links else plain, check=False
        )
        if done.returncode:
            print(f"lock_environments: envs/{lock.source} cannot be resolved (see above)", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
