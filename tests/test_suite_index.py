import pytest

from scripts.study.suite_index import SuiteError, TaskRow, check_disjoint, read_index, write_index


def row(task_id, index=0, suite="s", role="train"):
    return TaskRow(
        suite=suite,
        role=role,
        task_id=task_id,
        index=index,
        path=f"suites/{suite}/tasks/{task_id}",
        sha256="0" * 64,
        difficulty="easy",
        cluster=None,
    )


def test_written_index_reads_back_in_order(tmp_path):
    path = tmp_path / "s.jsonl"
    write_index(path, [row("b", 2), row("a", 1)])
    assert read_index(path) == [row("a", 1), row("b", 2)]


def test_cut_line_names_the_file(tmp_path):
    path = tmp_path / "s.jsonl"
    write_index(path, [row("a")])
    path.write_text(path.read_text()[:-1])
    with pytest.raises(SuiteError, match=r"s\.jsonl: the last line is cut"):
        read_index(path)


def test_bad_row_names_row_and_key(tmp_path):
    path = tmp_path / "s.jsonl"
    path.write_text(row("a").model_dump_json() + "\n" + row("b").model_dump_json().replace('"easy"', '"tough"') + "\n")
    with pytest.raises(SuiteError, match=r"row 2: difficulty"):
        read_index(path)


def test_task_twice_names_both_rows(tmp_path):
    path = tmp_path / "s.jsonl"
    write_index(path, [row("a", 0), row("a", 1)])
    with pytest.raises(SuiteError, match="row 2: task a is already in row 1"):
        read_index(path)


def test_missing_index_says_what_to_do(tmp_path):
    with pytest.raises(SuiteError, match="make the suite first"):
        read_index(tmp_path / "none.jsonl")


def test_same_content_in_two_roles_is_refused_with_both_names(tmp_path):
    rows = [row("a"), row("b", suite="other", role="heldout")]
    for entry in rows:
        folder = tmp_path / entry.path
        folder.mkdir(parents=True)
        (folder / "instruction.md").write_text("Same question")
    with pytest.raises(SuiteError, match=r"other/b \(heldout\) and s/a \(train\) are the same task"):
        check_disjoint(rows, tmp_path)
    (tmp_path / rows[1].path / "instruction.md").write_text("Another question")
    assert set(check_disjoint(rows, tmp_path)) == {"s/a", "other/b"}
