"""OpenEnv's Harbor server with our sandbox, our agents and nothing of the engine's names in the agents' view.

Runs in the harbor environment as ``python -m scripts.rollout.server --settings JSON`` (see service.py). OpenEnv 0.10
has no settings for most of this, so the seams are: a subclass of its environment, which runs each attempt with the
constant alias and keeps the facts that die with a capture session; a wrapper around ``build_trial_config``; and a
wrapper around ``prepare_request``, the last thing that touches a request on its way to the engine.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import sys
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from openenv.core.harness.capture import runner, upstream
from openenv.core.harness.capture.sessions import SessionRegistry, Upstream
from openenv.harbor import environment, rollout, serving
from openenv.harbor.models import HarborRolloutResult

from scripts.rollout.agents import HARNESSES, AgentMissing, installed_version
from scripts.rollout.agents import install_seams as install_agents
from scripts.rollout.client import ALIAS
from scripts.rollout.report import RolloutReport
from scripts.rollout.rewards import RewardFileError, parse_reward_file
from scripts.rollout.sandboxes import BUBBLEWRAP, environment_settings
from scripts.rollout.service import ServerSettings
from scripts.study.config import ConfigError
from scripts.study.jobs import read_settings

EXPOSE = "expose"
"""Key of ``sandbox.options`` that is ours: how a sandbox elsewhere reaches the proxy (direct, gradio, cloudflare)."""
VERIFIER = "scripts.rollout.grading:KeywiseVerifier"
KEPT_TRIALS = 20
"""Folders of broken trials that are kept for a look; those of good ones are removed, they are megabytes each."""


class LoopbackCapture(runner.CaptureServer):
    """OpenEnv's capture proxy on the loopback alone; the original listens on every interface."""

    host = "127.0.0.1"

    def start(self, timeout_s: float = 30.0) -> None:
        import uvicorn

        real = uvicorn.Config
        uvicorn.Config = lambda *args, **kwargs: real(*args, **{**kwargs, "host": self.host})  # type: ignore[assignment, misc]
        try:
            super().start(timeout_s)
        finally:
            uvicorn.Config = real  # type: ignore[misc]


class StudyEnvironment(environment.HarborEnvironment):
    """Runs attempts as the settings say; the request names task, limits, sampling and the model at the engine."""

    settings: ServerSettings
    harness_version: str = ""

    async def _run_rollout(  # type: ignore[override]
        self,
        split: str,
        task_index: int,
        harness: str,
        sandbox: str,
        reward_key: str,
        keep_sandbox: bool,
        force_build: bool,
        llm_url: str = "",
        model: str = "",
        api_key: str = "",
        auth_header: str = "",
        agent_timeout_sec: float = 0.0,
        agent_step_limit: int = 0,
        sampling: dict[str, Any] | None = None,
        provider: str = "openai",
        purpose: str = "auto",
        eval_sampling: dict[str, Any] | None = None,
    ) -> str:
        service = self._service()
        try:
            task_dir = self._provider.task_dir(split, int(task_index))
        except Exception as error:
            return RolloutReport(ok=False, error=str(error)[:400], harness=harness).model_dump_json()
        engine = Upstream(llm_url=self.settings.engine_url, model=model or ALIAS)
        pool = service.capture.app.state.upstreams
        client, level = await pool.resolve(engine)
        if level != "tokens":
            pool.forget(engine)  # the answer is cached for good, and a probe can fail because the engine was busy
        registry = service.capture.registry
        sessions: list[Any] = []
        result = await rollout.run_rollout(
            task_dir=task_dir,
            harness=harness,
            sandbox=sandbox,
            registry=registry,
            intercept_url=service.public_url,
            model=ALIAS,
            trials_dir=environment._trials_dir(),
            dataset=split,
            reward_key=reward_key,
            capture_level=level,
            purpose=purpose,
            upstream=engine,
            inference=client,
            agent_timeout_sec=agent_timeout_sec or None,
            agent_step_limit=agent_step_limit or None,
            sampling=sampling,
            on_session_created=lambda session_id: sessions.append(registry.get(session_id)),
        )
        return self._report(result, sessions).model_dump_json()

    def _report(self, result: HarborRolloutResult, sessions: list[Any]) -> RolloutReport:
        rewards: dict[str, float | None] = dict(result.rewards)
        folder = environment._trials_dir() / result.trial_name if result.trial_name else None
        if folder is not None and result.rewards:
            with contextlib.suppress(OSError, RewardFileError):
                rewards, refused = parse_reward_file((folder / "verifier" / "reward.json").read_text())
                result.findings += [f"[WARN] reward {line}" for line in refused]
        if folder is not None:
            tidy(folder, broken=result.exception_type not in (None, "AgentTimeoutError"))
        return RolloutReport(
            **result.model_dump(),
            upstream_errors=sum(engine_errors(session) for session in sessions if session is not None),
            reward_file=rewards,
            harness_version=self.harness_version,
        )


def engine_errors(session: Any) -> int:
    """Failed calls of a session, one more if the engine was failing when the agent was cut off."""
    return int(session.upstream_errors) + (1 if getattr(session, "engine_failing", False) else 0)


def watch_engine_failures() -> None:
    """Note on each session whether the engine's latest answer to it was a failure that the proxy tries again.

    The proxy counts a call as failed after the last of its tries only. An agent that is cut off by its time-out before
    that would otherwise pass for one that was slow, and its grade would count.
    """
    current: ContextVar[Any] = ContextVar("session", default=None)
    resolve, get_client = SessionRegistry.resolve, upstream.InferenceClient._get_client

    def resolve_and_note(self: SessionRegistry, headers: dict[str, str], body: dict[str, Any]) -> Any:
        session = resolve(self, headers, body)
        current.set(session)
        return session

    async def note(response: Any) -> None:
        session = current.get()
        if session is not None:
            session.engine_failing = response.status_code in upstream.InferenceClient._RETRY_STATUSES

    async def get_watched_client(self: upstream.InferenceClient) -> Any:
        client = await get_client(self)
        if note not in client.event_hooks["response"]:
            client.event_hooks = {**client.event_hooks, "response": [*client.event_hooks["response"], note]}
        return client

    SessionRegistry.resolve = resolve_and_note
    upstream.InferenceClient._get_client = get_watched_client


def tidy(folder: Path, broken: bool) -> None:
    """Remove a finished trial's folder, or keep it among the last few broken ones."""
    if not broken:
        shutil.rmtree(folder, ignore_errors=True)
        return
    kept = folder.parent.parent / "broken-trials"
    kept.mkdir(exist_ok=True)
    with contextlib.suppress(OSError):
        folder.rename(kept / folder.name)
    for old in sorted(kept.iterdir(), key=lambda path: path.stat().st_mtime)[:-KEPT_TRIALS]:
        shutil.rmtree(old, ignore_errors=True)


def install_seams(settings: ServerSettings) -> None:
    """Put our sandbox, agents, verifier and template arguments into OpenEnv; call once, before the server starts."""
    if settings.harness not in HARNESSES:
        raise ConfigError(f"harness {settings.harness!r}: known are {', '.join(sorted(HARNESSES))}")
    install_agents(settings.rollout.max_output_tokens)
    agents_dir, root = Path(settings.agents_dir), Path(settings.work) / "sandboxes"
    local = settings.sandbox.environment == BUBBLEWRAP
    sandbox_config = settings.sandbox.model_copy(
        update={"options": {key: value for key, value in settings.sandbox.options.items() if key != EXPOSE}}
    )
    original_config = rollout.build_trial_config

    def build_trial_config(*, sandbox: str, intercept_url: str, **kwargs: Any) -> Any:
        known = "docker" if local or ":" in sandbox else sandbox  # OpenEnv takes none but Harbor's own names
        config = original_config(sandbox=known, intercept_url=intercept_url, **kwargs)
        ports = [int(intercept_url.rsplit(":", 1)[1])] if local else []
        for key, value in environment_settings(sandbox_config, agents_dir, root, ports).items():
            setattr(config.environment, key, value)
        config.verifier.import_path = VERIFIER
        config.verifier.override_timeout_sec = settings.rollout.verifier_timeout_s
        return config

    rollout.build_trial_config = build_trial_config
    original_prepare = upstream.prepare_request

    def prepare_request(request: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        request = original_prepare(request, **kwargs)
        if settings.enable_thinking is not None:
            known = request.get("chat_template_kwargs") or {}
            request["chat_template_kwargs"] = {**known, "enable_thinking": settings.enable_thinking}
        return request

    upstream.prepare_request = prepare_request
    original_normalize = upstream.normalize_response

    def normalize_response(response: dict[str, Any]) -> dict[str, Any]:
        return {**original_normalize(response), "model": ALIAS}

    upstream.normalize_response = normalize_response
    watch_engine_failures()
    serving.CaptureServer = LoopbackCapture
    environment.HarborEnvironment = StudyEnvironment
    environment._ROLLOUT_TIMEOUT_S = settings.deadline_s
    StudyEnvironment.settings = settings
    StudyEnvironment.harness_version = installed_version(agents_dir, settings.harness)


def pin_agent(settings: ServerSettings) -> None:
    """Where Harbor installs the agent into the sandbox itself, have it install the version that is installed here."""
    if settings.sandbox.environment != BUBBLEWRAP:
        os.environ["OPENENV_HARBOR_AGENT_VERSIONS"] = json.dumps({settings.harness: StudyEnvironment.harness_version})


def serve(settings: ServerSettings) -> None:
    """Serve until SIGTERM."""
    import uvicorn

    install_seams(settings)
    pin_agent(settings)
    local = settings.sandbox.environment == BUBBLEWRAP
    expose = "direct" if local else str(settings.sandbox.options.get(EXPOSE, "direct"))
    # A sandbox in a container reaches us by an interface of its own; a tunnel's end is on the loopback.
    LoopbackCapture.host = "127.0.0.1" if local or expose != "direct" else "0.0.0.0"
    service = serving.HarborService(
        datasets=settings.datasets,
        capture_port=settings.capture_port,
        expose=expose,
        capture_level="text",
        max_output_tokens=settings.rollout.max_output_tokens,
    )
    service.start()
    serving.HarborService.set_current(service)
    try:
        app = serving.build_app(datasets=settings.datasets)
        uvicorn.run(
            app,
            host="127.0.0.1",
            port=settings.port,
            log_level="warning",
            ws_max_size=2**31,
            timeout_graceful_shutdown=1,
        )
    finally:
        service.stop()


def main(argv: list[str] | None = None) -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--settings", required=True, help="ServerSettings as JSON, or a file with it")
    arguments = parser.parse_args(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        serve(read_settings(ServerSettings, arguments.settings))
    except (AgentMissing, ConfigError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
