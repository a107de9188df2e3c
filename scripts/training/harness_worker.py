"""TRL's rollout worker, completed: it names the policy of the moment, tells rollouts apart, starts early, ends clean.

The loop lives in a process that TRL spawns; the worker is its handle in the trainer's process.
"""

from __future__ import annotations

import asyncio
import queue
import time
from typing import Any

from trl.experimental.async_grpo.async_rollout_worker import RolloutGroup, RolloutSample
from trl.experimental.async_grpo.openenv_harness import HarnessRolloutWorker, _HarnessRolloutLoop

from scripts.rollout.processes import end_with_parent
from scripts.training import cpu_patches

ROLLOUT_ID = "rollout_id"
"""Key under which a sample's metrics carry the rollout that it came from; taken out before they are averaged."""
NOT_YET = -1
"""Policy version that makes a started loop wait."""


class HarnessLoop(_HarnessRolloutLoop):
    """The loop in the spawned process.

    :param hardware: ``cpu`` or ``cuda``, of the trainer.
    """

    def __init__(self, *, hardware: str, **settings: Any) -> None:
        end_with_parent()
        cpu_patches.apply(hardware)
        super().__init__(**settings)
        self._factory.current_policy = self._current_policy

    def _current_policy(self) -> tuple[str, int]:
        """The published adapter's name and the optimizer steps behind it (version 1 is published before the first)."""
        version = self.model_version
        return f"{self.lora_name}-v{version}", version - 1

    async def _run_loops(self, stop_event: asyncio.Event) -> None:
        while self.model_version == NOT_YET and not stop_event.is_set():
            self._heartbeat_value.value = time.time()
            await asyncio.sleep(0.1)
        await super()._run_loops(stop_event)

    async def _score_group(self, group: RolloutGroup) -> list[RolloutSample]:
        samples = await super()._score_group(group)
        # TRL makes the samples in this very order, and a sequence knows its rollout.
        sequences = [sequence for of_rollout in group.completions_sequences for sequence in of_rollout]
        for sample, sequence in zip(samples, sequences, strict=True):
            sample.metrics[ROLLOUT_ID] = sequence.rollout_id
        return samples


class HarnessWorker(HarnessRolloutWorker):
    """The handle in the trainer's process.

    :param watch: called with the other health checks while the trainer waits for samples; raises to end the training.
    """

    _loop_cls = HarnessLoop

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._child_ready_timeout: int
        self.watch: Any = None
        self._version = 0
        self._open = False
        self._model_version_value.value = NOT_YET

    def start_early(self) -> None:
        """Start the process, whose imports take a while, but no rollout before :meth:`start`."""
        patience, self._child_ready_timeout = self._child_ready_timeout, 0
        try:
            super().start()
        except RuntimeError:
            if self._process is None:  # it ended already; otherwise it is only not ready yet
                raise
        finally:
            self._child_ready_timeout = patience

    def start(self) -> None:
        """Let the rollouts begin, with the policy version that was last named."""
        if self._process is None:
            super().start()
        deadline = time.monotonic() + self._child_ready_timeout
        while not self._child_ready_event.wait(timeout=0.5):
            if not self._process.is_alive() or time.monotonic() > deadline:
                raise RuntimeError("the rollout worker did not start; its traceback is in the trainer's log")
        self._open = True
        self.update_model_version(self._version)

    def update_model_version(self, model_version: int) -> None:
        """Name the published version; the process only sees it once rollouts may begin."""
        self._version = model_version
        if self._open:
            super().update_model_version(model_version)

    def check_health(self, stale_after_s: float) -> None:
        """Raise if the process failed or hangs, or if :attr:`watch` objects."""
        super().check_health(stale_after_s)
        if self.watch is not None:
            self.watch()

    def stop(self) -> None:
        """Stop the process and wait for it.

        Its queues are read until it is gone: a process with unread items in a queue cannot end.
        """
        process = self._process
        if process is not None and process._popen is not None:
            self._stop_event_mp.set()
            if not self._child_ready_event.is_set():
                process.terminate()
            deadline = time.monotonic() + 90
            while process.is_alive() and time.monotonic() < deadline:
                for channel in (self.rollout_buffer, self.metrics_queue):
                    try:
                        while True:
                            channel.get_nowait()
                    except queue.Empty:
                        pass
                process.join(timeout=0.2)
        super().stop()
