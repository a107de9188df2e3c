"""What the training job hands to its trainer process, and that one to its rollout worker: one JSON file."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict

from scripts.study.jobs import TrainJob


class PlannedTask(BaseModel):
    """One training task."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    suite: str
    task_id: str


class Plan(BaseModel):
    """Everything that the trainer process needs to know; it takes nothing from its environment but GPUs."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    job: TrainJob
    base: Path
    """Folder of the base model."""
    suites: Path
    """Folder that holds a folder of tasks for each suite."""
    tasks: list[PlannedTask]
    """In the order in which they are trained on, again and again."""
    folder: Path
    """The work folder."""
    resume: Path | None
    """Checkpoint to go on from."""
    engine_url: str
    server_url: str

    @property
    def rollouts(self) -> Path:
        """File that the worker appends a line per rollout to."""
        return self.folder / "rollouts.jsonl"

    @property
    def steps(self) -> Path:
        """File that the trainer appends a line per optimizer step to."""
        return self.folder / "steps.jsonl"

    @property
    def ready(self) -> Path:
        """File that appears when engine and rollout server answer."""
        return self.folder / "ready"

    @property
    def failure(self) -> Path:
        """File in which the trainer leaves the reason of its failure, for people."""
        return self.folder / "failure.txt"
