"""The record of one attempt: one agent, one task, one policy, one try at solving it.

A file ``eval/<harness>/<policy>/<suite>.jsonl`` holds one record per line, sorted by task and attempt,
and is written whole or not at all. Reading refuses whatever a measurement must not be built on.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, ValidationError, model_validator

from scripts.study.config import Count, PositiveInt, Section
from scripts.study.files import write_atomic

SCHEMA: Literal[1] = 1
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Status = Literal["scored", "infrastructure"]
Stop = Literal["finished", "call_budget", "timeout", "context"]

# What all rows of one file have in common; a row that differs came from another measurement.
SHARED = ("suite", "harness", "harness_version", "policy", "policy_sha256", "base_model")


class AttemptsError(ValueError):
    """A file of attempts cannot be used; the message names the file, the row and the reason."""


class AttemptError(Section):
    """Why an attempt ended otherwise than by the agent's own finish."""

    type: str = Field(min_length=1, description="Class of the error, such as AgentTimeoutError.")
    message: str = Field(description="What it said.")


class Attempt(Section):
    """One attempt. Status and grade are apart: a graded time-out is scored, an engine error never is."""

    model_config = ConfigDict(validate_by_name=True, validate_by_alias=True, serialize_by_alias=True)

    schema_version: Literal[1] = Field(SCHEMA, alias="schema", description="Version of this record; `schema` in files.")
    suite: str = Field(min_length=1, description="Name of the suite.")
    task_id: str = Field(min_length=1, description="Name of the task in its suite.")
    task_sha256: Sha256 = Field(description="Hash over the task folder's files.")
    attempt: Count = Field(description="Number of the attempt on this task, from 0; (task_id, attempt) is unique.")
    harness: str = Field(min_length=1, description="The coding agent.")
    harness_version: str = Field(description="Version of the coding agent.")
    policy: str = Field(pattern=r"^(base|step-[0-9]+)$", description="`base`, or `step-<n>` for a checkpoint.")
    policy_sha256: Sha256 = Field(description="Hash over the policy's files: the base's, or base and adapter together.")
    base_model: str = Field(description="Hub id of the base model.")
    status: Status = Field(
        description="`scored`: the verifier graded it. `infrastructure`: no valid grade, never wrong."
    )
    solved: bool | None = Field(description="Correctness of at least 1.0; null unless scored.")
    rewards: dict[str, Finite | None] = Field(description="The verifier's dictionary as it came; null stays null.")
    stop: Stop | None = Field(description="How the session ended; a scored one always has it.")
    tool_calls: Count = Field(description="Tool calls, counted from the captured model turns.")
    tool_calls_by_name: dict[str, PositiveInt] = Field(description="The same by the tool's name; sums to tool_calls.")
    model_calls: Count = Field(description="Captured model turns.")
    prompt_tokens: Count = Field(description="Prompt tokens, summed over the turns.")
    completion_tokens: Count = Field(description="Sampled tokens, summed over the turns.")
    wall_s: Annotated[float, Field(ge=0, allow_inf_nan=False)] = Field(description="Seconds, sandbox and grading too.")
    sampling: dict[str, Any] = Field(description="Temperature, top_p, top_k, max_output_tokens, enable_thinking.")
    limits: dict[str, Any] = Field(description="Model calls, agent's and verifier's seconds.")
    engine: dict[str, Any] = Field(description="Name, version and flags of the engine.")
    sandbox: dict[str, Any] = Field(description="Environment and options of the sandbox.")
    error: AttemptError | None = Field(None, description="Null, or what went wrong; an infrastructure ending has one.")
    flags: list[str] = Field([], description="Things to count, such as `raw_tool_markup` or a verifier's null.")
    infrastructure_tries: Count = Field(0, description="Tries of this attempt that ended by infrastructure before it.")
    trajectory: str | None = Field(None, description="Saved trace, relative to the results folder; null without turns.")

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> Attempt:
        if sum(self.tool_calls_by_name.values()) != self.tool_calls:
            raise ValueError(f"tool_calls is {self.tool_calls}, but tool_calls_by_name sums to another number")
        if self.status == "infrastructure":
            if self.solved is not None:
                raise ValueError("solved must be null where status is infrastructure")
            if self.error is None:
                raise ValueError("status is infrastructure, so error must say why")
            return self
        grade = correctness(self.rewards)
        if grade is None or self.stop is None:
            raise ValueError("status is scored, so `stop` and a reward `correctness` or `reward` must be there")
        if self.solved != (grade >= 1.0):
            raise ValueError(f"solved is {self.solved}, but the correctness is {grade}")
        return self

    @property
    def key(self) -> tuple[str, int]:
        """Identity in a file."""
        return (self.task_id, self.attempt)


def correctness(rewards: dict[str, Any]) -> float | None:
    """The verifier's ``correctness``, or its ``reward`` where it has no such key; null says that it isn't measured."""
    value = rewards["correctness"] if "correctness" in rewards else rewards.get("reward")
    return None if value is None else float(value)


def natural(text: str) -> list[tuple[int, int, str]]:
    """Sort key under which ``task-9`` comes before ``task-10``."""
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in re.findall(r"[0-9]+|[^0-9]+", text)]


def sort_attempts(rows: Iterable[Attempt]) -> list[Attempt]:
    """Rows by task, numbers in names compared as numbers, then by attempt."""
    return sorted(rows, key=lambda row: (natural(row.task_id), row.task_id, row.attempt))


def to_line(row: Attempt) -> str:
    """One line of JSON without its end; keys in the order of the fields."""
    return json.dumps(row.model_dump(mode="json"), ensure_ascii=False, allow_nan=False)


def parse_attempt(text: str, where: str) -> Attempt:
    """Parse one line.

    :param text: the JSON.
    :param where: file and row for messages.
    :raises AttemptsError: not JSON, a non-finite number, an unknown or missing field, a record at odds with itself.
    """
    try:
        return Attempt.model_validate_json(text)
    except ValidationError as error:
        fault = error.errors()[0]
        key = ".".join(str(part) for part in fault["loc"])
        message = fault["msg"].removeprefix("Value error, ")
        raise AttemptsError(f"{where}: {key + ': ' if key else ''}{message}") from None


def check_together(rows: Iterable[tuple[str, Attempt]], source: str) -> None:
    """Check that rows belong in one file.

    :param rows: pairs of a row's place, for messages, and the row.
    :raises AttemptsError: a duplicate (task_id, attempt), or rows of different suites, policies or harnesses.
    """
    first: tuple[str, Attempt] | None = None
    seen: dict[tuple[str, int], str] = {}
    for where, row in rows:
        first = first or (where, row)
        for field in SHARED:
            if getattr(row, field) != getattr(first[1], field):
                raise AttemptsError(
                    f"{where}: {field} is {getattr(row, field)!r}, but {getattr(first[1], field)!r} in {first[0]}; "
                    "one file holds one suite, policy and harness"
                )
        if row.key in seen:
            raise AttemptsError(
                f"{where}: task {row.task_id}, attempt {row.attempt} is there already, in {seen[row.key]}"
            )
        seen[row.key] = where
    if first is None:
        raise AttemptsError(f"{source}: no attempts in it; delete it to measure again")


def read_attempts(path: str | Path) -> list[Attempt]:
    """All rows of a file, in its order.

    :raises AttemptsError: naming file and row: a missing or empty file, a truncated line, a non-finite reward,
        a duplicate (task_id, attempt), or rows of more than one suite, policy or harness.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise AttemptsError(f"{path}: cannot be read: {error}") from None
    lines = text.split("\n")
    if lines[-1]:
        raise AttemptsError(f"{path}, row {len(lines)}: the line is truncated; delete the file to measure again")
    rows = [(f"{path}, row {number}", line) for number, line in enumerate(lines[:-1], 1)]
    parsed = [(where, parse_attempt(line, where)) for where, line in rows]
    check_together(parsed, str(path))
    return [row for _, row in parsed]


def write_attempts(path: str | Path, rows: Iterable[Attempt]) -> None:
    """Write a file of attempts, sorted, by atomic rename: a reader sees the old file or all of the new one.

    :raises AttemptsError: the rows do not belong in one file; nothing is written then.
    """
    path = Path(path)
    ordered = sort_attempts(rows)
    check_together([(f"{path}, row {number}", row) for number, row in enumerate(ordered, 1)], str(path))
    write_atomic(path, "".join(to_line(row) + "\n" for row in ordered))
