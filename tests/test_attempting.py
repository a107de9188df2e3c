"""The loop over attempts: what is tried again, what never is, and when it stops."""

import io
import threading
import time

import pytest

from scripts.rollout.attempting import Item, NothingWorks, Progress, run_attempts, shuffled
from scripts.study.journal import Journal
from scripts.study.suite_index import TaskRow
from tests.test_attempts import BROKEN, attempt


def task(number, suite="held"):
    name = f"task-{number}"
    return TaskRow(
        suite=suite,
        role="heldout",
        task_id=name,
        index=number,
        path=f"suites/{suite}/tasks/{name}",
        sha256="a" * 64,
        difficulty="easy",
        cluster=None,
    )


def record(item, outcome, tries):
    """Outcomes are: True or False for graded attempts, a text for the cause of an infrastructure ending."""
    if isinstance(outcome, str):
        changes = {**BROKEN, "error": {"type": "Broken", "message": outcome}}
    else:
        changes = {"solved": outcome, "rewards": {"correctness": float(outcome)}}
    return attempt(
        item.task.task_id, suite=item.task.suite, attempt=item.attempt, infrastructure_tries=tries, **changes
    )


class Runner:
    """Answers each try of a task with the next of its outcomes, and counts the tries and how many ran at once."""

    def __init__(self, outcomes, default=True, seconds=0.0):
        self.outcomes = {task_id: list(listed) for task_id, listed in outcomes.items()}
        self.default, self.seconds = default, seconds
        self.calls = []
        self.now = self.most = 0
        self.lock = threading.Lock()

    def __call__(self, item):
        with self.lock:
            self.calls.append(item.task.task_id)
            self.now += 1
            self.most = max(self.most, self.now)
            listed = self.outcomes.get(item.task.task_id)
            outcome = listed.pop(0) if listed else self.default
        time.sleep(self.seconds)
        with self.lock:
            self.now -= 1
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


def go(tmp_path, runner, items, *, retries=2, concurrency=2, check=lambda: None, out=None):
    out = out or io.StringIO()
    with Journal(tmp_path, {}) as journal:
        return run_attempts(
            items,
            run=runner,
            record=record,
            journal=journal,
            check=check,
            concurrency=concurrency,
            retries=retries,
            progress=Progress("pi, base", len(items), out),
        )


ITEMS = [Item(task(number), 0) for number in range(6)]


def test_infrastructure_is_tried_again_and_zeros_never_are(tmp_path):
    runner = Runner({"task-0": ["boom", "boom", True], "task-1": [False]})
    rows = go(tmp_path, runner, ITEMS)
    assert runner.calls.count("task-0") == 3
    assert runner.calls.count("task-1") == 1
    assert rows[ITEMS[0]].solved
    assert rows[ITEMS[0]].infrastructure_tries == 2
    assert rows[ITEMS[1]].solved is False


def test_retries_are_bounded_and_the_attempt_is_recorded_as_infrastructure(tmp_path):
    runner = Runner({"task-3": ["boom"] * 9})
    out = io.StringIO()
    rows = go(tmp_path, runner, ITEMS, out=out)
    assert runner.calls.count("task-3") == 3
    row = rows[ITEMS[3]]
    assert (row.status, row.solved, row.infrastructure_tries) == ("infrastructure", None, 2)
    assert "6/6 done: 5 solved, 0 failed, 1 infrastructure (2 tries again)" in out.getvalue()


def test_the_next_run_runs_nothing_that_is_finished(tmp_path):
    go(tmp_path, Runner({"task-3": ["boom"] * 9}), ITEMS)
    again = Runner({})
    rows = go(tmp_path, again, ITEMS)
    assert again.calls == []
    assert rows[ITEMS[3]].status == "infrastructure"
    more = [*ITEMS, Item(task(6), 0), Item(task(0), 1)]
    go(tmp_path, again, more)
    assert sorted(again.calls) == ["task-0", "task-6"]


def test_concurrency_is_bounded_and_used(tmp_path):
    runner = Runner({}, seconds=0.05)
    go(tmp_path, runner, ITEMS, concurrency=3)
    assert runner.most == 3


def test_a_dead_engine_stops_the_job_and_what_came_last_is_not_believed(tmp_path):
    runner = Runner({})

    def check():
        if len(runner.calls) >= 4:
            raise RuntimeError("engine died")

    with pytest.raises(RuntimeError, match="engine died"):
        go(tmp_path, runner, ITEMS, concurrency=1, check=check)
    with Journal(tmp_path, {}) as journal:
        finished = [item for item in ITEMS if journal.finished(*item.key)]
    assert len(finished) == 3
    again = Runner({})
    go(tmp_path, again, ITEMS)
    assert len(again.calls) == 3


def test_it_stops_early_where_nothing_works_and_says_why(tmp_path):
    items = [Item(task(number), 0) for number in range(50)]
    runner = Runner({}, default="no such file: pi")
    with pytest.raises(NothingWorks, match="first 8 attempts ended by infrastructure.*Broken: no such file: pi"):
        go(tmp_path, runner, items)
    assert len(runner.calls) < 12
    fine = Runner({})
    rows = go(tmp_path, fine, items)
    assert len(fine.calls) == 50
    assert all(row.solved for row in rows.values())


def test_a_few_attempts_that_all_fail_are_no_measurement(tmp_path):
    with pytest.raises(NothingWorks, match="all 2 attempts"):
        go(tmp_path, Runner({}, default="boom"), ITEMS[:2], retries=0)
    again = Runner({})
    assert all(row.solved for row in go(tmp_path, again, ITEMS[:2]).values())


def test_a_fault_of_the_program_is_no_infrastructure(tmp_path):
    with pytest.raises(KeyError):
        go(tmp_path, Runner({"task-2": [KeyError("task-2")]}), ITEMS)


def test_the_order_depends_on_seed_and_names_alone():
    tasks = [task(number) for number in range(20)]
    order = shuffled(tasks, 2, seed=1)
    assert order == shuffled(list(reversed(tasks)), 2, seed=1)
    assert order != shuffled(tasks, 2, seed=2)
    assert len(set(order)) == 40
    fewer = [item for item in order if item.attempt == 0 and item.task.index < 10]
    assert fewer == shuffled(tasks[:10], 1, seed=1)


def test_progress_tells_counts_and_time_left():
    progress = Progress("pi, base", 4, io.StringIO())
    progress.count(attempt(), fresh=False)
    assert progress.line() == "pi, base: 1/4 done: 1 solved, 0 failed, 0 infrastructure"
    progress.count(attempt(solved=False, rewards={"reward": 0.0}))
    progress.started = time.monotonic() - 10
    assert progress.line() == "pi, base: 2/4 done: 1 solved, 1 failed, 0 infrastructure, 20 s left"
