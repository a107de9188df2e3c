"""A vLLM plugin for machines with few cores: its processes rest while they wait for each other.

vLLM's engine core and its worker hand messages over a ring in shared memory and spin on ``sched_yield`` meanwhile,
which on two cores takes the time of the agents, the trainer and the worker itself. vLLM loads plugins in all its
processes, spawned ones included, from installed entry points; the folder ``vllm_plugin`` beside this file is such an
entry point, and the engine puts it on ``PYTHONPATH`` where there is no GPU.
"""

from __future__ import annotations

import os
import sys
import time

REST_S = 0.0005


def rest() -> None:
    """Give up the core for half a millisecond, in place of ``sched_yield``, which returns at once."""
    time.sleep(REST_S)


def install() -> None:
    """Replace the busy wait in vLLM's shared-memory ring; called by vLLM in each of its processes."""
    from vllm.distributed.device_communicators import shm_broadcast

    if not hasattr(shm_broadcast, "sched_yield"):
        raise RuntimeError("vLLM's shm_broadcast has no sched_yield any more: revise scripts/rollout/calm_waiting.py")
    shm_broadcast.sched_yield = rest
    print(f"calm_waiting: process {os.getpid()} rests while it waits", file=sys.stderr, flush=True)
