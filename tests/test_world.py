import random
import subprocess

import pytest

from scripts.demo.world import EXPRESSIONS, QUESTIONS, ROLE_SHARES, WRONG_KIND, Question, draw_task


def tasks(role, count, seed=0):
    rng = random.Random(seed)
    return [draw_task(rng, role) for _ in range(count)]


def test_commands_compute_the_answers_in_a_real_shell(tmp_path):
    seen = set()
    for task in tasks("train", 60):
        if task.question.kind in seen:
            continue
        seen.add(task.question.kind)
        (tmp_path / task.question.file).write_text(task.csv())
        for kind in (task.question.kind, WRONG_KIND[task.question.kind]):
            command = task.command(kind, save=False)
            done = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, timeout=20)
            assert done.stdout.strip() == task.answer(kind), command
    assert seen == set(QUESTIONS) == set(EXPRESSIONS) - {"rows"}


def test_same_seed_same_tasks():
    assert tasks("heldout", 20, seed=4) == tasks("heldout", 20, seed=4)
    assert tasks("heldout", 20, seed=4) != tasks("heldout", 20, seed=5)


@pytest.mark.parametrize("role", list(ROLE_SHARES))
def test_every_task_is_of_its_role_and_no_careless_command_solves_it(role):
    for task in tasks(role, 60):
        gold = task.answer()
        assert task.question.role() == role
        assert gold not in ("", "0", None)
        assert task.answer(WRONG_KIND[task.question.kind]) != gold


def test_role_depends_on_what_is_asked_only():
    one = Question("sum", "sales.csv", "price", "region", "north")
    assert one.role() == Question("sum", "sales.csv", "price", "color", "red").role()
    roles = [Question("sum", f"{i}.csv", "price", "region", "north").role() for i in range(3000)]
    for role, share in ROLE_SHARES.items():
        assert abs(roles.count(role) / 30 - share) < 4
