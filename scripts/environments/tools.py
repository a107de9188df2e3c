"""The tools that build environments: uv, the Python versions, and a way to run them that leaves nothing behind."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from scripts.environments.stages import ENVS, LOCKS, BuildError, pinned
from scripts.rollout.processes import OwnedProcess

BOOTSTRAP = ENVS / "bootstrap"


def say(text: str) -> None:
    """One line of progress on the terminal."""
    print(f"[environments] {text}", file=sys.stderr, flush=True)


def build_environ(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that uv, pip and npm run with: pip's find-links also for uv, no Python downloads."""
    env = dict(environ)
    if not env.get("UV_FIND_LINKS") and env.get("PIP_FIND_LINKS"):
        env["UV_FIND_LINKS"] = ",".join(env["PIP_FIND_LINKS"].split())
    env.update(UV_PYTHON_DOWNLOADS="never", UV_NO_PROGRESS="1")
    for name in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "CONDA_PREFIX"):
        env.pop(name, None)
    return env


def run(
    argv: Sequence[str | os.PathLike[str]],
    log: Path,
    env: Mapping[str, str],
    what: str,
    cwd: Path | None = None,
    progress: Callable[[str], str | None] = lambda _: None,
) -> None:
    """Run a program to its end, its output in the log; it ends with this process, however that ends.

    :param what: name for messages.
    :param progress: makes a few words of the log's last line, for the line that is printed every 15 seconds.
    :raises BuildError: it failed; the message has the log's last lines.
    """
    start = time.monotonic()
    with OwnedProcess(argv, log, env=env, cwd=cwd, name=what) as process:
        while True:
            try:
                status = process.wait(15.0)
                break
            except subprocess.TimeoutExpired:
                words = progress(process.tail(1))
                say(f"{what}: {words + ', ' if words else ''}{time.monotonic() - start:.0f} s so far")
        if status:
            raise BuildError(f"{what} failed with status {status}; the last lines of {log}:\n{process.tail()}")


def find_uv(log: Path, env: Mapping[str, str]) -> Path:
    """The pinned uv: from the workflow's environment, or from one that is made here with pip for this purpose.

    :raises BuildError: no Python with venv and pip can be had for it.
    """
    version = pinned((LOCKS / "bootstrap.lock").read_text(), "uv")
    for path in (ENVS / "workflow" / "bin" / "uv", BOOTSTRAP / "bin" / "uv"):
        if path.exists() and _output([path, "--version"]).split()[1:2] == [version]:
            return path.resolve()
    say(f"getting uv {version}")
    shutil.rmtree(BOOTSTRAP, ignore_errors=True)
    try:
        run([sys.executable, "-m", "venv", BOOTSTRAP], log, env, "python -m venv")
    except BuildError as error:
        raise BuildError(
            f"{sys.executable} cannot make a virtual environment; install its venv module "
            f"(Debian and Ubuntu: the package python3-venv) or use another Python\n{error}"
        ) from None
    lock = LOCKS / "bootstrap.lock"
    run(
        [BOOTSTRAP / "bin" / "python", "-m", "pip", "install", "--require-hashes", "-r", lock],
        log,
        env,
        "pip install uv",
    )
    return (BOOTSTRAP / "bin" / "uv").resolve()


def find_python(uv: Path, versions: Sequence[str], env: Mapping[str, str]) -> Path:
    """A Python interpreter of one of the versions, best first.

    :raises BuildError: there is none; the message says how to get one.
    """
    for version in versions:
        found = _output([uv, "python", "find", "--system", "--no-project", version], env)
        if found and re.match(rf"Python {re.escape(version)}\.", _output([found, "--version"], env)):
            return Path(found)
    wanted = versions[0]
    raise BuildError(
        f"Python {' or '.join(versions)} not found. Install it so that `python{wanted}` is on the PATH: "
        f"with the system's package manager (python{wanted}, python{wanted}-venv), `pyenv install {wanted}` "
        f"or `uv python install {wanted}`"
    )


def _output(argv: Sequence[str | os.PathLike[str]], env: Mapping[str, str] | None = None) -> str:
    """What a short program prints, or nothing if it fails."""
    try:
        done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
