"""Compare an adapter with its base model, task by task.

:func:`compare` joins the two sides' attempts by task, refuses what does not belong together, counts what is missing,
and works out everything that ``results/compare/<harness>/<suite>/selected.json`` holds (:mod:`scripts.stats.records`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from scripts.stats import estimates, optimism, paired
from scripts.stats.pairing import Pair, Pairing, PairingError, Task, pair_up
from scripts.stats.records import Calls, Comparison, Optimism, Outcomes, Side, Source, Table, TaskOutcome
from scripts.study.config import Comparison as Settings
from scripts.study.outcomes import Outcome, Results

On = Literal["validation", "heldout", "final", "unknown"]


@dataclass(frozen=True)
class Selection:
    """How the adapter's checkpoint was picked."""

    on: On = "unknown"
    candidates: Sequence[Results] = field(default=())
    """Every checkpoint's results on this suite, where it was picked on it."""
    candidate_count: int | None = None


def compare(
    base: Results,
    adapter: Results,
    settings: Settings | None = None,
    tasks: Iterable[Task] | None = None,
    selection: Selection | None = None,
    seed: int = 0,
) -> Comparison:
    """The whole comparison of two sides on one suite.

    :param base: the base model's attempts.
    :param adapter: the adapter's.
    :param settings: the study's ``comparison`` section.
    :param tasks: the suite's index; without it the suite is every task that either side names.
    :param selection: how the checkpoint was picked.
    :param seed: of the bootstraps.
    :raises PairingError: rows of another suite, harness, model or task content, duplicates, no task in common.
    """
    settings, selection = settings or Settings(), selection or Selection()
    tasks = None if tasks is None else list(tasks)
    pairing = pair_up(base, adapter, tasks)
    for number, candidate in enumerate(selection.candidates):
        # A checkpoint of another suite, harness or base model must not count as one that was looked at.
        pair_up(base, candidate, tasks)
        if any(candidate.path == other.path for other in selection.candidates[:number]):
            raise PairingError(f"{candidate.path}: given twice among the candidates; name each checkpoint once")
    pairs = pairing.pairs
    binary = pairing.attempts_per_task <= 1
    table = paired.count_pairs([p.base > 0 for p in pairs], [p.adapter > 0 for p in pairs]) if binary else None
    differences = np.array([p.adapter - p.base for p in pairs])
    clusters = [p.task.cluster for p in pairs]
    difference = float(differences.mean()) if pairs else None
    intervals = estimates.all_intervals(table, differences, clusters, settings.confidence)
    notes = [*pairing.notes, *base.notes, *adapter.notes]
    return Comparison(
        kind="measured",
        suite=pairing.suite or "unnamed",
        harness=pairing.harness,
        confidence=settings.confidence,
        tasks_in_suite=pairing.tasks_in_suite,
        n=len(pairs),
        attempts_per_task=pairing.attempts_per_task,
        base=_side(base, [p.base for p in pairs], pairing, "base", settings.confidence),
        adapter=_side(adapter, [p.adapter for p in pairs], pairing, "adapter", settings.confidence),
        table=Table(**table._asdict()) if table else None,
        difference_points=estimates.points(difference),
        intervals=intervals,
        mcnemar=estimates.mcnemar_of(table),
        calls=_calls(pairs, settings, seed),
        power=estimates.power_of(float((differences**2).mean()) if pairs else None, len(pairs), settings),
        bounds=estimates.bounds_of(pairing.all_outcomes, len(pairs)),
        non_inferiority=estimates.non_inferiority_of(intervals, binary, settings.margin_points),
        selection=optimism_of(selection, pairs, table, settings, seed),
        by_difficulty=by_difficulty(pairs) if binary else [],
        clusters=len(set(clusters)) if pairs and None not in clusters else None,
        tasks=[
            TaskOutcome(
                task_id=p.task.task_id,
                difficulty=p.task.difficulty,
                cluster=p.task.cluster,
                base_solved=p.base,
                adapter_solved=p.adapter,
                base_tool_calls=p.base_calls,
                adapter_tool_calls=p.adapter_calls,
            )
            for p in pairs
        ],
        notes=notes,
    )


def _side(
    results: Results, outcomes: Sequence[float], pairing: Pairing, name: Literal["base", "adapter"], confidence: float
) -> Side:
    rows = results.rows
    solved = float(sum(outcomes))
    limits = paired.wilson(solved, len(outcomes), confidence)
    scored = [row for row in rows if row.scored]
    in_pairs = {pair.task.task_id for pair in pairing.pairs}
    calls = [row.tool_calls for row in scored if row.task_id in in_pairs]
    known_calls = [count for count in calls if count is not None]
    stops: dict[str, int] = {}
    for row in scored:
        if row.stop is not None:
            stops[row.stop] = stops.get(row.stop, 0) + 1
    flagged = [row.raw_tool_markup for row in rows]
    return Side(
        policy=first_known(rows, "policy") or name,
        source=Source(path=results.path, sha256=results.sha256, kind=results.kind, rows=len(rows)),  # type: ignore[arg-type]
        model=first_known(rows, "base_model"),
        harness_version=first_known(rows, "harness_version"),
        solved=solved if outcomes else None,
        rate_percent=100 * solved / len(outcomes) if outcomes else None,
        rate_low_percent=estimates.points(limits.low),
        rate_high_percent=estimates.points(limits.high),
        attempts=len(rows),
        scored=len(scored),
        dropped=pairing.dropped[name],
        stops=dict(sorted(stops.items())),
        raw_tool_markup=sum(map(bool, flagged)) if flagged and None not in flagged else None,
        mean_tool_calls=float(np.mean(known_calls)) if known_calls and len(known_calls) == len(calls) else None,
    )


def first_known(rows: Iterable[Outcome], name: str) -> str | None:
    """The first value of a field that is not None."""
    return next((value for row in rows if (value := getattr(row, name)) is not None), None)


def _calls(pairs: Sequence[Pair], settings: Settings, seed: int) -> Calls:
    solved = [p for p in pairs if p.base > 0 and p.adapter > 0]
    known = [
        (p.base_calls_solved, p.adapter_calls_solved)
        for p in solved
        if p.base_calls_solved is not None and p.adapter_calls_solved is not None
    ]
    if len(known) < len(solved):
        lost = len(solved) - len(known)
        reason = f"{lost} of the {len(solved)} tasks that both solved have no tool-call count"
        return Calls(
            tasks=len(solved),
            base_total=None,
            adapter_total=None,
            change_percent=None,
            low_percent=None,
            high_percent=None,
            reason=reason,
        )
    return estimates.calls_of([x for x, _ in known], [y for _, y in known], len(pairs), settings, seed)


def by_difficulty(pairs: Sequence[Pair]) -> list[Outcomes]:
    """A 2×2 table for each difficulty, easy first; empty where no task has one."""
    if all(pair.task.difficulty is None for pair in pairs):
        return []
    order = {"easy": 0, "medium": 1, "hard": 2}
    groups: dict[str, list[Pair]] = {}
    for pair in pairs:
        groups.setdefault(pair.task.difficulty or "unknown", []).append(pair)
    return [
        Outcomes(
            difficulty=name, **paired.count_pairs([p.base > 0 for p in group], [p.adapter > 0 for p in group])._asdict()
        )
        for name, group in sorted(groups.items(), key=lambda item: (order.get(item[0], 3), item[0]))
    ]


def optimism_of(
    selection: Selection, pairs: Sequence[Pair], table: paired.Table | None, settings: Settings, seed: int
) -> Optimism:
    """What picking the checkpoint on these tasks adds to the difference."""
    count = len(selection.candidates) or selection.candidate_count
    if selection.on == "unknown":
        return Optimism(
            on="unknown", candidates=count, optimism_points=None, method="none", reason="how it was picked is not known"
        )
    if selection.on != "heldout":
        return Optimism(on=selection.on, candidates=count, optimism_points=0.0, method="none")
    if not selection.candidates:
        return estimates.analytic_optimism(count, table)
    rates: list[dict[str, float]] = []
    for candidate in selection.candidates:
        sums: dict[str, list[bool]] = {}
        for row in candidate.rows:
            if row.scored:
                sums.setdefault(row.task_id, []).append(bool(row.solved))
        rates.append({task: float(np.mean(solved)) for task, solved in sums.items()})
    common = [p.task.task_id for p in pairs if all(p.task.task_id in rate for rate in rates)]
    gain = optimism.optimism_by_bootstrap([[r[task] for task in common] for r in rates], settings.bootstrap_draws, seed)
    return Optimism(
        on="heldout",
        candidates=len(rates),
        optimism_points=estimates.points(gain),
        method="bootstrap",
        reason="no task is scored for every checkpoint" if gain is None else f"over {len(common)} tasks",
    )


def index_tasks(rows: Iterable[Mapping[str, object]]) -> list[Task]:
    """Tasks of an index given as dictionaries: ``task_id``, ``sha256``, ``difficulty``, ``cluster``, ``suite``."""
    return [
        Task(
            task_id=str(row["task_id"]),
            difficulty=_text(row.get("difficulty")),
            cluster=_text(row.get("cluster")),
            sha256=_text(row.get("sha256")),
            suite=_text(row.get("suite")),
        )
        for row in rows
    ]


def _text(value: object) -> str | None:
    return None if value is None else str(value)
