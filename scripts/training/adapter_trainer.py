"""TRL's AsyncGRPOTrainer with what a job of ours adds: adapters only, checked on arrival, recorded, resumable."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import requests
from datasets import Dataset
from peft import LoraConfig
from transformers import AutoTokenizer
from trl.chat_template_utils import qwen3_5_template
from trl.experimental.async_grpo import AsyncGRPOConfig, AsyncGRPOTrainer
from trl.experimental.async_grpo.async_grpo_trainer import validate_lora_for_vllm_sync

from scripts.rollout.client import RolloutClient
from scripts.rollout.engine import ALIAS, GATE_PROMPT, MOVED, AdapterNotServed, has_effect
from scripts.training.harness_worker import ROLLOUT_ID, HarnessWorker
from scripts.training.plan import Plan
from scripts.training.rollout_session import SessionFactory
from scripts.training.step_recorder import StepRecorder
from scripts.training.work_folder import mark_complete

ADAPTER = "policy-adapter"
"""Adapters are served as ``policy-adapter-v<n>``; the job owns its engine, so the names are never used twice."""
ROLLOUT_STATE = "rollout_state.json"


class MergedWeights(RuntimeError):
    """The engine cannot take what is trained as an adapter; merged weights are not what is measured and published."""


class AdapterTrainer(AsyncGRPOTrainer):
    """One process's trainer.

    :param plan: the job.
    :param worker: on the main process, the rollout worker.
    :param recorder: on the main process, the record of steps.
    """

    def __init__(self, plan: Plan, worker: HarnessWorker, recorder: StepRecorder) -> None:
        self.plan, self.recorder = plan, recorder
        lora = plan.job.training.lora
        tokenizer = load_tokenizer(plan.base)
        super().__init__(
            model=str(plan.base),
            args=trainer_config(plan),
            train_dataset=dataset(plan),
            processing_class=tokenizer,
            peft_config=LoraConfig(
                r=lora.rank,
                lora_alpha=lora.alpha,
                lora_dropout=lora.dropout,
                target_modules=lora.target_modules,
                task_type="CAUSAL_LM",
            ),
            rollout_worker=worker,
        )
        self._lora_name = ADAPTER
        self._unmoved = 0
        self._base_logprobs: dict[str, float] | None = None
        if self.accelerator.is_main_process:
            worker.watch = recorder.check_progress
        print(f"adapter-only sync: every version is served as {ADAPTER}-v<n>", flush=True)

    def _init_lora_sync(self, model: Any) -> bool:
        """Adapters alone, or an error.

        TRL would ask the engine whether it takes adapters, and quietly send merged weights if not. This job started the
        engine itself, with enough slots; so only what is trained can be at fault, and then nothing should be trained.
        """
        self.vllm_client.wait_for_server_ready()
        try:
            validate_lora_for_vllm_sync(model)
        except ValueError as error:
            raise MergedWeights(f"training.lora: {str(error).split(' Sync merged')[0]}") from None
        return True

    def get_train_dataloader(self) -> Any:
        """TRL's loader, which now tells the recorder which rollouts each micro-batch holds."""
        loader = super().get_train_dataloader()
        if self.accelerator.is_main_process:
            collator: Any = loader.collate_fn
            log_metrics = collator._log_metrics

            def record_and_log(rows: Any, all_examples: Any, padded: Any) -> None:
                self.recorder.packed(
                    [(example["metrics"].pop(ROLLOUT_ID), example["advantage"]) for example in all_examples]
                )
                log_metrics(rows=rows, all_examples=all_examples, padded=padded)

            collator._log_metrics = record_and_log
        return loader

    def training_step(self, *args: Any, **kwargs: Any) -> Any:
        """One micro-batch."""
        loss = super().training_step(*args, **kwargs)
        if self.accelerator.is_main_process:
            self.recorder.trained()
        return loss

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Log as TRL does, and record the step."""
        super().log(logs, start_time)
        if self.accelerator.is_main_process and "loss" in logs:
            self.recorder.write(self.state.global_step, logs)

    def _sync_weight(self) -> None:
        # A version's number is the optimizer steps behind it, plus one, in a resumed run as well.
        self.model_version = self.state.global_step
        super()._sync_weight()
        if self.accelerator.is_main_process:
            self._check_arrival(f"{ADAPTER}-v{self.model_version}")

    def _check_arrival(self, name: str) -> None:
        """Make sure that the engine lists the adapter, and that it answers otherwise than the base model.

        In half precision a first small step may be rounded away, so there it may take a few.
        """
        served = [model["id"] for model in self._engine("GET", "/v1/models")["data"]]
        if name not in served:
            raise AdapterNotServed(f"adapter {name} was loaded, but the engine lists only {', '.join(served)}")
        if self._base_logprobs is None:
            self._base_logprobs = self._next_logprobs(ALIAS)
        if not has_effect(Path(self._lora_dir) / name):
            return
        moved = has_moved(self._base_logprobs, self._next_logprobs(name))
        self._unmoved = 0 if moved else self._unmoved + 1
        if self._unmoved >= (1 if self.plan.job.serving.dtype == "float32" else 5):
            raise AdapterNotServed(
                f"adapter {name} is listed, but the engine answers exactly like the base model; it does not apply "
                "LoRA to this architecture or to these target modules"
            )

    def _next_logprobs(self, model: str) -> dict[str, float]:
        """Log-probabilities of the likeliest tokens after a fixed prompt.

        Rollouts go on meanwhile, and vLLM on CPUs dies of ``prompt_logprobs`` with an adapter in a mixed batch; the
        next token's are those that every rollout asks for.
        """
        body = {"model": model, "prompt": GATE_PROMPT, "max_tokens": 1, "temperature": 1.0, "logprobs": 20}
        return dict(self._engine("POST", "/v1/completions", body)["choices"][0]["logprobs"]["top_logprobs"][0])

    def _engine(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        response = requests.request(method, self.plan.engine_url + path, json=body, timeout=600)
        response.raise_for_status()
        return response.json()

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        super()._save_checkpoint(model, trial)
        self.accelerator.wait_for_everyone()
        if self.accelerator.is_main_process:
            mark_complete(
                Path(self._get_output_dir(trial=trial)) / f"checkpoint-{self.state.global_step}", self.state.global_step
            )


def has_moved(before: dict[str, float], after: dict[str, float]) -> bool:
    """Whether two models answer differently: another token among the likeliest, or another log-probability of one."""
    return before.keys() != after.keys() or any(abs(before[key] - after[key]) > MOVED for key in before)


def trainer_config(plan: Plan) -> AsyncGRPOConfig:
    """TRL's settings for the job."""
    job, training = plan.job, plan.job.training
    return AsyncGRPOConfig(
        output_dir=str(plan.folder),
        use_cpu=job.hardware == "cpu",
        bf16=job.hardware == "cuda" and job.serving.dtype == "bfloat16",
        fp16=job.hardware == "cuda" and job.serving.dtype == "float16",
        dtype=job.serving.dtype,
        seed=job.seed,
        max_steps=training.steps,
        learning_rate=training.learning_rate,
        per_device_train_batch_size=1,
        gradient_accumulation_steps=training.microbatches,
        token_budget=training.token_budget,
        gradient_checkpointing=training.gradient_checkpointing,
        num_generations=training.rollouts_per_task,
        temperature=job.rollout.temperature,
        top_p=job.rollout.top_p,
        top_k=job.rollout.top_k,
        max_completion_length=job.rollout.max_output_tokens,
        max_staleness=training.max_staleness,
        max_inflight_tasks=training.concurrency,
        vllm_server_base_url=plan.engine_url,
        vllm_server_timeout=job.engine.start_timeout_s,
        heartbeat_stale_after_s=max(300.0, training.no_progress_timeout_s),
        save_strategy="steps",
        save_steps=training.checkpoint_every,
        logging_steps=1,
        report_to="none",
        disable_tqdm=True,
    )


def dataset(plan: Plan) -> Dataset:
    """TRL's dataset: a prompt names a task as ``suite/task_id``; the agent gets its text from the task's own files."""
    names = [f"{task.suite}/{task.task_id}" for task in plan.tasks]
    return Dataset.from_list([{"prompt": [{"role": "user", "content": name}]} for name in names])


def load_tokenizer(base: Path) -> Any:
    """The policy's tokenizer.

    TRL's worker wants to know how to parse replies, even where the agent's own loop does it and nothing is ever parsed
    here; a template that TRL does not know would be refused, so one that is never used is named.
    """
    tokenizer = AutoTokenizer.from_pretrained(str(base))
    if getattr(tokenizer, "response_template", None) is None and getattr(tokenizer, "response_schema", None) is None:
        tokenizer.response_template = qwen3_5_template
    return tokenizer


def make_worker(plan: Plan) -> HarnessWorker:
    """The rollout worker; with the trainer's own sampling, which it passes to every session."""
    job, training = plan.job, plan.job.training
    tokenizer = load_tokenizer(plan.base)
    start = json.loads((plan.resume / ROLLOUT_STATE).read_text())["prompt_index"] if plan.resume else 0
    return HarnessWorker(
        hardware=job.hardware,
        harness_session_factory=functools.partial(
            SessionFactory,
            functools.partial(RolloutClient, plan.server_url, job.harness, job.sandbox, job.rollout),
            plan.suites,
            training,
            plan.rollouts,
        ),
        model_name=ALIAS,
        lora_name=ADAPTER,
        dataset=dataset(plan),
        dataset_start_index=start,
        reward_funcs=[],
        processing_class=tokenizer,
        eos_token_ids=[tokenizer.eos_token_id],
        num_generations=training.rollouts_per_task,
        max_inflight_tasks=training.concurrency,
        queue_maxsize=1024,
        vllm_server_url=plan.engine_url,
        max_tokens=job.rollout.max_output_tokens,
        temperature=job.rollout.temperature,
        top_p=job.rollout.top_p,
        top_k=job.rollout.top_k,
    )
