"""Results that other tools wrote: Harbor's job folders and OpenEnv's rollouts, as ``Outcome`` rows.

Harbor 0.25: a job folder holds a folder per trial, each with ``result.json`` (``harbor.models.trial.result``) and, for
agents that write one, ``agent/trajectory.json`` (ATIF) with the tool calls. OpenEnv 0.10: a rollout is one JSON object
(``openenv.harbor.models.HarborRolloutResult``); a file holds one, a list of them, or one per line.

Neither format's package is needed. The rules of what counts as graded are the pipeline's own: no grade, no turns, or a
fatal finding is infrastructure and never wrong; a graded time-out counts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, NoReturn, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from scripts.study.attempts import AttemptsError, correctness, read_attempts
from scripts.study.fingerprints import file_sha256
from scripts.study.outcomes import Outcome, OutcomesError, Results, from_attempts

Finite = Annotated[float, Field(allow_inf_nan=False)]
Row = TypeVar("Row", bound=BaseModel)

# Harbor's own table of failures (harbor.models.trial.error_policy): the agent ended itself, so its grade is valid.
AGENT_ENDED = {
    "AgentTimeoutError": "timeout",
    "ContextWindowExceededError": "context",
    "ContextLengthExceededError": "context",
    "OutputTokenExceededError": "finished",
    "OutputLengthExceededError": "finished",
    "AgentSafetyRefusalError": "finished",
    "ContentPolicyViolationError": "finished",
}
RAW_TOOL_CALL = re.compile(r"</?tool_call>|<function=|</function>|<parameter=")


class _Foreign(BaseModel):
    """Only the fields that are needed; what else a version writes is left alone."""

    model_config = ConfigDict(extra="ignore")


class _Model(_Foreign):
    name: str


class _Agent(_Foreign):
    name: str
    version: str | None = None
    model_info: _Model | None = None


class _Verifier(_Foreign):
    rewards: dict[str, Finite | None] | None = None


class _Exception(_Foreign):
    exception_type: str


class _Step(_Foreign):
    exception_info: _Exception | None = None


class HarborTrial(_Foreign):
    """A trial's ``result.json``."""

    id: str
    task_name: str
    trial_name: str
    task_id: dict[str, Any]
    source: str | None = None
    task_checksum: str
    agent_info: _Agent
    verifier_result: _Verifier | None = None
    exception_info: _Exception | None = None
    step_results: list[_Step] | None = None

    @property
    def task(self) -> str:
        """Name of the task's folder, or `org/name` for a package."""
        if "path" in self.task_id:
            return Path(str(self.task_id["path"])).name
        return self.task_name

    @property
    def exceptions(self) -> list[str]:
        """Classes of the recorded failures, the trial's own first."""
        steps = [step.exception_info for step in self.step_results or []]
        return [found.exception_type for found in [self.exception_info, *steps] if found]


class _Turn(_Foreign):
    role: str = "agent"
    discarded: bool = False
    text: str = ""
    tool_calls: list[Any] = []


class OpenEnvRollout(_Foreign):
    """One rollout as OpenEnv's Harbor server returns it."""

    task_id: str = ""
    task_name: str = ""
    dataset: str = ""
    harness: str = ""
    trial_name: str = ""
    session_id: str
    reward: Finite | None = None
    rewards: dict[str, Finite | None] = {}
    turns: list[_Turn] = []
    n_turns: int = 0
    budget_stop_count: int = 0
    findings: list[str] = []
    exception_type: str | None = None


def read_results(path: str | Path) -> Results:
    """Read one side's results, whatever format they are in.

    :param path: our JSONL, a Harbor job folder, an OpenEnv file (``.json`` or ``.jsonl``), or a folder of those.
    :raises OutcomesError: unreadable, truncated or unknown content, a non-finite number, a duplicate; names the row.
    """
    path = Path(path)
    if path.is_dir():
        if any(path.glob("*/result.json")) or any(path.glob("*/config.json")):
            return read_harbor_job(path)
        files = sorted([*path.glob("*.json"), *path.glob("*.jsonl")])
        if not files:
            raise OutcomesError(f"{path}: neither trials with result.json nor .json files in it; give a job folder")
        return read_openenv(path, files)
    text = _read(path)
    head = text.lstrip()[:1]
    if not head:
        raise OutcomesError(f"{path}: the file is empty; give results of a suite")
    if head == "[" or path.suffix == ".json":
        return read_openenv(path, [path])
    first = _parse(text.split("\n", 1)[0], f"{path}, row 1")
    if "session_id" in first:
        return read_openenv(path, [path])
    if "schema" not in first:
        raise OutcomesError(
            f"{path}, row 1: neither an attempt (no `schema`) nor an OpenEnv rollout (no `session_id`); "
            "give our JSONL, a Harbor job folder or OpenEnv's results"
        )
    try:
        rows = read_attempts(path)
    except AttemptsError as error:
        raise OutcomesError(str(error)) from None
    return Results(from_attempts(rows), str(path), "attempts", file_sha256(path))


def read_harbor_job(job: Path) -> Results:
    """All trials of a Harbor job folder; a trial that never finished counts as infrastructure."""
    rows: list[Outcome] = []
    attempts: dict[str, int] = {}
    seen: dict[str, Path] = {}
    unfinished = without_calls = 0
    for folder in sorted(path for path in job.iterdir() if path.is_dir()):
        file = folder / "result.json"
        if not file.is_file():
            if (folder / "config.json").is_file():
                unfinished += 1
                task = _unfinished_task(folder / "config.json")
                attempts[task] = attempts.get(task, -1) + 1
                rows.append(Outcome(task, attempts[task], False, None, None, error="unfinished trial"))
            continue
        trial = _validate(HarborTrial, _parse(_read(file), str(file)), str(file))
        if trial.id in seen:
            raise OutcomesError(f"{file}: trial {trial.id} is there already, in {seen[trial.id]}; keep one of them")
        seen[trial.id] = file
        if not trial.task:
            raise OutcomesError(f"{file}: no name of a task in it; a result must say which task it is of")
        attempts[trial.task] = attempts.get(trial.task, -1) + 1
        outcome = _harbor_outcome(trial, attempts[trial.task], _atif_tool_calls(folder / "agent" / "trajectory.json"))
        without_calls += outcome.scored and outcome.tool_calls is None
        rows.append(outcome)
    if not seen:
        raise OutcomesError(f"{job}: no finished trial in it; give the folder of a job that ran")
    notes = []
    if unfinished:
        notes.append(f"{unfinished} trials of {job} never finished.")
    if without_calls:
        notes.append(f"{without_calls} graded trials of {job} have no trajectory, so their tool calls are not known.")
    return Results(rows, str(job), "harbor", None, tuple(notes))


def _harbor_outcome(trial: HarborTrial, attempt: int, tool_calls: int | None) -> Outcome:
    grade = correctness((trial.verifier_result.rewards if trial.verifier_result else None) or {})
    foreign = [name for name in trial.exceptions if name not in AGENT_ENDED]
    scored = grade is not None and not foreign
    stop = AGENT_ENDED[trial.exceptions[0]] if scored and trial.exceptions else "finished"
    return Outcome(
        task_id=trial.task,
        attempt=attempt,
        scored=scored,
        solved=grade >= 1.0 if scored and grade is not None else None,
        tool_calls=tool_calls,
        suite=trial.source,
        harness=trial.agent_info.name,
        harness_version=trial.agent_info.version,
        policy=trial.agent_info.model_info.name if trial.agent_info.model_info else None,
        task_sha256=f"harbor:{trial.task_checksum}",
        stop=stop if scored else None,
        error=None if scored else (foreign[0] if foreign else "no grade"),
    )


def _unfinished_task(config: Path) -> str:
    task = _parse(_read(config), str(config)).get("task")
    path = task.get("path") if isinstance(task, dict) else None
    if not path:
        raise OutcomesError(f"{config}: the trial is unfinished and its config names no task; remove the folder")
    return Path(str(path)).name


def _atif_tool_calls(file: Path) -> int | None:
    """Tool calls of an ATIF trajectory, without steps copied from an earlier context; None where there is none."""
    if not file.is_file():
        return None
    steps = _parse(_read(file), str(file)).get("steps")
    if not isinstance(steps, list):
        raise OutcomesError(f"{file}: no `steps` in it; it is not an ATIF trajectory")
    total = 0
    for number, step in enumerate(steps, 1):
        calls = (step.get("tool_calls") or []) if isinstance(step, dict) else None
        if not isinstance(calls, list):
            raise OutcomesError(f"{file}, step {number}: its `tool_calls` are no list; it is not an ATIF trajectory")
        total += 0 if step.get("is_copied_context") else len(calls)
    return total


def read_openenv(path: Path, files: list[Path]) -> Results:
    """OpenEnv rollouts of one or more files."""
    rows: list[Outcome] = []
    attempts: dict[str, int] = {}
    seen: dict[str, str] = {}
    for where, value in _objects(files):
        rollout = _validate(OpenEnvRollout, value, where)
        task = rollout.task_name or rollout.task_id
        if not task:
            raise OutcomesError(f"{where}: neither task_name nor task_id; a result must say which task it is of")
        if rollout.session_id in seen:
            raise OutcomesError(
                f"{where}: session {rollout.session_id} is there already, in {seen[rollout.session_id]}"
            )
        seen[rollout.session_id] = where
        attempts[task] = attempts.get(task, -1) + 1
        rows.append(_openenv_outcome(rollout, task, attempts[task]))
    if not rows:
        raise OutcomesError(f"{path}: no rollout in it; give results of a suite")
    return Results(rows, str(path), "openenv", file_sha256(path) if path.is_file() else None)


def _openenv_outcome(rollout: OpenEnvRollout, task: str, attempt: int) -> Outcome:
    turns = [turn for turn in rollout.turns if turn.role == "agent" and not turn.discarded]
    rewards = dict(rollout.rewards)
    if rewards.get("reward") is None:
        rewards["reward"] = rollout.reward
    grade = correctness(rewards)
    fatal = any("[FATAL" in finding for finding in rollout.findings)
    if grade is None:
        error: str | None = rollout.exception_type or "no grade"
    elif rollout.n_turns == 0:
        error = "no turns"
    else:
        error = "fatal finding" if fatal else None
    stop = "finished"
    if rollout.exception_type == "AgentTimeoutError":
        stop = "timeout"
    elif rollout.budget_stop_count:
        stop = "call_budget"
    return Outcome(
        task_id=task,
        attempt=attempt,
        scored=error is None,
        solved=grade >= 1.0 if error is None and grade is not None else None,
        # Results that were sent without their turns say nothing of tool calls; that is not zero.
        tool_calls=sum(len(turn.tool_calls) for turn in turns) if turns or not rollout.n_turns else None,
        suite=rollout.dataset or None,
        harness=rollout.harness or None,
        stop=stop if error is None else None,
        raw_tool_markup=any(RAW_TOOL_CALL.search(turn.text) for turn in turns) if turns else None,
        error=error,
    )


def _objects(files: list[Path]) -> Iterator[tuple[str, dict[str, Any]]]:
    for file in files:
        text = _read(file)
        if file.suffix == ".jsonl":
            lines = text.split("\n")
            if lines[-1]:
                raise OutcomesError(f"{file}, row {len(lines)}: the line is truncated; write the file anew")
            for number, line in enumerate(lines[:-1], 1):
                yield f"{file}, row {number}", _parse(line, f"{file}, row {number}")
        elif text.lstrip().startswith("["):
            for number, value in enumerate(_load(text, str(file)), 1):
                yield f"{file}, item {number}", value
        else:
            yield str(file), _parse(text, str(file))


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise OutcomesError(f"{path}: cannot be read: {reason}") from None


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"non-finite number {constant}")


def _load(text: str, where: str) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise OutcomesError(f"{where}: {error}; the results must be whole and finite JSON") from None


def _parse(text: str, where: str) -> dict[str, Any]:
    value = _load(text, where)
    if not isinstance(value, dict):
        raise OutcomesError(f"{where}: not a JSON object; give results in a known format")
    return value


def _validate(model: type[Row], value: Any, where: str) -> Row:
    try:
        return model.model_validate(value)
    except ValidationError as error:
        fault = error.errors()[0]
        key = ".".join(str(part) for part in fault["loc"])
        raise OutcomesError(f"{where}: {key}: {fault['msg']}") from None
