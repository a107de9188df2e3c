import hashlib

import pytest

from scripts.study.fingerprints import (
    FingerprintError,
    file_sha256,
    folder_files,
    folder_sha256,
    json_sha256,
    task_content_sha256,
)


def make_task(folder, instruction="What?", data="a\n1\n", gold="1"):
    (folder / "environment" / "input").mkdir(parents=True)
    (folder / "tests").mkdir()
    (folder / "instruction.md").write_text(instruction)
    (folder / "environment" / "input" / "a.csv").write_text(data)
    (folder / "tests" / "gold").write_text(gold)
    return folder


def test_file_hash_is_sha256(tmp_path):
    (tmp_path / "a").write_bytes(b"abc")
    assert file_sha256(tmp_path / "a") == hashlib.sha256(b"abc").hexdigest()


def test_folder_hash_sees_names_and_bytes_only(tmp_path):
    for name in ("one", "two"):
        (tmp_path / name / "sub").mkdir(parents=True)
        (tmp_path / name / "sub" / "f").write_text("x")
    (tmp_path / "two" / "sub" / "f").chmod(0o600)
    assert folder_sha256(tmp_path / "one") == folder_sha256(tmp_path / "two")
    (tmp_path / "two" / ".snakemake_timestamp").touch()
    assert folder_sha256(tmp_path / "one") == folder_sha256(tmp_path / "two")
    (tmp_path / "two" / "sub" / "f").rename(tmp_path / "two" / "f")
    assert folder_sha256(tmp_path / "one") != folder_sha256(tmp_path / "two")


def test_links_to_files_count_as_files_and_broken_ones_are_errors(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    (tmp_path / "blob").write_text("x")
    (folder / "f").symlink_to(tmp_path / "blob")
    assert folder_files(folder) == {"f": hashlib.sha256(b"x").hexdigest()}
    (folder / "g").symlink_to(tmp_path / "nothing")
    with pytest.raises(FingerprintError, match="g: neither"):
        folder_files(folder)


def test_missing_folder_is_named(tmp_path):
    with pytest.raises(FingerprintError, match="nowhere"):
        folder_sha256(tmp_path / "nowhere")


def test_json_hash_ignores_order_of_keys():
    assert json_sha256({"a": 1, "b": [2]}) == json_sha256({"b": [2], "a": 1})
    assert json_sha256({"a": 1}) != json_sha256({"a": 1.5})


def test_task_content_is_instruction_and_data(tmp_path):
    first = task_content_sha256(make_task(tmp_path / "a"))
    assert task_content_sha256(make_task(tmp_path / "b", instruction="What?\n", gold="2")) == first
    assert task_content_sha256(make_task(tmp_path / "c", instruction="Why?")) != first
    assert task_content_sha256(make_task(tmp_path / "d", data="a\n2\n")) != first
    (tmp_path / "a" / "instruction.md").unlink()
    with pytest.raises(FingerprintError, match=r"instruction\.md"):
        task_content_sha256(tmp_path / "a")
