"""GGUF files against the adapter that they come from: real converters, real llama.cpp, a model of random weights."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from scripts.gguf.converters import LLAMA_CPP, known_pre_tokenizers
from scripts.gguf.turns import Turn, TurnsError, choose_turns, read_turns
from scripts.study.attempts import Attempt, write_attempts
from tests import random_policy, tiny_model

GGUF_PYTHON = Path(".envs/gguf/bin/python")
TURNS = 6


def attempt(number: int, **changes: Any) -> Attempt:
    """A scored attempt with a trace."""
    row: dict[str, Any] = {
        "suite": "held",
        "task_id": f"task-{number}",
        "task_sha256": "0" * 64,
        "attempt": 0,
        "harness": "pi",
        "harness_version": "1",
        "policy": "step-1",
        "policy_sha256": "0" * 64,
        "base_model": "a/b",
        "status": "scored",
        "solved": False,
        "rewards": {"correctness": 0.0},
        "stop": "finished",
        "tool_calls": 0,
        "tool_calls_by_name": {},
        "model_calls": 1,
        "prompt_tokens": 1,
        "completion_tokens": 1,
        "wall_s": 1.0,
        "sampling": {},
        "limits": {},
        "engine": {},
        "sandbox": {},
        "trajectory": f"traces/task-{number}.json",
    }
    return Attempt.model_validate({**row, **changes})


def record(outdir: Path, turns: list[list[dict[str, Any]]]) -> Path:
    """Write attempts, one for each list of turns, and their traces."""
    (outdir / "traces").mkdir(parents=True)
    for number, trace in enumerate(turns):
        (outdir / "traces" / f"task-{number}.json").write_text(json.dumps(trace))
    write_attempts(outdir / "held.jsonl", [attempt(number) for number in range(len(turns))])
    return outdir / "held.jsonl"


def ids(prompt: list[int], completion: list[int]) -> dict[str, Any]:
    return {"prompt_token_ids": prompt, "completion_token_ids": completion, "text": "x"}


def test_turns_are_read_with_their_place_and_empty_ones_left_out(tmp_path: Path) -> None:
    path = record(tmp_path, [[ids([1, 2], [3]), ids([1, 2, 3], [])], [ids([4], [5, 6])]])
    assert read_turns([path], tmp_path) == [
        Turn("held/task-0/0/0", (1, 2), (3,)),
        Turn("held/task-1/0/0", (4,), (5, 6)),
    ]


def test_attempts_that_infrastructure_ended_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "traces").mkdir()
    error = {"type": "EngineDied", "message": "x"}
    broken = attempt(0, status="infrastructure", solved=None, rewards={}, stop=None, error=error)
    write_attempts(tmp_path / "held.jsonl", [broken])
    assert read_turns([tmp_path / "held.jsonl"], tmp_path) == []


@pytest.mark.parametrize("content", ["", "{}", '[{"prompt_token_ids": [1]}]', '[{"prompt_token_ids": "no"}]'])
def test_a_broken_trace_is_named(tmp_path: Path, content: str) -> None:
    path = record(tmp_path, [[ids([1], [2])]])
    (tmp_path / "traces" / "task-0.json").write_text(content)
    with pytest.raises(TurnsError, match=r"task-0\.json"):
        read_turns([path], tmp_path)


def test_a_missing_trace_is_named(tmp_path: Path) -> None:
    path = record(tmp_path, [[ids([1], [2])]])
    (tmp_path / "traces" / "task-0.json").unlink()
    with pytest.raises(TurnsError, match=r"task-0\.json.*held\.jsonl"):
        read_turns([path], tmp_path)


def test_the_choice_depends_on_the_keys_alone() -> None:
    turns = [Turn(f"s/t-{number}/0/0", (1,), (2,)) for number in range(40)]
    shuffled = random.Random(3).sample(turns, len(turns))
    assert choose_turns(turns, 10) == choose_turns(shuffled, 10)
    assert len(choose_turns(turns, 10)) == 10
    assert choose_turns(turns, 99) == sorted(turns, key=lambda turn: turn.key)
    assert set(choose_turns(turns, 5)) <= set(choose_turns(turns, 6))


# --- the real thing -------------------------------------------------------------------------------------------------


def convert(*arguments: object) -> int:
    from scripts.convert_gguf import main

    return main([str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with base, adapter, another adapter, their GGUF files and recorded turns."""
    pytest.importorskip("torch")
    pytest.importorskip("peft")
    if not LLAMA_CPP.exists():
        pytest.skip("the environment gguf is not built")
    folder = tmp_path_factory.mktemp("fidelity")
    tiny_model.save_model(folder / "base")
    random_policy.adapter(folder / "base", folder / "adapter", scale=0.2)
    random_policy.adapter(folder / "base", folder / "other", scale=0.2, seed=9)
    known = ("--base", folder / "base", "--pre-tokenizer", "qwen2", "--name", "tiny")
    assert convert(*known, "--out", folder / "gguf" / "base-F16.gguf", "--log", folder / "log") == 0
    adapter = ("--adapter", folder / "adapter", "--base-id", "owner/tiny", "--log", folder / "log")
    assert convert(*known, *adapter, "--out", folder / "gguf" / "adapter-F16.gguf") == 0

    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder / "base")
    draw = random.Random(5)
    traces = []
    for number in range(TURNS):
        # One prompt is longer than a batch of llama.cpp's, so that a reply starts in the second.
        text = "user the mean of sales <tool_call> 123 été\n" * (40 if number == 0 else 1 + number)
        prompt = tokenizer(text, add_special_tokens=False)["input_ids"]
        traces.append([ids(prompt, [draw.randrange(3, 300) for _ in range(4 + number)])])
    record(folder / "out", traces)
    return folder


def measure(files: Path, out: Path, adapter: str = "adapter") -> int:
    from scripts.measure_fidelity import main

    arguments = ["--base", files / "base", "--adapter", files / adapter, "--attempts", files / "out" / "held.jsonl"]
    arguments += ["--base-gguf", files / "gguf" / "base-F16.gguf"]
    arguments += ["--adapter-gguf", files / "gguf" / "adapter-F16.gguf", "--outdir", files / "out"]
    arguments += ["--gguf-python", GGUF_PYTHON, "--threads", 1, "--out", out, "--log", out.with_suffix(".log")]
    return main([str(argument) for argument in arguments])


@pytest.mark.engine
def test_conversion_leaves_nothing_beside_its_files_and_no_path_in_them(files: Path) -> None:
    names = ["adapter-F16.gguf", "base-F16.gguf"]
    assert sorted(path.name for path in (files / "gguf").iterdir()) == names
    for name in names:
        data = (files / "gguf" / name).read_bytes()
        assert data[:4] == b"GGUF"
        assert str(files).encode() not in data
    base = (files / "gguf" / "base-F16.gguf").read_bytes()
    assert b"owner/tiny" in (files / "gguf" / "adapter-F16.gguf").read_bytes()
    assert b"{%- if true %}" in base
    assert b"generation %}" not in base


@pytest.mark.engine
def test_a_tokenizer_that_the_converter_does_not_know_is_an_error_with_the_fix(
    files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "qwen2" in known_pre_tokenizers(LLAMA_CPP)
    assert convert("--base", files / "base", "--out", tmp_path / "x.gguf", "--name", "my-model") == 1
    message = capsys.readouterr().err
    assert "my-model" in message
    assert "gguf.pre_tokenizer" in message
    assert not (tmp_path / "x.gguf").exists()


@pytest.mark.engine
def test_a_refused_adapter_is_not_converted(files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path in (files / "adapter").iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    config = json.loads((tmp_path / "adapter_config.json").read_text())
    (tmp_path / "adapter_config.json").write_text(json.dumps({**config, "use_rslora": True}))
    assert convert("--base", files / "base", "--adapter", tmp_path, "--out", tmp_path / "x.gguf") == 1
    assert "use_rslora" in capsys.readouterr().err


@pytest.mark.engine
def test_the_gguf_files_are_what_was_evaluated_and_the_adapter_counts(files: Path, tmp_path: Path) -> None:
    assert measure(files, tmp_path / "fidelity.json") == 0
    found = json.loads((tmp_path / "fidelity.json").read_text())
    assert found["turns"] == TURNS
    assert found["tokens"] == sum(4 + number for number in range(TURNS))
    assert found["scale_1"]["kl_mean"] < 1e-3
    assert found["scale_1"]["top1_agreement"] > 0.9
    assert found["scale_0"]["kl_mean"] > 100 * found["scale_1"]["kl_mean"]
    assert found["tokenization"] == {"texts": TURNS, "same": TURNS}
    assert [file["name"] for file in found["files"]] == ["base-F16.gguf", "adapter-F16.gguf"]
    assert set(found["versions"]) == {"llama-cpp-python", "llama.cpp"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fidelity.json", "fidelity.log"]


@pytest.mark.engine
def test_files_of_another_adapter_are_refused(files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert measure(files, tmp_path / "fidelity.json", adapter="other") == 1
    assert "not applied, or not this one" in capsys.readouterr().err
    assert not (tmp_path / "fidelity.json").exists()
