import random

import pytest

pytest.importorskip("torch")
pytest.importorskip("trl")

import torch

from scripts.demo.tokenizer import build_tokenizer
from scripts.demo.training import (
    batches,
    collate,
    command_lesson,
    loss_of,
    make_lessons,
    new_model,
    rate_factor,
    stage_of,
    train_policy,
)
from scripts.demo.transcripts import read_request
from scripts.demo.world import draw_task
from scripts.study.config import DemoPolicy
from tests.recorded_request import write_request

TINY = DemoPolicy(hidden_size=32, layers=1, transcripts=40, steps=6, batch_tokens=1024, threads=1)


@pytest.fixture(scope="module")
def request_of_pi(tmp_path_factory):
    return read_request(write_request(tmp_path_factory.mktemp("prompts") / "pi.json"))


@pytest.fixture(scope="module")
def tokenizer(request_of_pi):
    return build_tokenizer(0, [request_of_pi])


def test_same_seed_same_weights(tokenizer, request_of_pi):
    lines = []
    first, second = (train_policy(tokenizer, [request_of_pi], TINY, 3, lines.append).state_dict() for _ in range(2))
    assert all(torch.equal(first[name], second[name]) for name in first)
    other = train_policy(tokenizer, [request_of_pi], TINY, 4, lines.append).state_dict()
    assert not torch.equal(first["model.embed_tokens.weight"], other["model.embed_tokens.weight"])
    assert "step 6/6, stage 3" in lines[-1]


def test_lessons_come_from_training_questions_and_get_longer(tokenizer, request_of_pi):
    lessons = make_lessons(tokenizer, [request_of_pi], TINY, 0)
    lengths = [
        sum(len(ids) for ids, _ in examples) / len(examples)
        for examples in (lessons.commands, lessons.short_prompts, lessons.whole_prompts)
    ]
    assert lengths == sorted(lengths)
    assert all(0 < sum(mask) < len(ids) for ids, mask in lessons.whole_prompts)


def test_command_lesson_asks_for_values_from_anywhere():
    rng = random.Random(0)
    task = next(t for t in iter(lambda: draw_task(rng, "train"), None) if t.question.kind == "count")
    commands = set()
    for _ in range(20):
        asked, said = command_lesson(rng, task, "pi", "")
        command = said["tool_calls"][0]["function"]["arguments"]["command"]
        value = command.split("=='")[1].split("'")[0]
        assert value in asked["content"]
        commands.add(value)
    assert len(commands) > 10


def test_batches_hold_every_example_once_and_keep_the_limit():
    examples = [([number] * (5 + number % 40), [0]) for number in range(700)]
    drawn = batches(examples, 200, random.Random(0))
    seen = []
    while len(seen) < len(examples):
        batch = next(drawn)
        assert len(batch) * max(len(ids) for ids, _ in batch) <= 200
        seen += [ids[0] for ids, _ in batch]
    assert sorted(seen) == list(range(700))


def test_padding_does_not_change_the_loss(tokenizer):
    torch.manual_seed(0)
    model = new_model(tokenizer, TINY).eval()
    short, long = ([5, 6, 7, 8], [0, 0, 1, 1]), (list(range(20)), [0] * 20)
    alone = loss_of(model, *collate([short], 0))
    padded = loss_of(model, *collate([short, long], 0))
    assert torch.allclose(alone, padded, atol=2e-2)


def test_learning_rate_rises_stays_and_falls():
    factors = [rate_factor(step, 1000) for step in range(1000)]
    assert factors[0] == pytest.approx(1 / 30)
    assert factors[100] == factors[499] == 1.0
    assert factors[750] == pytest.approx(0.5)
    assert 0 < factors[-1] < 0.01


def test_stages_follow_each_other():
    stages = [stage_of(step, 800) for step in range(800)]
    assert [stages.count(stage) for stage in range(3)] == [200, 360, 240]
    assert stages == sorted(stages)
    assert [stage_of(step, 4) for step in range(4)] == [0, 1, 1, 2]
