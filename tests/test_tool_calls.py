"""The real engine with the demo policy: its tool calls are parsed, streamed and not, and it drives the real agent.

The policy is the one that the demo study built (results/policy/base), or the folder that STUDY_RESULTS names instead of
results. Without it these tests are skipped.
"""

from __future__ import annotations

import json
import os
import urllib.request
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / os.environ.get("STUDY_RESULTS", "results")
BASE = RESULTS / "policy" / "base"
SUITE = next((path for path in sorted(RESULTS.glob("suites/*validation")) if path.is_dir()), RESULTS / "suites")
PROMPT = next(
    (path for path in (RESULTS / "policy/prompts/pi.json", RESULTS / "prompts/pi.json") if path.exists()), None
)
HARBOR = ROOT / ".envs" / "harbor" / "bin" / "python"
SAMPLES = 8

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(not (BASE / "config.json").exists(), reason="no demo policy; make the demo study first"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tool-calls")


@pytest.fixture(scope="module")
def engine(folder: Path):
    pytest.importorskip("vllm")
    from scripts.rollout.engine import Engine
    from scripts.study.config import Engine as EngineConfig
    from scripts.study.jobs import Serving

    with Engine(EngineConfig(), Serving(dtype="float32"), "cpu", BASE, folder / "engine-log") as engine:
        yield engine


def request_of(seed: int, stream: bool) -> dict[str, Any]:
    assert PROMPT is not None
    recorded = json.loads(PROMPT.read_text())["request"]
    task = sorted((SUITE / "tasks").iterdir())[seed % 4]
    messages = [message for message in recorded["messages"] if message["role"] == "system"]
    messages.append({"role": "user", "content": (task / "instruction.md").read_text().strip()})
    return {
        "model": "policy",
        "messages": messages,
        "tools": recorded["tools"],
        "temperature": 0.8,
        "max_tokens": 160,
        "seed": seed,
        "stream": stream,
    }


def post(url: str, body: dict[str, Any]) -> str:
    request = urllib.request.Request(
        url + "/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=120) as response:
        return response.read().decode()


def whole(url: str, seed: int) -> tuple[str, list[tuple[str, str]]]:
    message = json.loads(post(url, request_of(seed, stream=False)))["choices"][0]["message"]
    calls = [(call["function"]["name"], call["function"]["arguments"]) for call in message.get("tool_calls") or []]
    return message.get("content") or "", calls


def streamed(url: str, seed: int) -> tuple[str, list[tuple[str, str]]]:
    text, names, arguments = "", {}, {}
    for line in post(url, request_of(seed, stream=True)).splitlines():
        if not line.startswith("data: {"):
            continue
        for choice in json.loads(line[6:])["choices"]:
            text += choice["delta"].get("content") or ""
            for call in choice["delta"].get("tool_calls") or []:
                index = call["index"]
                names[index] = names.get(index, "") + (call["function"].get("name") or "")
                arguments[index] = arguments.get(index, "") + (call["function"].get("arguments") or "")
    return text, [(names[index], arguments[index]) for index in sorted(names)]


@pytest.mark.skipif(PROMPT is None, reason="no recorded prompt of pi")
@pytest.mark.parametrize("answer", [whole, streamed])
def test_tool_calls_are_parsed(engine, answer) -> None:
    from scripts.rollout.outcome import RAW_TOOL_MARKUP

    answers = [answer(engine.url, seed) for seed in range(SAMPLES)]
    assert not any(RAW_TOOL_MARKUP.search(text) for text, _ in answers)
    calls = [call for _, found in answers for call in found]
    assert len(calls) >= SAMPLES // 2
    for name, arguments in calls:
        assert name in {"read", "bash", "edit", "write"}
        assert json.loads(arguments), f"{name} came without arguments"


@pytest.mark.skipif(PROMPT is None, reason="no recorded prompt of pi")
def test_streaming_changes_nothing(engine) -> None:
    assert [whole(engine.url, seed) for seed in range(4)] == [streamed(engine.url, seed) for seed in range(4)]


@pytest.mark.skipif(not HARBOR.exists(), reason="the harbor environment is not built")
def test_policy_drives_the_agent(engine, folder: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    from scripts.rollout.client import RolloutClient
    from scripts.rollout.service import RolloutServer
    from scripts.study.config import Rollout, Sandbox

    agents = ROOT / ".envs" / "agents"
    limits = Rollout()
    with (
        RolloutServer(
            HARBOR, agents, [SUITE], engine.url, "pi", Sandbox(), limits, 4, folder / "work", folder / "server-log"
        ) as server,
        RolloutClient(server.url, "pi", Sandbox(), limits) as client,
        ThreadPoolExecutor(4) as pool,
    ):
        names = sorted(client.tasks(SUITE))[:12]
        rollouts = list(pool.map(lambda name: client.run(SUITE, name), names))
    assert [rollout.error for rollout in rollouts if rollout.status != "scored"] == []
    assert sum(rollout.tool_calls for rollout in rollouts) >= len(rollouts)
    assert any(rollout.solved for rollout in rollouts)
    for rollout in rollouts:
        assert rollout.result.rollout_type == "train"
        assert all(turn["sampling"]["temperature"] == limits.temperature for turn in rollout.turns)
        assert all(len(turn["logprobs"]) == len(turn["completion_token_ids"]) > 0 for turn in rollout.turns)
