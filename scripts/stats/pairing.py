"""Join two sides' attempts by task: pair what belongs together, count what is missing, refuse the rest."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from scripts.study.outcomes import Outcome, Results

Name = Literal["base", "adapter"]


class PairingError(ValueError):
    """Two sides cannot be compared; the message names the side, the row and what to do."""


class Task(NamedTuple):
    """A task as the suite's index has it; everything but its name may be unknown."""

    task_id: str
    difficulty: str | None = None
    cluster: str | None = None
    sha256: str | None = None
    suite: str | None = None


@dataclass(frozen=True, slots=True)
class Pair:
    """A task that is scored on both sides; outcomes are means over its scored attempts."""

    task: Task
    base: float
    adapter: float
    base_calls: float | None
    adapter_calls: float | None
    base_calls_solved: float | None
    """Mean over the attempts that solved it."""
    adapter_calls_solved: float | None


@dataclass(frozen=True)
class Pairing:
    """The pairs of a suite and what became of the other tasks."""

    pairs: list[Pair]
    dropped: dict[Name, dict[str, int]]
    all_outcomes: list[tuple[float | None, float | None]]
    tasks_in_suite: int
    attempts_per_task: int
    suite: str | None
    harness: str | None
    notes: list[str]


class _Summary(NamedTuple):
    solved: float
    calls: float | None
    calls_solved: float | None


SAME = {"suite": "suite", "harness": "harness", "base_model": "base model"}


def pair_up(base: Results, adapter: Results, tasks: Iterable[Task] | None = None) -> Pairing:
    """Join two sides.

    :param tasks: the suite's index, or None: then the suite is every task that a side names.
    :raises PairingError: see :class:`PairingError`.
    """
    sides: dict[Name, Results] = {"base": base, "adapter": adapter}
    grouped = {name: _group(results) for name, results in sides.items()}
    identity = {key: _agree(key, sides) for key in SAME}
    _check_policies(sides)
    suite = _suite_tasks(sides, grouped, tasks, identity["suite"])
    _check_contents(sides, {task.task_id: task for task in suite})
    summaries = {name: {task: _summarise(rows) for task, rows in rows_of.items()} for name, rows_of in grouped.items()}
    pairs: list[Pair] = []
    outcomes: list[tuple[float | None, float | None]] = []
    dropped: dict[Name, dict[str, int]] = {"base": {}, "adapter": {}}
    for task in suite:
        x, y = (summaries[name].get(task.task_id) for name in ("base", "adapter"))
        outcomes.append((x.solved if x else None, y.solved if y else None))
        _count_missing(dropped["base"], x, grouped["base"].get(task.task_id))
        _count_missing(dropped["adapter"], y, grouped["adapter"].get(task.task_id))
        if x and y:
            pairs.append(Pair(task, x.solved, y.solved, x.calls, y.calls, x.calls_solved, y.calls_solved))
    # A retry of an attempt without a grade leaves one outcome: still yes or no.
    graded = (sum(row.scored for row in rows) for rows_of in grouped.values() for rows in rows_of.values())
    most = max(1, *graded)
    return Pairing(
        pairs=pairs,
        dropped={name: dict(sorted(reasons.items())) for name, reasons in dropped.items()},
        all_outcomes=outcomes,
        tasks_in_suite=len(suite),
        attempts_per_task=most,
        suite=identity["suite"] or next((task.suite for task in suite if task.suite), None),
        harness=identity["harness"],
        notes=_notes(sides, grouped),
    )


def _group(results: Results) -> dict[str, list[Outcome]]:
    groups: dict[str, list[Outcome]] = {}
    seen: set[tuple[str, int]] = set()
    twice: list[tuple[str, int]] = []
    for row in results.rows:
        key = (row.task_id, row.attempt)
        if key in seen:
            twice.append(key)
        seen.add(key)
        groups.setdefault(row.task_id, []).append(row)
    if twice:
        task, attempt = twice[0]
        raise PairingError(
            f"{results.path}: {len(twice)} rows are duplicates, the first is task {task}, attempt {attempt}; "
            "keep one row for each task and attempt"
        )
    if not groups:
        raise PairingError(f"{results.path}: no attempts in it; give results of this suite")
    return groups


def _agree(key: str, sides: dict[Name, Results]) -> str | None:
    """The one value of a field over both sides; None where nobody knows it."""
    owner: dict[str, tuple[str, int]] = {}
    for results in sides.values():
        for row in results.rows:
            value = getattr(row, key)
            if value is not None:
                path, count = owner.get(value, (results.path, 0))
                owner[value] = (path, count + 1)
    if len(owner) > 1:
        listed = ", ".join(f"{value} ({count} rows, first in {path})" for value, (path, count) in owner.items())
        raise PairingError(f"rows of more than one {SAME[key]}: {listed}; compare rows of one {SAME[key]}")
    return next(iter(owner), None)


def _check_policies(sides: dict[Name, Results]) -> None:
    for results in sides.values():
        counts: dict[str, int] = {}
        for row in results.rows:
            if row.policy is not None:
                counts[row.policy] = counts.get(row.policy, 0) + 1
        if len(counts) > 1:
            listed = ", ".join(f"{policy} ({count} rows)" for policy, count in counts.items())
            raise PairingError(f"{results.path}: rows of more than one policy: {listed}; give one policy's rows a side")
    base, adapter = sides["base"], sides["adapter"]
    if base.path == adapter.path or (base.sha256 is not None and base.sha256 == adapter.sha256):
        raise PairingError(f"{base.path} and {adapter.path} are the same results; give one side's results each")
    policies = {row.policy for row in sides["adapter"].rows}
    if policies == {"base"}:
        raise PairingError(f"{sides['adapter'].path}: the adapter's rows are of policy base; are the sides mixed up?")


def _suite_tasks(
    sides: dict[Name, Results],
    grouped: dict[Name, dict[str, list[Outcome]]],
    tasks: Iterable[Task] | None,
    suite: str | None,
) -> list[Task]:
    if tasks is None:
        names = sorted({*grouped["base"], *grouped["adapter"]})
        found = [Task(name) for name in names]
    else:
        found = list(tasks)
        known = {task.task_id for task in found}
        suites = {task.suite for task in found if task.suite}
        # Other tools name a suite as they like; ours go by the index.
        ours = any(results.kind == "attempts" for results in sides.values())
        if ours and suite is not None and suites and suites != {suite}:
            raise PairingError(
                f"the rows are of suite {suite}, the index of {', '.join(sorted(suites))}; give its index"
            )
        for name, results in sides.items():
            strangers = [task for task in grouped[name] if task not in known]
            if strangers:
                raise PairingError(
                    f"{results.path}: {len(strangers)} tasks are not in the suite's index, first {strangers[0]}; "
                    "give the index that these results were measured on"
                )
    if not grouped["base"].keys() & grouped["adapter"].keys():
        raise PairingError(
            f"{sides['base'].path} and {sides['adapter'].path} have no task in common "
            f"({len(grouped['base'])} and {len(grouped['adapter'])} tasks); compare results of one suite"
        )
    return found


def _check_contents(sides: dict[Name, Results], tasks: dict[str, Task]) -> None:
    """A task of the same name must be the same task: in the index and on both sides.

    Formats hash tasks in their own ways (``harbor:<digest>``), so digests are compared within one way only.
    """
    known = {(task.task_id, ""): (task.sha256, "the index") for task in tasks.values() if task.sha256}
    changed: dict[str, tuple[str, str]] = {}
    for results in sides.values():
        for row in results.rows:
            if row.task_sha256 is None:
                continue
            way = row.task_sha256.rpartition(":")[0]
            sha256, where = known.setdefault((row.task_id, way), (row.task_sha256, results.path))
            if sha256 != row.task_sha256:
                changed[row.task_id] = (where, results.path)
    if changed:
        task, (where, path) = next(iter(changed.items()))
        raise PairingError(
            f"{len(changed)} tasks have the same name but another content, the first is {task}: "
            f"{path} differs from {where}; measure both sides on the same tasks"
        )


def _mean(values: Sequence[int | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None


def _summarise(rows: Sequence[Outcome]) -> _Summary | None:
    scored = [row for row in rows if row.scored]
    if not scored:
        return None
    solved = [row for row in scored if row.solved]
    return _Summary(
        len(solved) / len(scored), _mean([row.tool_calls for row in scored]), _mean([row.tool_calls for row in solved])
    )


def _count_missing(reasons: dict[str, int], summary: _Summary | None, rows: Sequence[Outcome] | None) -> None:
    if summary is None:
        reason = f"infrastructure: {rows[-1].error or 'not graded'}" if rows else "missing"
        reasons[reason] = reasons.get(reason, 0) + 1


def _notes(sides: dict[Name, Results], grouped: dict[Name, dict[str, list[Outcome]]]) -> list[str]:
    notes = []
    versions = [{row.harness_version for row in results.rows if row.harness_version} for results in sides.values()]
    if versions[0] and versions[1] and versions[0] != versions[1]:
        base, adapter = (", ".join(sorted(found)) for found in versions)
        notes.append(f"The harness's version differs: {base} for the base, {adapter} for the adapter.")
    conditions = {row.conditions for results in sides.values() for row in results.rows if row.conditions}
    if len(conditions) > 1:
        notes.append(
            f"The attempts were made under {len(conditions)} different conditions "
            "(sampling, limits, engine or sandbox); a difference may come from those."
        )
    for name in ("base", "adapter"):
        some = [
            rows for rows in grouped[name].values() if any(r.scored for r in rows) and not all(r.scored for r in rows)
        ]
        if some:
            notes.append(f"{len(some)} tasks of the {name} have attempts without a grade; their other attempts count.")
    return notes
