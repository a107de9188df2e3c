"""The engine: vLLM, owned by the job that uses it, on a free port of the loopback.

It serves the base model under the constant alias ``policy`` and adapters under names that are never used twice, since
vLLM would reuse cached prefix blocks of the old weights. Sampling is no business of its flags: the rollout server's
capture proxy sends temperature and all else with each request.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
import urllib.error
import urllib.request
from importlib import metadata
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from scripts.rollout.processes import OwnedProcess, free_port
from scripts.study.config import Engine as EngineConfig
from scripts.study.jobs import Serving

ALIAS = "policy"
"""Name of the base model at the engine, and the only model name that an agent ever sees."""
MOVED = 1e-6
"""Smallest change of a log-probability, in nats, that counts as an adapter's effect; equal runs give equal numbers."""
GATE_PROMPT = "Sum the amounts per region in sales.csv and write the largest one to answer.txt, then say what you did."

_ROOT = Path(__file__).resolve().parents[2]
_PLUGIN = Path(__file__).resolve().parent / "vllm_plugin"
_LORA_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class EngineDied(RuntimeError):
    """The engine ended or never became ready; the message holds the last lines of its log."""


class AdapterNotServed(RuntimeError):
    """The engine does not serve that adapter, whatever it says."""


class Engine:
    """vLLM as a context manager.

    :param engine: how it serves.
    :param serving: what it must know of the policy.
    :param hardware: ``cpu`` or ``cuda``.
    :param model_dir: folder of the base model in Hugging Face's layout.
    :param log: file for the engine's output.
    :param adapter_slots: adapters that may be loaded at once.
    :param training: open the endpoints through which a trainer pauses the engine and reads its config.
    """

    def __init__(
        self,
        engine: EngineConfig,
        serving: Serving,
        hardware: Literal["cpu", "cuda"],
        model_dir: Path,
        log: Path,
        adapter_slots: int = 2,
        training: bool = False,
    ) -> None:
        if not (Path(model_dir) / "config.json").is_file():
            raise FileNotFoundError(f"{model_dir}: no config.json; the engine needs the folder of the base model")
        self.config = engine
        self.hardware = hardware
        self.model_dir = Path(model_dir)
        self.served_name = ALIAS
        self.version = metadata.version("vllm")
        self.flags = serve_flags(engine, serving, hardware, adapter_slots)
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._names: set[str] = set()
        self._base: list[float] | None = None
        listen = ["--host", "127.0.0.1", "--port", str(self.port), "--disable-uvicorn-access-log"]
        self._process = OwnedProcess(
            [sys.executable, "-m", "vllm.entrypoints.cli.main", "serve", str(self.model_dir), *listen, *self.flags],
            log=log,
            env=environment(hardware, training),
            name="vllm",
            grace_s=10.0,
        )

    def describe(self) -> dict[str, Any]:
        """What measured: name, version and the flags that shape results (neither port nor paths)."""
        return {"name": "vllm", "version": self.version, "flags": list(self.flags)}

    def __enter__(self) -> Engine:
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
        """Raise :class:`EngineDied` if the process ended or says that its core is dead; a slow answer is no death."""
        if not self._process.alive:
            raise EngineDied(self._epitaph(f"vllm ended with status {self._process.poll()}"))
        try:
            self._request("GET", "/health", timeout=30)
        except EngineError as error:
            if error.status == 503:
                raise EngineDied(self._epitaph("vllm says that its core is dead")) from None
            if not self._process.alive:
                raise EngineDied(self._epitaph(f"vllm ended with status {self._process.poll()}")) from None

    def models(self) -> list[str]:
        """Names that the engine serves."""
        return [str(model["id"]) for model in self._request("GET", "/v1/models", timeout=60)["data"]]

    def load_adapter(self, name: str, path: Path) -> None:
        """Load an adapter and make sure that it is served.

        :param name: a name that was never used on this engine.
        :param path: folder with adapter_config.json and adapter_model.safetensors.
        :raises AdapterNotServed: refused, not listed, or without effect although its tensors have one.
        """
        if name in self._names or name == ALIAS:
            raise ValueError(f"adapter name {name!r} was used before; give each version a name of its own")
        self._names.add(name)
        path = Path(path).resolve()
        effective = has_effect(path)
        if self._base is None:
            self._base = self.prompt_logprobs(ALIAS)
        try:
            self._request("POST", "/v1/load_lora_adapter", {"lora_name": name, "lora_path": str(path)}, timeout=600)
        except EngineError as error:
            raise AdapterNotServed(f"{path}: the engine refused adapter {name!r}: {error}") from None
        if name not in self.models():
            raise AdapterNotServed(f"{path}: the engine took adapter {name!r} but does not list it in /v1/models")
        moved = largest_move(self._base, self.prompt_logprobs(name))
        if effective and not moved > MOVED:
            raise AdapterNotServed(
                f"{path}: adapter {name!r} is listed, but the engine answers exactly like the base model; "
                "this architecture or a target module is not served with LoRA"
            )

    def unload_adapter(self, name: str) -> None:
        """Free the slot of a loaded adapter; its name stays used."""
        self._request("POST", "/v1/unload_lora_adapter", {"lora_name": name}, timeout=60)

    def prompt_logprobs(self, model: str, prompt: str | list[int] = GATE_PROMPT) -> list[float]:
        """Log-probabilities in nats of the prompt's tokens but the first, at temperature 1.

        :param model: name at the engine.
        :param prompt: text, which the engine tokenises, or token ids.
        """
        return [value for _, value in self.scored_prompt(model, prompt)]

    def scored_prompt(self, model: str, prompt: str | list[int] = GATE_PROMPT) -> list[tuple[int, float]]:
        """Token ids of the prompt but the first, each with its log-probability in nats."""
        body = {"model": model, "prompt": prompt, "max_tokens": 1, "temperature": 1.0, "prompt_logprobs": 0}
        answer = self._request("POST", "/v1/completions", body, timeout=120)
        scored: list[tuple[int, float]] = []
        for entry in answer["choices"][0]["prompt_logprobs"][1:]:
            token, info = next(iter(entry.items()))
            scored.append((int(token), float(info["logprob"])))
        return scored

    def tokenize(self, model: str, prompt: str) -> list[int]:
        """Token ids that the engine makes of a text."""
        answer = self._request("POST", "/tokenize", {"model": model, "prompt": prompt}, timeout=60)
        return [int(token) for token in answer["tokens"]]

    def _wait_until_ready(self) -> None:
        started = time.monotonic()
        said = started
        limit = self.config.start_timeout_s
        while True:
            if not self._process.alive:
                raise EngineDied(self._epitaph(f"vllm ended with status {self._process.poll()} while it started"))
            try:
                self._request("GET", "/health", timeout=5)
                break
            except EngineError:
                pass
            now = time.monotonic()
            if now - started > limit:
                raise EngineDied(self._epitaph(f"vllm was not ready after {limit:.0f} s (engine.start_timeout_s)"))
            if now - said > 5:
                said = now
                _say(f"engine: starting, {now - started:.0f} s of at most {limit:.0f} s")
            time.sleep(0.3)
        _say(f"engine: vllm {self.version} ready after {time.monotonic() - started:.0f} s at {self.url}")

    def _epitaph(self, what: str) -> str:
        return f"{what}; last lines of {self._process.log}:\n{self._process.tail(25)}"

    def _request(self, method: str, path: str, body: dict[str, Any] | None = None, timeout: float = 30) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json"}, method=method)
        try:
            with _opener.open(request, timeout=timeout) as response:
                text = response.read()
        except urllib.error.HTTPError as error:
            raise EngineError(error.code, error.read().decode(errors="replace")[:600]) from None
        except OSError as error:
            raise EngineError(None, str(error)) from None
        try:
            return json.loads(text)
        except ValueError:
            return text.decode(errors="replace")


class EngineError(RuntimeError):
    """A request failed; ``status`` is the HTTP status, or None if there was no answer."""

    def __init__(self, status: int | None, message: str) -> None:
        self.status = status
        super().__init__(message if status is None else f"HTTP {status}: {message}")


def serve_flags(engine: EngineConfig, serving: Serving, hardware: str, adapter_slots: int) -> list[str]:
    """Arguments of ``vllm serve`` that shape results, word by word."""
    rank = next((known for known in _LORA_RANKS if known >= engine.max_lora_rank), None)
    if rank is None:
        raise ValueError(f"engine.max_lora_rank {engine.max_lora_rank}: vLLM serves ranks up to {_LORA_RANKS[-1]}")
    flags = ["--served-model-name", ALIAS, "--dtype", serving.dtype, "--max-model-len", str(engine.max_model_len)]
    flags += ["--max-num-seqs", str(engine.max_num_seqs), "--enable-prefix-caching"]
    flags += ["--enable-lora", "--max-lora-rank", str(rank)]
    flags += ["--max-loras", str(adapter_slots), "--max-cpu-loras", str(adapter_slots)]
    flags += ["--enable-auto-tool-choice", "--tool-call-parser", engine.tool_call_parser]
    if engine.reasoning_parser:
        flags += ["--reasoning-parser", engine.reasoning_parser]
    # Token ids beside the log-probabilities let the capture proxy check their pairing; processed means after
    # temperature, which is what the trainer recomputes.
    flags += ["--return-tokens-as-token-ids", "--logprobs-mode", "processed_logprobs"]
    if engine.enforce_eager:
        flags.append("--enforce-eager")
    if engine.kv_cache_gib is not None:
        flags += ["--kv-cache-memory-bytes", str(math.ceil(engine.kv_cache_gib * 2**30))]
    if hardware == "cuda":
        flags += ["--tensor-parallel-size", str(engine.tensor_parallel)]
        if engine.gpu_memory_utilization is not None:
            flags += ["--gpu-memory-utilization", str(engine.gpu_memory_utilization)]
    return [*flags, *engine.extra_args]


def environment(hardware: str, training: bool) -> dict[str, str]:
    """Environment of the engine: the caller's, offline, with what LoRA and few cores need."""
    env = {
        **os.environ,
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1",
        "VLLM_SERVER_DEV_MODE": "1" if training else "0",
    }
    if hardware == "cpu":
        paths = [str(_PLUGIN), str(_ROOT), os.environ.get("PYTHONPATH", "")]
        env |= {
            "PYTHONPATH": os.pathsep.join(path for path in paths if path),
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            "OMP_NUM_THREADS": "1",
            "OMP_WAIT_POLICY": "passive",
        }
    return env


def has_effect(adapter: Path) -> bool:
    """Whether a LoRA adapter changes its base: some ``lora_B`` is not all zeros.

    :raises FileNotFoundError: no adapter_model.safetensors in the folder.
    """
    from safetensors import safe_open

    path = adapter / "adapter_model.safetensors"
    if not path.is_file():
        raise FileNotFoundError(f"{adapter}: no adapter_model.safetensors; give the folder of a saved adapter")
    with safe_open(str(path), framework="pt") as tensors:
        return any(bool(tensors.get_tensor(name).any()) for name in tensors.keys() if "lora_B" in name)  # noqa: SIM118


def largest_move(before: list[float], after: list[float]) -> float:
    """Largest absolute difference of two lists of the same length."""
    if len(before) != len(after):
        raise AdapterNotServed(f"the engine tokenises the fixed prompt to {len(before)} and to {len(after)} tokens")
    return max((abs(one - other) for one, other in zip(before, after, strict=True)), default=0.0)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
