"""The journal: nothing finished is lost by a kill, and nothing of another measurement is taken up."""

import multiprocessing
import os
import signal
import time

import pytest

from scripts.study import journal as journal_module
from scripts.study.journal import Journal, JournalError
from tests.test_attempts import BROKEN, attempt

ENDED = {**BROKEN, "error": {"type": "EngineDied", "message": "gone"}}
WHO = ("held", "task-1", 0, "a" * 64)


def test_a_finished_attempt_is_taken_up_by_the_next_run(tmp_path):
    with Journal(tmp_path, {"policy": "x"}) as journal:
        assert journal.finished(*WHO) is None
        journal.add(attempt())
    with Journal(tmp_path, {"policy": "x"}) as journal:
        assert journal.finished(*WHO) == attempt()
        assert journal.finished("held", "task-1", 1, "a" * 64) is None
        assert journal.finished("other", "task-1", 0, "a" * 64) is None


def test_a_changed_task_is_not_taken_up(tmp_path):
    with Journal(tmp_path, {}) as journal:
        journal.add(attempt())
        assert journal.finished("held", "task-1", 0, "f" * 64) is None


def test_another_identity_opens_another_journal_and_leaves_the_old_one(tmp_path):
    with Journal(tmp_path, {"temperature": 0.8}) as journal:
        journal.add(attempt())
        old = journal.path
    before = old.read_bytes()
    with Journal(tmp_path, {"temperature": 1.0}) as journal:
        assert journal.finished(*WHO) is None
    assert old.read_bytes() == before
    assert len(list(tmp_path.iterdir())) == 2


def test_order_of_keys_is_no_identity(tmp_path):
    assert Journal(tmp_path, {"a": 1, "b": 2}).path == Journal(tmp_path, {"b": 2, "a": 1}).path


def test_infrastructure_tries_are_kept_and_counted_and_end_only_when_said_so(tmp_path):
    with Journal(tmp_path, {}) as journal:
        journal.add(attempt(**ENDED))
        journal.add(attempt(**ENDED))
    with Journal(tmp_path, {}) as journal:
        assert journal.finished(*WHO) is None
        assert journal.infrastructure_tries(*WHO) == 2
        journal.add(attempt(**ENDED))
        journal.conclude(attempt(**ENDED))
    with Journal(tmp_path, {}) as journal:
        assert journal.finished(*WHO).status == "infrastructure"
        assert journal.infrastructure_tries(*WHO) == 3
        with pytest.raises(JournalError, match="no such try"):
            journal.conclude(attempt("task-2", **ENDED))


def test_a_scored_attempt_is_never_tried_again(tmp_path):
    with Journal(tmp_path, {}) as journal:
        journal.add(attempt())
        with pytest.raises(JournalError, match="finished already"):
            journal.add(attempt())


def test_a_torn_last_line_is_cut_off_and_the_next_line_stands_alone(tmp_path):
    with Journal(tmp_path, {}) as journal:
        journal.add(attempt())
        journal.add(attempt("task-2"))
    data = journal.path.read_bytes()
    journal.path.write_bytes(data[:-20])
    with Journal(tmp_path, {}) as journal:
        assert journal.finished(*WHO)
        assert journal.finished("held", "task-2", 0, "a" * 64) is None
        journal.add(attempt("task-2"))
    with Journal(tmp_path, {}) as journal:
        assert journal.finished("held", "task-2", 0, "a" * 64)


def test_a_torn_header_is_written_again(tmp_path):
    with Journal(tmp_path, {}) as journal:
        pass
    journal.path.write_bytes(journal.path.read_bytes()[:10])
    with Journal(tmp_path, {}) as journal:
        journal.add(attempt())
    with Journal(tmp_path, {}) as journal:
        assert journal.finished(*WHO)


def test_a_broken_line_in_the_middle_is_an_error_with_its_row(tmp_path):
    with Journal(tmp_path, {}) as journal:
        journal.add(attempt())
        journal.add(attempt("task-2"))
    rows = journal.path.read_bytes().splitlines(keepends=True)
    rows[1] = b"{\n"
    journal.path.write_bytes(b"".join(rows))
    with pytest.raises(JournalError, match="row 2"), Journal(tmp_path, {}):
        pass


def _hold(folder, ready):
    with Journal(folder, {}) as journal:
        journal.add(attempt())
        ready.set()
        time.sleep(60)


def test_two_runs_cannot_write_one_journal_and_a_kill_frees_it(tmp_path, monkeypatch):
    monkeypatch.setattr(journal_module, "LOCK_WAIT_S", 0.3)
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    other = context.Process(target=_hold, args=(tmp_path, ready))
    other.start()
    try:
        assert ready.wait(30)
        with pytest.raises(JournalError, match="another run is writing it"), Journal(tmp_path, {}):
            pass
        os.kill(other.pid, signal.SIGKILL)
        other.join()
        with Journal(tmp_path, {}) as journal:
            assert journal.finished(*WHO)
    finally:
        other.kill()
