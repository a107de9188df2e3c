import random

import pytest

from scripts.demo.experts import Bash, solve
from scripts.demo.simulate import Trial, say
from scripts.demo.transcripts import opening, turn
from scripts.demo.world import QUESTIONS, WRONG_KIND, draw_task


def trials(count):
    rng = random.Random(2)
    for _ in range(count):
        task = draw_task(rng, "heldout")
        yield Trial(task, opening(task.instruction(), ""))


def test_commands_of_every_kind_give_their_answers():
    seen = set()
    for trial in trials(80):
        task = trial.task
        seen.add(task.question.kind)
        assert trial.run(task.command(save=False)).output == f"{task.answer()}\n"
        assert not trial.solved
        assert trial.run(task.command(WRONG_KIND[task.question.kind])).output == ""
        assert not trial.solved
        trial.run(task.command())
        assert trial.solved
        assert trial.run(f"cat {task.answer_file}").output == f"{task.answer()}\n"
    assert seen == set(QUESTIONS)


def test_failing_commands_fail_and_empty_the_file():
    trial = next(trials(1))
    task = trial.task
    trial.run(task.command())
    assert trial.run("rm -rf /").failed
    assert trial.run("head -3 data.csv").failed
    assert trial.solved
    broken = task.command().replace(task.question.file, "nothing.csv")
    assert trial.run(broken).failed
    assert not trial.solved


@pytest.mark.parametrize("seed", range(5))
def test_outputs_are_those_that_experts_saw(seed):
    """Every call of an expert gives in the simulation what the transcript says it gave."""
    rng = random.Random(seed)
    session = solve(rng, draw_task(rng, "train"), 1.5, 0.0)
    trial = Trial(session.task, opening(session.task.instruction(), ""))
    for step in session.steps:
        if isinstance(step, Bash) and step.command != "ls":
            assert trial.run(step.command) == step


def test_conversation_grows_by_calls_and_ends_with_text():
    trial = next(trials(1))
    call = "<tool_call>\n<function=bash>\n<parameter=command>\n{}\n</parameter>\n</function>\n</tool_call>"
    say(trial, "pi", call.format(trial.task.command()))
    assert trial.shown[2:] == turn("pi", Bash(trial.task.command(), ""))
    assert not trial.finished
    say(trial, "pi", "Done.")
    assert trial.finished
    assert (trial.calls, trial.solved) == (1, True)
