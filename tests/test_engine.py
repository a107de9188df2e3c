"""Flags and environment of the engine, and the real engine with real adapters."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from scripts.rollout.engine import ALIAS, AdapterNotServed, EngineDied, environment, largest_move, serve_flags
from scripts.study.config import Engine as EngineConfig
from scripts.study.jobs import Serving

ROOT = Path(__file__).resolve().parent.parent
SETTINGS = EngineConfig(max_model_len=2048)
FLOAT = Serving(dtype="float32")


def value_of(flags: list[str], name: str) -> str:
    return flags[flags.index(name) + 1]


def test_flags_on_a_cpu() -> None:
    flags = serve_flags(EngineConfig(max_lora_rank=20, kv_cache_gib=0.5, extra_args=["--seed", "3"]), FLOAT, "cpu", 6)
    assert value_of(flags, "--served-model-name") == ALIAS
    assert value_of(flags, "--max-lora-rank") == "32"
    assert value_of(flags, "--max-loras") == value_of(flags, "--max-cpu-loras") == "6"
    assert value_of(flags, "--kv-cache-memory-bytes") == str(2**29)
    assert value_of(flags, "--logprobs-mode") == "processed_logprobs"
    assert "--return-tokens-as-token-ids" in flags
    assert "--tensor-parallel-size" not in flags
    assert "--reasoning-parser" not in flags
    assert flags[-2:] == ["--seed", "3"]


def test_flags_on_gpus() -> None:
    gpu = EngineConfig(
        tensor_parallel=2, gpu_memory_utilization=0.5, kv_cache_gib=None, enforce_eager=False, reasoning_parser="qwen3"
    )
    flags = serve_flags(gpu, Serving(dtype="bfloat16"), "cuda", 2)
    assert value_of(flags, "--tensor-parallel-size") == "2"
    assert value_of(flags, "--gpu-memory-utilization") == "0.5"
    assert value_of(flags, "--reasoning-parser") == "qwen3"
    assert "--enforce-eager" not in flags
    assert "--kv-cache-memory-bytes" not in flags


def test_rank_beyond_vllm_is_refused() -> None:
    with pytest.raises(ValueError, match="max_lora_rank 1024"):
        serve_flags(EngineConfig(max_lora_rank=1024), FLOAT, "cpu", 2)


def test_environment_rests_on_cpus_only_and_is_offline() -> None:
    cpu, gpu = environment("cpu", training=False), environment("cuda", training=True)
    assert "vllm_plugin" in cpu["PYTHONPATH"]
    assert cpu["OMP_NUM_THREADS"] == "1"
    assert "vllm_plugin" not in gpu.get("PYTHONPATH", "")
    assert (cpu["VLLM_SERVER_DEV_MODE"], gpu["VLLM_SERVER_DEV_MODE"]) == ("0", "1")
    assert cpu["HF_HUB_OFFLINE"] == gpu["HF_HUB_OFFLINE"] == "1"


def test_largest_move() -> None:
    assert largest_move([-1.0, -2.0], [-1.5, -2.25]) == 0.5
    with pytest.raises(AdapterNotServed):
        largest_move([-1.0], [-1.0, -2.0])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("torch")
    pytest.importorskip("vllm")
    from tests import random_policy

    folder = tmp_path_factory.mktemp("engine")
    random_policy.build(folder / "base")
    random_policy.adapter(folder / "base", folder / "strong", 0.05)
    random_policy.adapter(folder / "base", folder / "zero", 0.0)
    random_policy.adapter(folder / "base", folder / "other", 0.05, seed=7)
    return folder


@pytest.fixture(scope="module")
def engine(folder: Path):
    from scripts.rollout.engine import Engine

    with Engine(SETTINGS, FLOAT, "cpu", folder / "base", folder / "log", adapter_slots=3) as engine:
        yield engine


@pytest.mark.engine
def test_adapters_are_served_and_names_are_used_once(engine, folder: Path) -> None:
    engine.load_adapter("strong-1", folder / "strong")
    engine.load_adapter("zero-1", folder / "zero")
    assert set(engine.models()) == {ALIAS, "strong-1", "zero-1"}
    base = engine.prompt_logprobs(ALIAS)
    assert largest_move(base, engine.prompt_logprobs("strong-1")) > 0.1
    assert largest_move(base, engine.prompt_logprobs("zero-1")) == 0.0
    engine.unload_adapter("zero-1")
    assert "zero-1" not in engine.models()
    with pytest.raises(ValueError, match="used before"):
        engine.load_adapter("zero-1", folder / "zero")
    engine.check()


@pytest.mark.engine
def test_adapter_without_effect_on_the_engine_is_noticed(engine, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # What an engine that ignores LoRA does: it takes the adapter and answers like the base model.
    real = engine.scored_prompt
    monkeypatch.setattr(engine, "scored_prompt", lambda model, *rest: real(ALIAS, *rest))
    with pytest.raises(AdapterNotServed, match="exactly like the base model"):
        engine.load_adapter("ignored-1", folder / "other")
    engine.unload_adapter("ignored-1")


@pytest.mark.engine
def test_engine_agrees_with_peft(engine, folder: Path) -> None:
    from scripts.rollout.adapter_gate import engine_matches_reference

    engine.load_adapter("gate-1", folder / "other")
    base = engine_matches_reference(engine, folder / "base", None)
    assert base.engine_against_reference < 1e-3
    served = engine_matches_reference(engine, folder / "base", folder / "other", "gate-1")
    assert served.engine_against_reference < 1e-3 < 0.1 < served.adapter_effect
    with pytest.raises(AdapterNotServed, match="differ by"):
        engine_matches_reference(engine, folder / "base", folder / "strong", "gate-1")
    with pytest.raises(AdapterNotServed, match="differ by"):
        engine_matches_reference(engine, folder / "base", folder / "other", ALIAS)


@pytest.mark.engine
def test_refused_adapter_names_the_reason(engine, folder: Path, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"adapter_model\.safetensors"):
        engine.load_adapter("none-1", tmp_path)


@pytest.mark.engine
def test_processes_rest_while_they_wait(engine, folder: Path) -> None:
    from scripts.rollout.processes import descendants

    family = descendants(os.getpid())
    before = sum(cpu_ticks(pid) for pid in family)
    engine.prompt_logprobs(ALIAS)
    time.sleep(2)
    assert (folder / "log").read_text().count("calm_waiting: process") >= 2, "the plugin must reach core and worker"
    spent = (sum(cpu_ticks(pid) for pid in family) - before) / os.sysconf("SC_CLK_TCK")
    assert spent < 1.5, f"{spent:.1f} s of CPU in 2 idle seconds"


@pytest.mark.engine
def test_dead_core_is_noticed(engine, folder: Path) -> None:
    from scripts.rollout.processes import descendants

    core = [pid for pid in descendants(os.getpid()) if b"EngineCore" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    assert core
    os.kill(core[0], signal.SIGKILL)

    def wait() -> None:
        end = time.monotonic() + 30
        while time.monotonic() < end:
            engine.check()
            time.sleep(0.5)

    with pytest.raises(EngineDied, match="last lines of"):
        wait()


def cpu_ticks(pid: int) -> int:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return int(fields[11]) + int(fields[12])


OWNER = """
import sys, time
from pathlib import Path
from scripts.rollout.engine import Engine
from scripts.study.config import Engine as EngineConfig
from scripts.study.jobs import Serving
folder = Path(sys.argv[1])
with Engine(EngineConfig(max_model_len=2048), Serving(dtype="float32"), "cpu", folder / "base", folder / "owner-log"):
    print("ready", flush=True)
    time.sleep(600)
"""


@pytest.mark.engine
def test_nothing_of_the_engine_outlives_a_killed_owner(tmp_path: Path) -> None:
    pytest.importorskip("vllm")
    from scripts.rollout.processes import descendants, start_time
    from tests import random_policy

    random_policy.build(tmp_path / "base")
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    owner = subprocess.Popen([sys.executable, "-c", OWNER, str(tmp_path)], env=env, stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    assert owner.stdout.readline() == "ready\n"
    family = [(pid, start_time(pid)) for pid in descendants(owner.pid)]
    assert len(family) >= 4
    owner.kill()
    owner.wait()
    end = time.monotonic() + 20
    left = family
    while left and time.monotonic() < end:
        left = [(pid, started) for pid, started in left if start_time(pid) == started]
        time.sleep(0.2)
    assert left == []


@pytest.mark.engine
def test_engine_that_cannot_start_shows_its_log(tmp_path: Path) -> None:
    pytest.importorskip("vllm")
    from scripts.rollout.engine import Engine
    from tests import random_policy

    random_policy.build(tmp_path / "base")
    wrong = SETTINGS.model_copy(update={"tool_call_parser": "no-such-parser"})
    with (
        pytest.raises(EngineDied, match="no-such-parser"),
        Engine(wrong, FLOAT, "cpu", tmp_path / "base", tmp_path / "log"),
    ):
        pass
    with pytest.raises(FileNotFoundError, match="no config.json"):
        Engine(SETTINGS, FLOAT, "cpu", tmp_path / "nowhere", tmp_path / "log")
