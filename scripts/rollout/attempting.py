"""Running many attempts: bounded concurrency, bounded retries, and knowing when to stop.

An attempt that ends by infrastructure is tried again, at the end of the queue and in a fresh sandbox; one that was
graded never is, whatever the grade.
"""

from __future__ import annotations

import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import TextIO, TypeVar

from scripts.study.attempts import Attempt
from scripts.study.fingerprints import text_sha256
from scripts.study.journal import Journal
from scripts.study.suite_index import TaskRow

Outcome = TypeVar("Outcome")
REPORT_EVERY_S = 5.0


class NothingWorks(RuntimeError):
    """No attempt gets a grade; the message says what they all end by."""


@dataclass(frozen=True)
class Item:
    """An attempt to be made."""

    task: TaskRow
    attempt: int

    @property
    def key(self) -> tuple[str, str, int, str]:
        """What a journal knows it by."""
        return (self.task.suite, self.task.task_id, self.attempt, self.task.sha256)


def shuffled(tasks: Sequence[TaskRow], attempts: int, seed: int) -> list[Item]:
    """All attempts in an order that depends on the seed and their names alone, so that it is alike for all policies."""
    items = [Item(task, attempt) for task in tasks for attempt in range(attempts)]
    return sorted(items, key=lambda item: text_sha256(f"{seed}/{item.task.suite}/{item.task.task_id}/{item.attempt}"))


@dataclass
class Progress:
    """Counts for the terminal.

    :param name: what is measured.
    :param total: attempts in all; the counts start with those that earlier runs finished.
    """

    name: str
    total: int
    out: TextIO = sys.stderr
    solved: int = 0
    failed: int = 0
    infrastructure: int = 0
    tries_again: int = 0
    fresh: int = 0
    """Attempts finished in this run, from which the time left is estimated."""
    started: float = field(default_factory=time.monotonic)
    _reported: float = 0.0

    @property
    def done(self) -> int:
        """Finished attempts."""
        return self.solved + self.failed + self.infrastructure

    def count(self, row: Attempt, *, fresh: bool = True) -> None:
        """Count a finished attempt."""
        self.fresh += fresh
        if row.status == "infrastructure":
            self.infrastructure += 1
        elif row.solved:
            self.solved += 1
        else:
            self.failed += 1

    def line(self) -> str:
        """One line: done/total, solved, failed, infrastructure, time left."""
        text = (
            f"{self.name}: {self.done}/{self.total} done: {self.solved} solved, {self.failed} failed, "
            f"{self.infrastructure} infrastructure"
        )
        if self.tries_again:
            text += f" ({self.tries_again} tries again)"
        left = self.total - self.done
        if left and self.fresh:
            seconds = (time.monotonic() - self.started) / self.fresh * left
            text += f", {seconds:.0f} s left" if seconds < 120 else f", {seconds / 60:.0f} min left"
        return text

    def report(self, *, now: bool = False) -> None:
        """Print the line, unless it was printed a moment ago."""
        if now or time.monotonic() - self._reported >= REPORT_EVERY_S:
            self._reported = time.monotonic()
            print(self.line(), file=self.out, flush=True)


def run_attempts(
    items: Sequence[Item],
    *,
    run: Callable[[Item], Outcome],
    record: Callable[[Item, Outcome, int], Attempt],
    journal: Journal,
    check: Callable[[], None],
    concurrency: int,
    retries: int,
    progress: Progress,
) -> dict[Item, Attempt]:
    """Run the attempts that the journal does not know as finished, and return the last word on all.

    :param run: makes one try, in a thread of its own; an exception of it ends the job.
    :param record: makes the row of a try from its outcome and the number of earlier tries that ended by
        infrastructure; called in this thread.
    :param check: raises when the engine or the server is gone. It is asked before an outcome is believed.
    :param retries: further tries, in this run, of an attempt that ends by infrastructure.
    :raises NothingWorks: the first tries of several attempts all ended by infrastructure, or every attempt did.
    """
    results: dict[Item, Attempt] = {}
    queue: deque[Item] = deque()
    for item in items:
        row = journal.finished(*item.key)
        if row is None:
            queue.append(item)
        else:
            results[item] = row
            progress.count(row, fresh=False)
    if not queue:
        progress.report(now=True)
        return results

    enough = max(8, concurrency)
    tries: Counter[Item] = Counter()
    causes: Counter[str] = Counter()
    exhausted: dict[Item, Attempt] = {}
    graded = 0
    running: dict[Future[Outcome], Item] = {}
    pool = ThreadPoolExecutor(concurrency, thread_name_prefix="attempt")
    try:
        while queue or running:
            while queue and len(running) < concurrency:
                item = queue.popleft()
                running[pool.submit(run, item)] = item
            # The time-out lets signals in, and a dead engine be noticed while agents still wait for it.
            done, _ = wait(running, timeout=1.0, return_when=FIRST_COMPLETED)
            check()
            for future in done:
                item = running.pop(future)
                row = record(item, future.result(), journal.infrastructure_tries(*item.key))
                journal.add(row)
                if row.status == "scored":
                    graded += 1
                    results[item] = row
                    progress.count(row)
                    continue
                tries[item] += 1
                causes[_cause(row)] += 1
                if tries[item] <= retries:
                    progress.tries_again += 1
                    queue.append(item)
                else:
                    exhausted[item] = row
                    progress.count(row)
                if not graded and len(tries) >= enough:
                    raise NothingWorks(_why(progress.name, causes, f"the first {len(tries)} attempts"))
            progress.report()
    finally:
        # Threads that still wait for an agent end when their server does, which the caller ends.
        pool.shutdown(wait=False, cancel_futures=True)
    if exhausted and not graded and not any(row.status == "scored" for row in results.values()):
        raise NothingWorks(_why(progress.name, causes, f"all {len(exhausted)} attempts"))
    for item, row in exhausted.items():
        journal.conclude(row)
        results[item] = row
    progress.report(now=True)
    return results


def _cause(row: Attempt) -> str:
    error = row.error
    return f"{error.type}: {error.message[:300]}" if error else "no reason given"


def _why(name: str, causes: Counter[str], which: str) -> str:
    cause, times = causes.most_common(1)[0]
    return f"{name}: {which} ended by infrastructure and none was graded; {times} times: {cause}"
