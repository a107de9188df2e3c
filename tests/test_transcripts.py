import json
import random
import re

import pytest

from scripts.demo.experts import Bash, ReadFile, solve
from scripts.demo.transcripts import PiFormat, PromptError, messages, read_request, shorten, vary_folders
from scripts.demo.world import WRONG_KIND, draw_task
from tests.recorded_request import SYSTEM, write_request


def sessions(count, waste=1.0, wrong_fraction=0.3):
    rng = random.Random(5)
    return [solve(rng, draw_task(rng, "train"), waste, wrong_fraction) for _ in range(count)]


def saved_kind(session):
    """Which kind of answer a session saved."""
    saving = [step.command for step in session.steps if isinstance(step, Bash) and " > " in step.command]
    kind = session.task.question.kind
    return next(name for name in (kind, WRONG_KIND[kind]) if session.task.command(name) in saving)


def test_experts_waste_calls_and_err_as_often_as_asked():
    drawn = sessions(600)
    calls = [len(session.steps) for session in drawn]
    assert 3.0 < sum(calls) / len(calls) < 4.5
    assert min(calls) == 1
    wrong = sum(saved_kind(session) != session.task.question.kind for session in drawn)
    assert 0.24 < wrong / len(drawn) < 0.36


def test_experts_without_waste_or_error_save_the_answer_at_once():
    for session in sessions(50, waste=0.0, wrong_fraction=0.0):
        assert [step.command for step in session.steps] == [session.task.command()]


def test_messages_have_pis_shape(tmp_path):
    request = read_request(write_request(tmp_path / "pi.json"))
    session = next(s for s in sessions(200) if any(isinstance(step, ReadFile) for step in s.steps))
    shown = messages(session, "pi", request.system, end="\n")
    assert [m["role"] for m in shown] == ["system", "user", *["assistant", "tool"] * len(session.steps), "assistant"]
    assert shown[1]["content"] == session.task.instruction() + "\n"
    read = next(m for m in shown if m.get("tool_calls") and m["tool_calls"][0]["function"]["name"] == "read")
    assert read["tool_calls"][0]["function"]["arguments"] == {"path": session.task.question.file, "limit": 3}


def test_pi_shows_empty_output_and_failures_as_such():
    assert PiFormat().call(Bash("true", ""))[2] == "(no output)"
    assert PiFormat().call(Bash("x", "no\n", failed=True))[2] == "no\n\n\nCommand exited with code 1"


def test_prompts_vary_in_folders_and_length():
    rng = random.Random(0)
    varied = {vary_folders(rng, SYSTEM) for _ in range(60)}
    assert len(varied) > 10
    assert all(re.search(r"lies in /\S+/node_modules/made-up/README\.md", system) for system in varied)
    lengths = {len(shorten(rng, SYSTEM)) for _ in range(60)}
    assert min(lengths) < 40 < max(lengths) <= len(SYSTEM)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"harness": "other"}, "cannot be taught 'other'; known: pi"),
        ({"request": {"messages": [], "tools": []}}, "record it anew"),
        ({"request": None}, "record it anew"),
    ],
)
def test_unusable_requests_are_named(tmp_path, changes, message):
    path = write_request(tmp_path / "pi.json", **changes)
    with pytest.raises(PromptError, match=re.escape(message)) as error:
        read_request(path)
    assert str(path) in str(error.value)


def test_missing_request_is_named(tmp_path):
    with pytest.raises(PromptError, match=r"none\.json"):
        read_request(tmp_path / "none.json")


def test_request_is_read_whole(tmp_path):
    path = write_request(tmp_path / "pi.json")
    request = read_request(path)
    assert (request.harness, request.version, request.system) == ("pi", "1.6.0", SYSTEM)
    assert list(request.tools) == json.loads(path.read_text())["request"]["tools"]
