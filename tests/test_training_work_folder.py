import pytest

from scripts.study.config import Engine, Rollout, Sandbox, Training
from scripts.study.jobs import Serving, TrainJob
from scripts.study.suite_index import TaskRow
from scripts.training import work_folder


def job(**training):
    return TrainJob(
        harness="pi", seed=0, hardware="cpu", serving=Serving(dtype="float32"), engine=Engine(), sandbox=Sandbox(),
        rollout=Rollout(), training=Training(**training),
    )  # fmt: skip


def task(name, sha="0" * 64):
    return TaskRow(suite="s", role="train", task_id=name, index=0, path=f"suites/s/tasks/{name}", sha256=sha,
                   difficulty="easy", cluster=None)  # fmt: skip


def same(one, other):
    return work_folder.json_sha256(one) == work_folder.json_sha256(other)


def test_whatever_changes_what_is_learned_changes_the_identity():
    tasks = [task("a"), task("b")]
    base = work_folder.identity(job(), "f" * 64, tasks)
    assert same(base, work_folder.identity(job(), "f" * 64, tasks[::-1]))
    for other in (
        work_folder.identity(job(learning_rate=1.0e-3), "f" * 64, tasks),
        work_folder.identity(job(recipe_version=2), "f" * 64, tasks),
        work_folder.identity(job(), "e" * 64, tasks),
        work_folder.identity(job(), "f" * 64, [task("a"), task("b", "1" * 64)]),
        work_folder.identity(job(), "f" * 64, tasks[:1]),
    ):
        assert not same(base, other)


def test_a_longer_patience_does_not_throw_the_run_away():
    base = work_folder.identity(job(), "f" * 64, [task("a")])
    assert same(base, work_folder.identity(job(no_progress_timeout_s=5.0, concurrency=9), "f" * 64, [task("a")]))


def test_more_preflight_tasks_do_not_throw_the_run_away():
    other = job().model_copy(update={"sandbox": Sandbox(preflight_tasks=5)})
    assert same(work_folder.identity(job(), "f" * 64, [task("a")]), work_folder.identity(other, "f" * 64, [task("a")]))


def test_another_identity_opens_another_folder_and_leaves_the_old_one(tmp_path):
    with work_folder.work_folder(tmp_path, {"a": 1}) as first:
        (first / "kept").touch()
    with work_folder.work_folder(tmp_path, {"a": 2}) as second:
        assert second != first
    assert (first / "kept").exists()
    with work_folder.work_folder(tmp_path, {"a": 1}) as again:
        assert again == first


def test_two_runs_never_share_a_folder(tmp_path):
    with (
        work_folder.work_folder(tmp_path, {"a": 1}),
        pytest.raises(work_folder.WorkFolderError, match="another training of the same job runs"),
        work_folder.work_folder(tmp_path, {"a": 1}),
    ):
        pass


def test_only_complete_checkpoints_count(tmp_path):
    assert work_folder.newest_checkpoint(tmp_path) == (0, None)
    for step in (2, 10, 12):
        (tmp_path / f"checkpoint-{step}").mkdir()
        (tmp_path / f"checkpoint-{step}" / "adapter_model.safetensors").write_bytes(b"x")
    work_folder.mark_complete(tmp_path / "checkpoint-2", 2)
    work_folder.mark_complete(tmp_path / "checkpoint-10", 10)
    assert list(work_folder.complete_checkpoints(tmp_path)) == [2, 10]
    assert work_folder.newest_checkpoint(tmp_path) == (10, tmp_path / "checkpoint-10")
    assert work_folder.remove_incomplete(tmp_path) == ["checkpoint-12"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint-10", "checkpoint-2"]
