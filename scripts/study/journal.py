"""The journal of an evaluation: every try of every attempt, one line each, on disk as soon as it ended.

It is no output of a rule (Snakemake deletes those of a failed job). Its name carries the fingerprint of everything
that a result depends on; whatever changes one of these opens another journal and leaves the old one where it is.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections import Counter
from pathlib import Path
from typing import IO, Any

from scripts.study.attempts import Attempt, AttemptsError, parse_attempt, to_line
from scripts.study.fingerprints import json_sha256

VERSION = 1
LOCK_WAIT_S = 10.0  # a killed job's lock goes with it, but its last write may take a moment

# A changed task is another one: its hash is part of the key.
Key = tuple[tuple[str, str, int], str]


class JournalError(ValueError):
    """A journal cannot be used; the message names the file, the row and what to do."""


class Journal:
    """An open journal, held by one process at a time.

    :param folder: ``work/eval/<harness>/<policy>``.
    :param identity: JSON value of all that the results depend on, apart from the single task (its hash is in each
        row). What only decides how fast a result comes (concurrency, time-outs of a start, host paths) is no part.
    :raises JournalError: another process holds it, or a line other than a torn last one is broken.
    """

    def __init__(self, folder: str | Path, identity: dict[str, Any]) -> None:
        self.fingerprint = json_sha256(identity)
        self.identity = identity
        self.path = Path(folder) / f"journal-{self.fingerprint[:16]}.jsonl"
        self._finished: dict[Key, Attempt] = {}
        self._latest: dict[Key, Attempt] = {}
        self._failed: Counter[Key] = Counter()
        self._file: IO[bytes] | None = None

    def __enter__(self) -> Journal:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        file = self.path.open("ab+")
        try:
            self._lock(file)
            self._file = file
            self._read(file)
        except BaseException:
            file.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def finished(self, suite: str, task_id: str, attempt: int, task_sha256: str) -> Attempt | None:
        """The attempt's last word, if it has one and the task is still the same: a grade, or retries used up."""
        return self._finished.get(((suite, task_id, attempt), task_sha256))

    def infrastructure_tries(self, suite: str, task_id: str, attempt: int, task_sha256: str) -> int:
        """How many tries of this attempt on this very task ended by infrastructure, in all runs so far."""
        return self._failed[(suite, task_id, attempt), task_sha256]

    def add(self, row: Attempt) -> None:
        """Write one try; it is on disk when this returns. A graded one is the attempt's last.

        :raises JournalError: the attempt has its last word already.
        """
        key = _key(row)
        if key in self._finished:
            raise JournalError(f"{self.path}: {row.suite}/{row.task_id}, attempt {row.attempt} is finished already")
        self._write({"t": round(time.time(), 3), "try": json.loads(to_line(row))})
        self._take(row)

    def conclude(self, row: Attempt) -> None:
        """Say that an attempt whose last try, already written, ended by infrastructure is not tried again.

        :raises JournalError: no such try was written.
        """
        if self._latest.get(_key(row)) != row:
            raise JournalError(f"{self.path}: {row.suite}/{row.task_id}, attempt {row.attempt}: no such try")
        self._write({"t": round(time.time(), 3), "concluded": list(_flat(_key(row)))})
        self._finished[_key(row)] = row

    def _take(self, row: Attempt) -> None:
        self._latest[_key(row)] = row
        if row.status == "infrastructure":
            self._failed[_key(row)] += 1
        else:
            self._finished[_key(row)] = row

    def _lock(self, file: IO[bytes]) -> None:
        until = time.monotonic() + LOCK_WAIT_S
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if time.monotonic() > until:
                    raise JournalError(f"{self.path}: another run is writing it; wait for it or end it") from None
                time.sleep(0.1)

    def _write(self, value: dict[str, Any]) -> None:
        if self._file is None:
            raise JournalError(f"{self.path}: not open")
        self._file.write(json.dumps(value, ensure_ascii=False, allow_nan=False).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def _read(self, file: IO[bytes]) -> None:
        """Take up what is there; a last line without its end was being written at a kill and is cut off."""
        file.seek(0)
        data = file.read()
        whole = data.rfind(b"\n") + 1
        if whole < len(data):
            file.truncate(whole)
        lines = data[:whole].split(b"\n")[:-1]
        if not lines:
            self._write({"journal": VERSION, "fingerprint": self.fingerprint, "identity": self.identity})
            return
        for number, line in enumerate(lines, 1):
            where = f"{self.path}, row {number}"
            try:
                value = json.loads(line)
                if number == 1:
                    if value["journal"] != VERSION or value["fingerprint"] != self.fingerprint:
                        raise JournalError(f"{where}: belongs to another measurement; move the file away")
                elif "concluded" in value:
                    suite, task_id, attempt, sha256 = value["concluded"]
                    key = ((suite, task_id, attempt), sha256)
                    self._finished[key] = self._latest[key]
                else:
                    self._take(parse_attempt(json.dumps(value["try"]), where))
            except JournalError:
                raise
            except (ValueError, KeyError, TypeError) as error:
                reason = str(error) if isinstance(error, AttemptsError) else f"{where}: broken line ({error!r})"
                raise JournalError(f"{reason}; move the file away to measure anew") from None


def _key(row: Attempt) -> Key:
    return ((row.suite, row.task_id, row.attempt), row.task_sha256)


def _flat(key: Key) -> tuple[str, str, int, str]:
    return (*key[0], key[1])
