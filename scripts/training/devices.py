"""Which GPUs the engine and the trainer of one job use."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence


class DeviceError(ValueError):
    """The machine does not show the GPUs that the job was promised; the message says what was expected."""


def visible_gpus(env: Mapping[str, str]) -> list[str]:
    """Ids of the GPUs that this job may use, as ``CUDA_VISIBLE_DEVICES`` takes them.

    The variable's own entries if it is set (schedulers set it), else all that ``nvidia-smi`` lists; none without it.
    """
    listed = env.get("CUDA_VISIBLE_DEVICES")
    if listed is not None:
        return [name.strip() for name in listed.split(",") if name.strip() not in ("", "-1")]
    try:
        query = ["nvidia-smi", "--query-gpu=index", "--format=csv,noheader"]
        answer = subprocess.run(query, capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return answer.stdout.split()


def split_gpus(visible: Sequence[str], engine: int, trainer: int) -> tuple[list[str], list[str]]:
    """Give the first GPUs to the engine and the next ones to the trainer.

    :param visible: ids of the job's GPUs.
    :param engine: how many the engine needs (``engine.tensor_parallel``).
    :param trainer: how many the trainer needs (``training.gpus``).
    :raises DeviceError: fewer are visible than the two need together.
    """
    if len(visible) < engine + trainer:
        seen = f"{len(visible)} ({', '.join(visible)})" if visible else "none"
        raise DeviceError(
            f"expected {engine + trainer} GPUs (engine.tensor_parallel {engine} + training.gpus {trainer}), "
            f"see {seen}; ask the scheduler for that many, or lower the two keys"
        )
    return list(visible[:engine]), list(visible[engine : engine + trainer])
