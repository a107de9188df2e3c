"""Sessions and the worker's loop, with TRL's and OpenEnv's real classes; only the rollout server is a stand-in."""

import contextlib
import functools
import multiprocessing
import queue
import threading
import time
from pathlib import Path

import pytest

pytest.importorskip("trl")
pytest.importorskip("torch")

from openenv.harbor.models import HarborRolloutResult, HarborTurn

from scripts.rollout.outcome import Rollout, broken
from scripts.study.config import Training
from scripts.training.records import read_lines
from scripts.training.rollout_session import SamplingMismatch, SessionFactory, check_sampling, trainable_trace

SAMPLING = {"temperature": 0.8, "top_p": 1.0, "top_k": -1}
TRAINING = Training(rollouts_per_task=2, token_budget=64)


def turn(number, prompt, completion, temperature=0.8, **extra):
    return HarborTurn(
        turn=number, node_id=f"n{number}", prompt_token_ids=prompt, completion_token_ids=completion,
        per_token_logps=[-0.5] * len(completion), loss_mask=[0] * len(prompt) + [1] * len(completion),
        sampling_params={"temperature": temperature, "top_p": 1.0, "top_k": -1}, **extra,
    )  # fmt: skip


def result(*turns, **extra):
    return HarborRolloutResult(turns=list(turns) or [turn(0, [1, 2], [3, 4]), turn(1, [1, 2, 3, 4, 5], [6])], **extra)


def scored(correctness=1.0, calls=1, **extra):
    return Rollout("scored", "finished", None, correctness=correctness, tool_calls=calls, model_calls=2,
                   harness_version="1.6.0", result=result(**extra))  # fmt: skip


class Server:
    """Answers with the given rollouts in turn; an exception among them is raised."""

    def __init__(self, *answers):
        self.answers, self.asked, self.lock = list(answers), [], threading.Lock()

    def run(self, dataset, task_id, model):
        with self.lock:
            self.asked.append((Path(dataset), task_id, model))
            answer = self.answers[(len(self.asked) - 1) % len(self.answers)]
        if isinstance(answer, Exception):
            raise answer
        return answer


def session(server, record, policy=("policy-adapter-v3", 2)):
    factory = SessionFactory(lambda: server, Path("suites"), TRAINING, record, SAMPLING)
    factory.current_policy = lambda: policy
    made = factory.create([{"role": "user", "content": "train/task-7"}], seed=0, episode_id="r1")
    made.pause_s = 0.0
    return made


def test_a_session_names_the_adapter_of_the_moment_and_hands_over_the_engines_tokens(tmp_path):
    server = Server(scored(calls=3))
    rolled = session(server, tmp_path / "rollouts.jsonl")
    assert rolled.wait_for_completion() == 0
    assert server.asked == [(Path("suites/train"), "task-7", "policy-adapter-v3")]
    trace = rolled.fetch_training_trace()
    assert [(t.prompt_token_ids, t.completion_token_ids) for t in trace.turns] == [
        ([1, 2], [3, 4]),
        ([1, 2, 3, 4, 5], [6]),
    ]
    assert rolled.verify([]).env_reward == pytest.approx(1.08)
    (line,) = read_lines(tmp_path / "rollouts.jsonl")
    assert (line["id"], line["suite"], line["task_id"], line["policy_version"]) == ("r1", "train", "task-7", 2)
    assert (line["status"], line["dropped"], line["reward"]) == ("scored", None, pytest.approx(1.08))


@pytest.mark.parametrize(
    ("answer", "status", "cause"),
    [
        (ConnectionResetError("gone"), "failed", "ConnectionResetError"),
        (broken("NoTurns", "the agent never reached the engine"), "infrastructure", "NoTurns"),
    ],
)
def test_a_lost_rollout_is_recorded_and_has_nothing_to_train_on(tmp_path, answer, status, cause):
    rolled = session(Server(answer), tmp_path / "rollouts.jsonl")
    assert rolled.wait_for_completion() == 1
    assert rolled.fetch_training_trace().turns == []
    assert rolled.verify([]).env_reward is None
    (line,) = read_lines(tmp_path / "rollouts.jsonl")
    assert (line["status"], line["error"]["type"], line["reward"]) == (status, cause, None)


def test_a_rollout_that_we_end_ourselves_is_no_failure_of_it(tmp_path):
    rolled = session(Server(ConnectionResetError("gone")), tmp_path / "rollouts.jsonl")
    rolled.close()
    assert rolled.wait_for_completion() == 1
    assert read_lines(tmp_path / "rollouts.jsonl") == []


@pytest.mark.parametrize(
    ("captured", "cause"),
    [
        (None, "no_tokens"),
        (result(rollout_type="eval"), "no_tokens"),
        (result(findings=["[FATAL] turn_mismatch"]), "capture"),
        (result(turn(0, [1], [2], trainable=False)), "capture"),
        (result(turn(0, list(range(60)), [1, 2, 3, 4, 5])), "too_long"),
        (result(turn(0, [1], [2], role="auxiliary")), "no_tokens"),
    ],
)
def test_what_cannot_be_trained_on_is_dropped_with_a_cause(captured, cause):
    trace, dropped = trainable_trace(captured, SAMPLING, 64)
    assert (trace.turns, dropped) == ([], cause)


def test_log_probabilities_must_match_the_tokens():
    torn = turn(0, [1, 2], [3, 4])
    torn.per_token_logps = [-0.5]
    assert trainable_trace(result(torn), SAMPLING, 64)[1] == "capture"


def test_auxiliary_calls_are_not_trained_on():
    trace, dropped = trainable_trace(result(turn(0, [9], [8], role="auxiliary"), turn(1, [1], [2])), SAMPLING, 64)
    assert dropped is None
    assert [t.completion_token_ids for t in trace.turns] == [[2]]


def test_another_sampling_than_the_trainers_ends_the_run():
    with pytest.raises(SamplingMismatch, match=r"temperature 1.0, the trainer computes for 0.8"):
        trainable_trace(result(turn(0, [1], [2], temperature=1.0)), SAMPLING, 64)
    with pytest.raises(SamplingMismatch, match="temperature None"):
        check_sampling({}, SAMPLING)
    with pytest.raises(SamplingMismatch, match="top_k 20"):
        check_sampling({"temperature": 0.8, "top_k": 20}, SAMPLING)
    check_sampling({"temperature": 0.8, "top_k": 0, "extra": 1}, SAMPLING)


def test_without_a_named_policy_there_is_no_session(tmp_path):
    factory = SessionFactory(lambda: Server(scored()), Path("suites"), TRAINING, tmp_path / "r", SAMPLING)
    with pytest.raises(RuntimeError, match="every rollout would be the base's"):
        factory.create([{"role": "user", "content": "train/task-7"}], episode_id="r1")


def run_loop(server, record, enough):
    """Run the worker's loop in a thread until ``enough(samples)``; samples and whether the loop failed."""
    from accelerate.state import PartialState
    from datasets import Dataset
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    from scripts.training.harness_worker import HarnessLoop

    PartialState(cpu=True)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE()), eos_token="</s>", pad_token="</s>")
    tokenizer.response_template = "unused"
    context = multiprocessing.get_context("spawn")
    buffer, failed = queue.Queue(), context.Event()
    names = [f"train/task-{number}" for number in range(4)]
    loop = HarnessLoop(
        hardware="cpu",
        harness_session_factory=functools.partial(SessionFactory, lambda: server, Path("suites"), TRAINING, record),
        model_name="policy",
        lora_name="policy-adapter",
        dataset=Dataset.from_list([{"prompt": [{"role": "user", "content": name}]} for name in names]),
        reward_funcs=[],
        processing_class=tokenizer,
        eos_token_ids=[0],
        num_generations=2,
        max_inflight_tasks=3,
        temperature=0.8,
        rollout_buffer=buffer,
        model_version_value=context.Value("i", 5),
        heartbeat_value=context.Value("d", 0.0),
        failed_event=failed,
        exception_info_queue=queue.Queue(),
        metrics_queue=queue.Queue(),
    )

    def run():
        with contextlib.suppress(Exception):  # the loop reports its end by the event
            loop.run()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    samples, deadline = [], time.monotonic() + 20
    while not enough(samples) and time.monotonic() < deadline and thread.is_alive():
        with contextlib.suppress(queue.Empty):
            samples.append(buffer.get(timeout=0.2))
    with contextlib.suppress(RuntimeError):  # a loop that failed is closed
        loop._loop.call_soon_threadsafe(loop._stop_event.set)
    thread.join(10)
    return samples, failed.is_set(), thread.is_alive()


@pytest.fixture
def impatient(monkeypatch):
    from scripts.rollout import processes
    from scripts.training import harness_worker, rollout_session

    assert processes.end_with_parent is harness_worker.end_with_parent
    monkeypatch.setattr(harness_worker, "end_with_parent", lambda: None)  # the loop runs in this process here
    monkeypatch.setattr(rollout_session.RolloutSession, "pause_s", 0.0)


@pytest.mark.usefixtures("impatient")
def test_training_goes_on_after_failed_rollouts(tmp_path):
    server = Server(scored(1.0), ConnectionResetError("gone"), scored(0.0, 3), broken("EngineError", "no"), scored(0.0))
    samples, failed, alive = run_loop(server, tmp_path / "rollouts.jsonl", lambda samples: len(samples) >= 8)
    assert (failed, alive) == (False, False)
    assert len(samples) >= 8
    lines = {line["id"]: line for line in read_lines(tmp_path / "rollouts.jsonl")}
    trained = [lines[sample.metrics["rollout_id"]] for sample in samples]
    assert {line["status"] for line in trained} == {"scored"}
    assert {line["status"] for line in lines.values()} == {"scored", "failed", "infrastructure"}
    assert {line["policy_version"] for line in lines.values()} == {4}
    assert {model for _, _, model in server.asked} == {"policy-adapter-v5"}


@pytest.mark.usefixtures("impatient")
def test_a_sample_carries_the_reward_of_its_own_rollout(tmp_path):
    server = Server(scored(1.0, 1), scored(0.0, 5))
    samples, failed, _ = run_loop(server, tmp_path / "rollouts.jsonl", lambda samples: len(samples) >= 6)
    assert not failed
    lines = {line["id"]: line for line in read_lines(tmp_path / "rollouts.jsonl")}
    for sample in samples:
        assert sample.metrics["reward"] == pytest.approx(lines[sample.metrics["rollout_id"]]["reward"])


@pytest.mark.usefixtures("impatient")
def test_a_wrong_temperature_ends_the_worker(tmp_path):
    wrong = Rollout("scored", "finished", None, correctness=1.0, result=result(turn(0, [1], [2], temperature=0.7)))
    samples, failed, alive = run_loop(Server(wrong), tmp_path / "rollouts.jsonl", lambda samples: bool(samples))
    assert (samples, failed, alive) == ([], True, False)
