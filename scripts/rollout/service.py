"""The rollout server as a process that a job owns. Importable without harbor; the server itself is server.py."""

from __future__ import annotations

import os
import sys
import time
import urllib.request
from pathlib import Path
from types import TracebackType

from scripts.rollout.client import deadline_of
from scripts.rollout.processes import OwnedProcess, free_port
from scripts.study.config import Rollout as RolloutConfig
from scripts.study.config import Sandbox, Section

START_TIMEOUT_S = 180.0
SPARE_SESSIONS = 8
"""Sessions beyond the concurrency, for connections that were cut and that the server has not noticed yet."""
_ROOT = Path(__file__).resolve().parents[2]
_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class ServerSettings(Section):
    """What the server process is told."""

    harness: str
    sandbox: Sandbox
    rollout: RolloutConfig
    enable_thinking: bool | None
    engine_url: str
    agents_dir: str
    datasets: list[str]
    concurrency: int
    work: str
    port: int
    capture_port: int
    deadline_s: float


class RolloutServerDied(RuntimeError):
    """The rollout server ended or never became ready; the message holds the last lines of its log."""


class RolloutServer:
    """OpenEnv's Harbor server with our sandbox and agents, as a context manager.

    :param harbor_python: the interpreter of the harbor environment; node and bwrap lie beside it.
    :param agents_dir: folder of the npm project with the agents (it holds node_modules).
    :param datasets: folders of suites (each holds ``tasks``).
    :param engine_url: the engine's address.
    :param harness: the coding agent's name.
    :param sandbox: where its commands run.
    :param rollout: limits and sampling.
    :param concurrency: attempts at once.
    :param work: folder for the trials.
    :param log: file for the server's output.
    :param enable_thinking: ``serving.enable_thinking``: sent with every request unless null.
    """

    def __init__(
        self,
        harbor_python: Path,
        agents_dir: Path,
        datasets: list[Path],
        engine_url: str,
        harness: str,
        sandbox: Sandbox,
        rollout: RolloutConfig,
        concurrency: int,
        work: Path,
        log: Path,
        enable_thinking: bool | None = None,
    ) -> None:
        # Not resolved: a virtual environment's python is a link, and following it would lose the environment.
        python = Path(os.path.abspath(harbor_python))  # noqa: PTH100
        if not python.is_file():
            raise FileNotFoundError(f"{harbor_python}: no such interpreter; build the harbor environment first")
        for dataset in datasets:
            if not (Path(dataset) / "tasks").is_dir():
                raise FileNotFoundError(f"{dataset}: no folder `tasks` in it; give the folder of a suite")
        work = Path(work).resolve()
        work.mkdir(parents=True, exist_ok=True)
        settings = ServerSettings(
            harness=harness,
            sandbox=sandbox,
            rollout=rollout,
            enable_thinking=enable_thinking,
            engine_url=engine_url,
            agents_dir=str(Path(agents_dir).resolve()),
            datasets=[str(Path(dataset).resolve()) for dataset in datasets],
            concurrency=concurrency,
            work=str(work),
            port=free_port(),
            capture_port=free_port(),
            deadline_s=deadline_of(sandbox, rollout),
        )
        self.url = f"http://127.0.0.1:{settings.port}"
        self._process = OwnedProcess(
            [python, "-m", "scripts.rollout.server", "--settings", settings.model_dump_json()],
            log=log,
            env=environment(python, settings),
            cwd=_ROOT,
            name="rollout server",
            grace_s=5.0,
        )

    def __enter__(self) -> RolloutServer:
        self._process.start()
        try:
            self._wait_until_ready()
        except BaseException:
            self._process.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.stop()

    def check(self) -> None:
        """Raise :class:`RolloutServerDied` if the process ended."""
        if not self._process.alive:
            raise RolloutServerDied(self._epitaph(f"the rollout server ended with status {self._process.poll()}"))

    def _wait_until_ready(self) -> None:
        started = said = time.monotonic()
        while True:
            self.check()
            try:
                with _opener.open(f"{self.url}/health", timeout=5):
                    break
            except OSError:
                pass
            now = time.monotonic()
            if now - started > START_TIMEOUT_S:
                raise RolloutServerDied(
                    self._epitaph(f"the rollout server was not ready after {START_TIMEOUT_S:.0f} s")
                )
            if now - said > 5:
                said = now
                print(f"rollout server: starting, {now - started:.0f} s", file=sys.stderr, flush=True)
            time.sleep(0.2)
        took = time.monotonic() - started
        print(f"rollout server: ready after {took:.0f} s at {self.url}", file=sys.stderr, flush=True)

    def _epitaph(self, what: str) -> str:
        return f"{what}; last lines of {self._process.log}:\n{self._process.tail(25)}"


def environment(python: Path, settings: ServerSettings) -> dict[str, str]:
    """Environment of the server: the caller's, with the harbor environment's programs first and no calls home."""
    env = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV", "PYTHONHOME")}
    return env | {
        "PATH": os.pathsep.join([str(python.parent), os.environ.get("PATH", "")]),
        "PYTHONPATH": str(_ROOT),
        "MAX_CONCURRENT_ENVS": str(settings.concurrency + SPARE_SESSIONS),
        "OPENENV_HARBOR_TRIALS_DIR": str(Path(settings.work) / "trials"),
        "ENABLE_WEB_INTERFACE": "false",
        "GRADIO_ANALYTICS_ENABLED": "False",
        "HF_HUB_OFFLINE": "1",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "PI_OFFLINE": "1",
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
    }
