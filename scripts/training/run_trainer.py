"""The trainer's process: ``python -m scripts.training.run_trainer PLAN``, started by ``scripts.train_adapter``.

Several of them run under ``torch.distributed.run`` where ``training.gpus`` is above 1; the first one has the worker.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
import traceback
from pathlib import Path

from scripts.training.plan import Plan


def main(argv: list[str] | None = None) -> int:
    """Train as the plan says, from its checkpoint on; leave the reason in the plan's failure file if that fails."""
    (path,) = sys.argv[1:] if argv is None else argv
    plan = Plan.model_validate_json(Path(path).read_text())
    try:
        train(plan)
    except Exception as error:
        traceback.print_exc()
        plan.failure.write_text(reason(error) + "\n")
        return 1
    return 0


def train(plan: Plan) -> None:
    """Build worker and trainer while the engine starts, and train once it and the rollout server are ready."""
    import torch

    from scripts.training import cpu_patches
    from scripts.training.adapter_trainer import AdapterTrainer, make_worker
    from scripts.training.devices import DeviceError
    from scripts.training.step_recorder import StepRecorder

    if plan.job.hardware == "cpu":
        torch.set_num_threads(plan.job.training.threads)
    elif torch.cuda.device_count() != plan.job.training.gpus:
        raise DeviceError(f"the trainer expected {plan.job.training.gpus} GPUs, torch sees {torch.cuda.device_count()}")
    cpu_patches.apply(plan.job.hardware)
    shutil.rmtree(plan.folder / ".vllm_lora", ignore_errors=True)
    recorder = StepRecorder(plan)
    worker = make_worker(plan)
    try:
        if int(os.environ.get("RANK", "0")) == 0:
            worker.start_early()
        trainer = AdapterTrainer(plan, worker, recorder)
        while not plan.ready.exists():
            time.sleep(0.1)
        recorder.begin()
        trainer.train(resume_from_checkpoint=str(plan.resume) if plan.resume else None)
    finally:
        worker.stop()


def reason(error: BaseException) -> str:
    """The innermost cause in one line; a failure of the worker's process carries its own traceback, which is cut."""
    while error.__cause__ is not None:
        error = error.__cause__
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no message'}"


if __name__ == "__main__":
    raise SystemExit(main())
