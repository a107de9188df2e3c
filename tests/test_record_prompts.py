"""The first request of the real agent, as it is sent from the sandbox."""

from __future__ import annotations

import json
import os
import urllib.request
from pathlib import Path

import pytest

from scripts import record_prompts
from scripts.record_prompts import INSTRUCTION, Recorder
from scripts.rollout.agents import HARNESSES

AGENTS = Path(os.environ.get("AGENTS_DIR", ".envs/agents"))


def test_recorder_keeps_requests_and_streams_an_answer() -> None:
    with Recorder() as recorder:
        url = f"http://127.0.0.1:{recorder.port}/v1/chat/completions"
        with urllib.request.urlopen(urllib.request.Request(url, b'{"model": "policy"}'), timeout=10) as answer:
            text = answer.read().decode()
    assert recorder.requests == [{"model": "policy"}]
    assert text.endswith("data: [DONE]\n\n")
    assert '"finish_reason": "stop"' in text


def test_missing_agent_is_one_clear_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--harness", "pi", "--agents-dir", str(tmp_path), "--out", str(tmp_path / "pi.json")]
    assert record_prompts.main(words) == 1
    assert "is not installed" in capsys.readouterr().err
    assert not (tmp_path / "pi.json").exists()


@pytest.mark.parametrize("harness", sorted(HARNESSES))
def test_real_agent_is_recorded_the_same_twice(tmp_path: Path, harness: str) -> None:
    pytest.importorskip("harbor")
    if not (AGENTS / "node_modules").is_dir():
        pytest.skip("the agents' environment is not built")
    recorded = []
    for name in ("first.json", "second.json"):
        words = ["--harness", harness, "--agents-dir", str(AGENTS), "--out", str(tmp_path / name)]
        assert record_prompts.main(words) == 0
        recorded.append(json.loads((tmp_path / name).read_text()))
    assert recorded[0] == recorded[1]
    system, user = recorded[0]["request"]["messages"]
    assert "/opt/agents/node_modules/" in system["content"]
    assert "/workdir" in system["content"]
    assert str(tmp_path.parent) not in json.dumps(recorded)
    assert user["content"] == [{"type": "text", "text": INSTRUCTION}]
    assert recorded[0]["request"]["max_completion_tokens"] == 160
    assert {tool["function"]["name"] for tool in recorded[0]["request"]["tools"]} == {"read", "bash", "edit", "write"}
