"""Settings of single jobs: the narrow part of a study's config that a job depends on.

A rule passes its job's settings as one ``param``, so a changed key reruns the jobs that use it and no other.
A program takes them with ``--settings``, as JSON text or as a file that holds it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import ValidationError

from scripts.study.config import (
    ConfigError,
    DemoPolicy,
    Engine,
    Evaluation,
    Rollout,
    Sandbox,
    Section,
    Study,
    Training,
    explain,
)

Job = TypeVar("Job", bound=Section)


class Serving(Section):
    """What the engine must know of the policy."""

    dtype: Literal["float32", "bfloat16", "float16"]
    enable_thinking: bool | None = None


class Sampling(Section):
    """Sampling that the model's own generation config asks for."""

    temperature: float
    top_p: float
    top_k: int


class PolicyJob(Section):
    """Settings of ``scripts.build_policy`` (source ``demo``) and ``scripts.fetch_policy`` (``hub`` and ``path``)."""

    source: Literal["demo", "hub", "path"]
    hub_id: str
    revision: str | None = None
    path: str | None = None
    chat_template: str | None = None
    license: str
    license_name: str | None = None
    license_link: str | None = None
    demo: DemoPolicy | None = None
    seed: int | None = None
    sampling: Sampling | None = None


class TrainJob(Section):
    """Settings of ``scripts.train_adapter``."""

    harness: str
    seed: int
    hardware: Literal["cpu", "cuda"]
    serving: Serving
    engine: Engine
    sandbox: Sandbox
    rollout: Rollout
    training: Training


class EvaluateJob(Section):
    """Settings of ``scripts.evaluate_policy``; the limit on concurrency is no part of a result's identity."""

    harness: str
    seed: int
    hardware: Literal["cpu", "cuda"]
    serving: Serving
    engine: Engine
    sandbox: Sandbox
    rollout: Rollout
    evaluation: Evaluation


def serving(study: Study) -> Serving:
    """The part of the policy's config that serving depends on."""
    return Serving(dtype=study.policy.dtype, enable_thinking=study.policy.enable_thinking)


def policy_job(study: Study) -> PolicyJob:
    """Settings of the job that makes the base model; recipe, seed and sampling matter to a demo policy only."""
    policy, rollout = study.policy, study.rollout
    demo = policy.source == "demo"
    return PolicyJob(
        source=policy.source,
        hub_id=policy.hub_id,
        revision=policy.revision,
        path=policy.path,
        chat_template=policy.chat_template,
        license=policy.license,
        license_name=policy.license_name,
        license_link=policy.license_link,
        demo=policy.demo if demo else None,
        seed=study.seed if demo else None,
        sampling=Sampling(temperature=rollout.temperature, top_p=rollout.top_p, top_k=rollout.top_k) if demo else None,
    )


def train_job(study: Study, harness: str) -> TrainJob:
    """Settings of the training run for one harness."""
    return TrainJob(
        harness=harness,
        seed=study.seed,
        hardware=study.hardware,
        serving=serving(study),
        engine=study.engine,
        sandbox=study.sandbox,
        rollout=study.rollout,
        training=study.training,
    )


def evaluate_job(study: Study, harness: str) -> EvaluateJob:
    """Settings of every evaluation under one harness."""
    return EvaluateJob(
        harness=harness,
        seed=study.seed,
        hardware=study.hardware,
        serving=serving(study),
        engine=study.engine,
        sandbox=study.sandbox,
        rollout=study.rollout,
        evaluation=study.evaluation,
    )


# What an evaluation can be given without another result: whether it fits the machine, and how soon it is done.
RUNNING = {
    "engine": {"start_timeout_s", "kv_cache_gib", "gpu_memory_utilization", "max_num_seqs", "max_lora_rank"},
    "sandbox": {"preflight_tasks"},
    "evaluation": {"concurrency", "retries", "gpus"},
}


# The same of a training, which may resume after a change of these: often the very remedy for what stopped it.
TRAIN_RUNNING = {
    "engine": {"start_timeout_s", "kv_cache_gib", "gpu_memory_utilization", "max_num_seqs", "max_lora_rank"},
    "sandbox": {"preflight_tasks"},
    "training": {"concurrency", "no_progress_timeout_s", "threads"},
}


def train_settings(study: Study, harness: str) -> str:
    """The part of a training's settings that its adapter depends on, as JSON: a change of it trains anew."""
    return train_job(study, harness).model_dump_json(exclude=TRAIN_RUNNING)  # type: ignore[arg-type]


def train_running(study: Study) -> str:
    """The other part (:data:`TRAIN_RUNNING`), as JSON: a change of it reruns nothing."""
    return train_job(study, study.harnesses[0]).model_dump_json(include=TRAIN_RUNNING)  # type: ignore[arg-type]


def evaluate_settings(study: Study, harness: str) -> str:
    """The part of an evaluation's settings that its results depend on, as JSON: a change of it measures anew."""
    return evaluate_job(study, harness).model_dump_json(exclude=RUNNING)  # type: ignore[arg-type]


def evaluate_running(study: Study) -> str:
    """The other part (:data:`RUNNING`), as JSON: a change of it reruns nothing."""
    return evaluate_job(study, study.harnesses[0]).model_dump_json(include=RUNNING)  # type: ignore[arg-type]


def read_train_job(settings: str, running: str = "{}") -> TrainJob:
    """Settings of a training from its two parts; ``settings`` may hold all of them.

    :param settings: JSON or a file with it.
    :param running: the same, of the keys in :data:`TRAIN_RUNNING` alone.
    :raises ConfigError: one line per fault, naming the key.
    """
    return _read_parts(TrainJob, settings, running, TRAIN_RUNNING)


def read_evaluate_job(settings: str, running: str = "{}") -> EvaluateJob:
    """Settings of an evaluation from its two parts; ``settings`` may hold all of them.

    :param settings: JSON or a file with it.
    :param running: the same, of the keys in :data:`RUNNING` alone.
    :raises ConfigError: one line per fault, naming the key.
    """
    return _read_parts(EvaluateJob, settings, running, RUNNING)


def _read_parts(model: type[Job], settings: str, running: str, only_running: dict[str, set[str]]) -> Job:
    """A job's settings from their two parts."""
    merged = _json("--settings", settings)
    for section, values in _json("--running", running).items():
        unknown = sorted(set(values) - only_running.get(section, set())) if isinstance(values, dict) else [""]
        if unknown:
            raise ConfigError(f"--running: {section}.{unknown[0]}: belongs into --settings")
        merged[section] = {**merged.get(section, {}), **values}
    return read_settings(model, json.dumps(merged))


def _json(option: str, text: str) -> dict[str, Any]:
    """The object that an option gives, as JSON or in a file."""
    source = text
    try:
        if not text.lstrip().startswith("{"):
            text = Path(text).read_text()
        value = json.loads(text)
    except OSError as error:
        raise ConfigError(f"{option} {source}: {error.strerror}; give JSON or an existing file") from None
    except ValueError as error:
        raise ConfigError(f"{option}: not JSON: {error}") from None
    if not isinstance(value, dict):
        raise ConfigError(f"{option}: give a JSON object")
    return value


def read_settings(model: type[Job], text: str) -> Job:
    """Parse ``--settings``.

    :param model: the job's class.
    :param text: JSON, or the path of a file that holds it.
    :raises ConfigError: one line per fault, naming the key.
    """
    source = "--settings"
    if not text.lstrip().startswith("{"):
        source = text
        try:
            text = Path(text).read_text()
        except OSError as error:
            raise ConfigError(f"--settings {source}: {error.strerror}; give JSON or an existing file") from None
    try:
        return model.model_validate_json(text)
    except ValidationError as error:
        raise ConfigError(explain(error, source)) from None
