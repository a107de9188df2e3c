"""Records an agent's first request: the prompt and the tools that the real agent sends from the real sandbox.

    python -m scripts.record_prompts --harness pi --agents-dir .envs/agents --out results/policy/prompts/pi.json

Runs in the harbor environment. The agent works in the sandbox as in a rollout, against a small server that answers
once and says that it is done.
"""

from __future__ import annotations

import argparse
import asyncio
import http.server
import json
import logging
import os
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

from scripts.rollout.agents import HARNESSES, AgentMissing, install_seams, installed_version
from scripts.rollout.processes import end_with_workflow
from scripts.rollout.sandboxes import environment_settings
from scripts.study.config import Sandbox
from scripts.study.files import write_atomic

INSTRUCTION = "What is the mean of price in sales.csv? Write it to answer.txt.\n"
MODEL = "policy"
AGENT_TIMEOUT_S = 60.0
TASK_TOML = """schema_version = "1.4"

[task]
name = "harness-cards/record-prompt"

[environment]
workdir = "/workdir"
"""
DOCKERFILE = "FROM python:3.11-slim\nCOPY input /workdir\nWORKDIR /workdir\n"


class NothingRecorded(RuntimeError):
    """The agent sent no request; the message says what it said instead."""


def write_task(folder: Path) -> Path:
    """Write a small Harbor task that an agent can be pointed at."""
    files = {
        "task.toml": TASK_TOML,
        "instruction.md": INSTRUCTION,
        "environment/Dockerfile": DOCKERFILE,
        "environment/input/sales.csv": "price\n1\n3\n",
        "tests/test.sh": "#!/bin/bash\necho 0 > /logs/verifier/reward.txt\n",
    }
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def reply_chunks() -> bytes:
    """A streamed chat completion that says that the work is done and calls no tool."""
    head = {"id": "recorded", "object": "chat.completion.chunk", "created": 0, "model": MODEL}
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    chunks: list[dict[str, Any]] = [
        {"choices": [{"index": 0, "delta": {"role": "assistant", "content": "Done."}, "finish_reason": None}]},
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": usage},
    ]
    lines = [f"data: {json.dumps({**head, **chunk})}\n\n" for chunk in chunks]
    return "".join([*lines, "data: [DONE]\n\n"]).encode()


class Recorder:
    """A server on loopback that keeps the chat requests it gets and answers each in one word; a context manager."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        recorder = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                recorder.requests.append(json.loads(body))
                answer = reply_chunks()
                self.send_response(200)
                self.send_header("content-type", "text/event-stream")
                self.send_header("content-length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, format: str, *args: Any) -> None:
                """Requests are kept, not logged."""

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def port(self) -> int:
        """Port that it listens on."""
        return self._server.server_address[1]

    def __enter__(self) -> Recorder:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


async def record(harness: str, agents_dir: Path, sandbox: Sandbox, work: Path) -> dict[str, Any]:
    """The first request that the agent sends in a sandbox.

    :raises NothingRecorded: it sent none.
    """
    from harbor.models.trial.config import EnvironmentConfig
    from harbor.trial.trial import Trial
    from openenv.harbor.rollout import build_trial_config

    install_seams(max_output_tokens=160)
    with Recorder() as recorder:
        config = build_trial_config(
            task_dir=write_task(work / "task"),
            harness=harness,
            sandbox="docker",
            intercept_url=f"http://127.0.0.1:{recorder.port}",
            session_id="recorder",
            model=MODEL,
            trial_name="record-prompt",
            trials_dir=work / "trials",
            agent_timeout_sec=AGENT_TIMEOUT_S,
        )
        config.environment = EnvironmentConfig(
            **environment_settings(sandbox, agents_dir, work / "sandboxes", [recorder.port])
        )
        config.verifier.disable = True
        trial = await Trial.create(config)
        result = await trial.run()
    if not recorder.requests:
        problem = result.exception_info.exception_message.strip() if result.exception_info else "it ended silently"
        raise NothingRecorded(f"{harness} sent no request from the {sandbox.environment} sandbox: {problem[-500:]}")
    return recorder.requests[0]


def main(argv: list[str] | None = None) -> int:
    """Run the program; 1 if nothing could be recorded."""
    parser = argparse.ArgumentParser(prog="scripts.record_prompts", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--harness", required=True, choices=sorted(HARNESSES))
    parser.add_argument("--agents-dir", required=True, type=Path, help="folder whose node_modules holds the agents")
    parser.add_argument("--out", required=True, type=Path)
    args = parser.parse_args(argv)
    end_with_workflow()
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    logging.disable(logging.INFO)
    try:
        version = installed_version(args.agents_dir, args.harness)
        with tempfile.TemporaryDirectory(prefix="record-prompts-") as work:
            request = asyncio.run(record(args.harness, args.agents_dir, Sandbox.model_validate({}), Path(work)))
    except (AgentMissing, NothingRecorded, OSError, RuntimeError, ValueError) as error:
        print(f"record_prompts: {error}", file=sys.stderr)
        return 1
    recorded = {"harness": args.harness, "harness_version": version, "request": request}
    write_atomic(args.out, json.dumps(recorded, indent=2, ensure_ascii=False) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
