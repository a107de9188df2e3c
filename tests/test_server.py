"""The rollout server with the real agent in the real sandbox, against a deterministic token server."""

from __future__ import annotations

import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

pytest.importorskip("openenv.harbor.client")

from scripts.rollout import client as client_module
from scripts.rollout.client import RolloutClient
from scripts.rollout.processes import descendants, free_port
from scripts.rollout.service import RolloutServer
from scripts.study.config import Rollout as RolloutConfig
from scripts.study.config import Sandbox
from tests.token_server import LOGPROB, TokenServer

ROOT = Path(__file__).resolve().parent.parent
HARBOR = ROOT / ".envs" / "harbor" / "bin" / "python"
AGENTS = ROOT / ".envs" / "agents"
pytestmark = pytest.mark.skipif(not HARBOR.exists(), reason="the harbor environment is not built")

LIMITS = RolloutConfig(call_budget=4, agent_timeout_s=20.0, verifier_timeout_s=20.0)
SHORT = LIMITS.model_copy(update={"agent_timeout_s": 5.0})
GRADER = """#!/bin/bash
if [ "$(cat /workdir/answer.txt 2>/dev/null)" = 42 ]; then grade=1.0; else grade=0.0; fi
{reward}
"""
REWARD = """printf '{"correctness": %s, "tool_efficiency": 0.5}' $grade > /logs/verifier/reward.json"""
NULL = (
    """printf '{"correctness": %s, "tool_efficiency": null, "n": "x", "o": NaN}' $grade > /logs/verifier/reward.json"""
)
VISIT = """printf '{"correctness": null, "tool_efficiency": 1.0}' > /logs/verifier/reward.json"""
TASKS = {
    "right": ("RIGHT", REWARD),
    "wrong": ("WRONG", REWARD),
    "loop": ("LOOP", REWARD),
    "hang": ("HANG", REWARD),
    "dies": ("DIES", REWARD),
    "context": ("CONTEXT", REWARD),
    "markup": ("MARKUP", REWARD),
    "no-file": ("NOFILE", "true"),
    "null-key": ("NULLKEY", NULL),
    "null-grade": ("VISIT", VISIT),
}


def write_tasks(folder: Path) -> Path:
    for task_id, (word, reward) in TASKS.items():
        task = folder / "tasks" / task_id
        (task / "environment").mkdir(parents=True)
        (task / "tests").mkdir()
        (task / "task.toml").write_text(f'version = "1.0"\n[task]\nname = "test/{task_id}"\n')
        (task / "instruction.md").write_text(f"{word}: write 42 to /workdir/answer.txt\n")
        (task / "environment" / "Dockerfile").write_text("FROM python:3.12-slim\nWORKDIR /workdir\n")
        (task / "tests" / "test.sh").write_text(GRADER.format(reward=reward))
    return folder


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tasks(tmp_path_factory.mktemp("suite"))


@pytest.fixture(scope="module")
def engine():
    with TokenServer() as server:
        yield server


def server_for(suite: Path, engine_url: str, folder: Path, **kwargs) -> RolloutServer:
    return RolloutServer(
        HARBOR,
        AGENTS,
        [suite],
        engine_url,
        "pi",
        Sandbox(),
        LIMITS,
        3,
        folder / "work",
        folder / "server.log",
        **kwargs,
    )


@pytest.fixture(scope="module")
def service(suite: Path, engine: TokenServer, tmp_path_factory: pytest.TempPathFactory):
    with server_for(suite, engine.url, tmp_path_factory.mktemp("server"), enable_thinking=False) as running:
        yield running


@pytest.fixture(scope="module")
def runner(service: RolloutServer):
    with RolloutClient(service.url, "pi", Sandbox(), LIMITS) as client:
        yield client


def test_tasks_are_known_by_name(runner: RolloutClient, suite: Path) -> None:
    assert sorted(runner.tasks(suite)) == sorted(TASKS)
    with pytest.raises(KeyError, match="no-such-task"):
        runner.run(suite, "no-such-task")


def test_right_answer_is_scored_with_the_engines_tokens(
    runner: RolloutClient, suite: Path, engine: TokenServer
) -> None:
    seen = len(engine.requests)
    rollout = runner.run(suite, "right")
    assert (rollout.status, rollout.stop, rollout.error) == ("scored", "finished", None)
    assert (rollout.correctness, rollout.solved) == (1.0, True)
    assert rollout.rewards == {"correctness": 1.0, "tool_efficiency": 0.5}
    assert (rollout.tool_calls, rollout.tool_calls_by_name, rollout.model_calls) == (1, {"bash": 1}, 2)
    assert (
        rollout.harness_version
        == json.loads((AGENTS / "node_modules/@earendil-works/pi-coding-agent/package.json").read_text())["version"]
    )
    assert bytes(rollout.turns[1]["completion_token_ids"]) == b"Done.</>"
    assert set(rollout.turns[1]["logprobs"]) == {LOGPROB}
    assert rollout.completion_tokens == sum(len(turn["completion_token_ids"]) for turn in rollout.turns)
    assert len(rollout.result.turns) == 2
    calls = [request for request in engine.requests[seen:] if request.get("tools") and "RIGHT" in json.dumps(request)]
    assert len(calls) == 2
    for call in calls:
        assert call["temperature"] == LIMITS.temperature
        assert (call["top_p"], call["top_k"]) == (1.0, -1)
        assert call["chat_template_kwargs"] == {"enable_thinking": False}
        assert (call.get("max_completion_tokens") or call["max_tokens"]) <= LIMITS.max_output_tokens


def test_the_agent_sees_one_name_for_every_adapter(runner: RolloutClient, suite: Path, engine: TokenServer) -> None:
    engine.models += ["step-6"]
    seen = len(engine.requests)
    rollout = runner.run(suite, "right", "step-6")
    assert rollout.status == "scored"
    agents = [request for request in engine.requests[seen:] if "RIGHT" in json.dumps(request["messages"])]
    assert {request["model"] for request in agents} == {"step-6"}
    assert "step-6" not in json.dumps([[turn["messages"], turn["tools"]] for turn in rollout.turns])


def test_wrong_answer_is_a_zero(runner: RolloutClient, suite: Path) -> None:
    rollout = runner.run(suite, "wrong")
    assert (rollout.status, rollout.stop, rollout.correctness, rollout.solved) == ("scored", "finished", 0.0, False)


def test_spent_call_budget_is_graded(runner: RolloutClient, suite: Path) -> None:
    rollout = runner.run(suite, "loop")
    assert (rollout.status, rollout.stop, rollout.solved) == ("scored", "call_budget", True)
    assert rollout.model_calls == LIMITS.call_budget
    assert rollout.tool_calls == LIMITS.call_budget


def test_full_context_is_graded(runner: RolloutClient, suite: Path) -> None:
    rollout = runner.run(suite, "context")
    assert (rollout.status, rollout.stop, rollout.solved) == ("scored", "context", True)


def test_time_out_is_graded(suite: Path, service: RolloutServer) -> None:
    with RolloutClient(service.url, "pi", Sandbox(), SHORT) as client:
        rollout = client.run(suite, "hang")
    assert (rollout.status, rollout.stop, rollout.solved, rollout.error) == ("scored", "timeout", True, None)


def test_engine_that_dies_in_mid_run_is_infrastructure(service: RolloutServer, suite: Path) -> None:
    with RolloutClient(service.url, "pi", Sandbox(), SHORT) as client:
        rollout = client.run(suite, "dies")
    assert rollout.status == "infrastructure"
    assert rollout.error is not None
    assert rollout.error["type"] == "EngineError"
    assert (rollout.correctness, rollout.solved) == (None, None)
    assert rollout.rewards.get("correctness") == 1.0, "the verifier did say 1.0, and it must not count"


def test_no_reward_file_is_infrastructure(runner: RolloutClient, suite: Path) -> None:
    rollout = runner.run(suite, "no-file")
    assert rollout.status == "infrastructure"
    assert rollout.error is not None
    assert rollout.error["type"] == "RewardFileNotFoundError"


def test_null_in_the_reward_file_loses_nothing_else(runner: RolloutClient, suite: Path) -> None:
    rollout = runner.run(suite, "null-key")
    assert (rollout.status, rollout.correctness) == ("scored", 1.0)
    assert rollout.rewards == {"correctness": 1.0, "tool_efficiency": None}
    assert rollout.flags == ["null_reward", "reward_refused"]


def test_null_grade_is_not_a_zero(runner: RolloutClient, suite: Path) -> None:
    rollout = runner.run(suite, "null-grade")
    assert (rollout.status, rollout.correctness, rollout.solved) == ("infrastructure", None, None)


def test_tool_call_left_in_the_text_is_flagged(runner: RolloutClient, suite: Path) -> None:
    rollout = runner.run(suite, "markup")
    assert (rollout.status, rollout.solved, rollout.tool_calls) == ("scored", False, 0)
    assert rollout.flags == ["raw_tool_markup"]


def test_several_at_once_keep_their_tasks_apart(runner: RolloutClient, suite: Path) -> None:
    names = ["right", "wrong", "right", "wrong", "loop", "right"]
    with ThreadPoolExecutor(3) as pool:
        rollouts = list(pool.map(lambda name: runner.run(suite, name), names))
    assert [rollout.solved for rollout in rollouts] == [True, False, True, False, True, True]


def test_engine_down_is_infrastructure_and_nothing_is_left(suite: Path, tmp_path: Path) -> None:
    before = set(descendants(os.getpid()))
    with server_for(suite, f"http://127.0.0.1:{free_port()}", tmp_path) as service:
        with RolloutClient(service.url, "pi", Sandbox(), SHORT) as client:
            rollout = client.run(suite, "right")
        assert rollout.status == "infrastructure"
        assert rollout.error is not None
        assert (rollout.correctness, rollout.solved) == (None, None)
        service.check()
    assert set(descendants(os.getpid())) <= before
    assert not any((tmp_path / "work" / "sandboxes").glob("*/*"))


def test_hung_server_ends_as_infrastructure(
    service: RolloutServer, suite: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "SLACK_S", 1.0)
    hasty = RolloutConfig(agent_timeout_s=1.0, verifier_timeout_s=1.0)
    with RolloutClient(service.url, "pi", Sandbox(), hasty) as client:
        client.rollout = LIMITS  # the server is told the long limit, and the client waits for the short one only
        started = time.monotonic()
        rollout = client.run(suite, "hang")
    assert time.monotonic() - started < 10
    assert rollout.status == "infrastructure"
    assert rollout.error is not None
    assert rollout.error["message"].startswith("rollout server")
