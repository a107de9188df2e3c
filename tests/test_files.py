import stat

import pytest

from scripts.study.files import folder_written_whole, write_atomic, write_json


def test_write_atomic_replaces_and_leaves_nothing_else(tmp_path):
    path = tmp_path / "new" / "a.txt"
    write_atomic(path, "one")
    write_atomic(path, b"two")
    assert path.read_text() == "two"
    assert list(path.parent.iterdir()) == [path]
    assert stat.S_IMODE(path.stat().st_mode) & 0o400


def test_write_atomic_keeps_the_old_content_if_it_cannot_finish(tmp_path):
    path = tmp_path / "a.txt"
    write_atomic(path, "old")
    with pytest.raises(UnicodeEncodeError):
        write_atomic(path, "\ud800")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_write_json_refuses_nan(tmp_path):
    with pytest.raises(ValueError):
        write_json(tmp_path / "a.json", {"x": float("nan")})
    assert not list(tmp_path.iterdir())


def test_folder_is_there_whole_or_as_before(tmp_path):
    target = tmp_path / "model"
    with folder_written_whole(target) as work:
        (work / "a").write_text("1")
    with pytest.raises(FileNotFoundError), folder_written_whole(target) as work:
        (work / "b" / "missing").write_text("2")
    assert [path.name for path in target.iterdir()] == ["a"]
    with folder_written_whole(target) as work:
        (work / "c").write_text("3")
    assert [path.name for path in target.iterdir()] == ["c"]
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_leftover_of_a_killed_run_is_not_mixed_in(tmp_path):
    leftover = tmp_path / ".model.unfinished"
    leftover.mkdir()
    (leftover / "half").write_text("x")
    with folder_written_whole(tmp_path / "model") as work:
        assert not list(work.iterdir())
