import json
import random

import pytest

pytest.importorskip("torch")
pytest.importorskip("trl")

from scripts.demo.experts import solve
from scripts.demo.tokenizer import (
    LONGEST_FRAGMENT,
    MARKERS,
    TURN_END,
    assistant_mask,
    build_tokenizer,
    fragments,
    prompt_pieces,
)
from scripts.demo.transcripts import messages, opening, read_request
from scripts.demo.vocabulary import NAMES
from scripts.demo.world import draw_task
from tests.recorded_request import SYSTEM, write_request


@pytest.fixture(scope="module")
def request_of_pi(tmp_path_factory):
    return read_request(write_request(tmp_path_factory.mktemp("prompts") / "pi.json"))


@pytest.fixture(scope="module")
def tokenizer(request_of_pi):
    return build_tokenizer(0, [request_of_pi])


def conversations(request, count):
    rng = random.Random(9)
    for _ in range(count):
        session = solve(rng, draw_task(rng, "train"), 1.0, 0.3)
        yield messages(session, "pi", request.system, rng.choice(("", "\n")))


def test_names_and_markers_are_one_token_each(tokenizer):
    for text in (*NAMES, *MARKERS):
        assert len(tokenizer.encode(text, add_special_tokens=False)) == 1, text


def test_no_spoken_token_is_too_long_for_llama_cpp(tokenizer):
    assert all(len(text.encode()) <= LONGEST_FRAGMENT for text in fragments())
    read_only = set(prompt_pieces(SYSTEM))
    long = {text for text in tokenizer.get_added_vocab() if len(text.encode()) > LONGEST_FRAGMENT}
    assert long <= read_only


def test_text_survives(tokenizer):
    for text in ("sum(int(r['price']) for r in R)\n", "naïve ☃ text, 12.5%", "averages and teammates"):
        assert tokenizer.decode(tokenizer.encode(text, add_special_tokens=False)) == text


def test_every_turn_extends_the_one_before_token_for_token(tokenizer, request_of_pi):
    """What the engine sampled stays a prefix of the next prompt, so that training never re-tokenises."""
    tools = list(request_of_pi.tools)

    def ids(shown, prompt):
        text = tokenizer.apply_chat_template(shown, tools=tools, tokenize=False, add_generation_prompt=prompt)
        return tokenizer.encode(text, add_special_tokens=False)

    end = tokenizer.convert_tokens_to_ids(TURN_END)
    for shown in conversations(request_of_pi, 100):
        before = []
        for position, message in enumerate(shown):
            if message["role"] != "assistant":
                continue
            prompt = ids(shown[:position], True)
            assert prompt[: len(before)] == before
            said = ids(shown[: position + 1], False)
            assert said[: len(prompt)] == prompt
            # The engine's own tokens end with the end of the turn; the template adds the line break later.
            before = said[: len(said) - said[::-1].index(end)]


def test_mask_covers_what_the_policy_says_and_nothing_else(tokenizer, request_of_pi):
    start = tokenizer.encode("<|im_start|>assistant\n", add_special_tokens=False)
    end = tokenizer.convert_tokens_to_ids(TURN_END)
    for shown in conversations(request_of_pi, 20):
        ids = tokenizer.encode(tokenizer.apply_chat_template(shown, tokenize=False), add_special_tokens=False)
        mask = assistant_mask(ids, start, end)
        said = tokenizer.decode([token for token, own in zip(ids, mask, strict=True) if own])
        turns = [m for m in shown if m["role"] == "assistant"]
        assert said.count(TURN_END) == len(turns)
        assert said.count("<tool_call>") == len(turns) - 1
        assert said.endswith(turns[-1]["content"] + TURN_END)
        assert "tool_response" not in said


def test_saved_tokenizer_keeps_template_and_parses_calls(tokenizer, tmp_path):
    from transformers import AutoTokenizer
    from trl.chat_template_utils import qwen3_5_template

    tokenizer.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    assert loaded.response_template == qwen3_5_template
    assert loaded.chat_template == tokenizer.chat_template
    said = "<tool_call>\n<function=bash>\n<parameter=command>\nls\n</parameter>\n</function>\n</tool_call><|im_end|>"
    parsed = loaded.parse_response(loaded.encode(said, add_special_tokens=False), prefix="<|im_start|>assistant\n")
    assert parsed["tool_calls"][0]["function"] == {"name": "bash", "arguments": {"command": "ls"}}


def test_same_seed_same_tokenizer(tokenizer, request_of_pi):
    again = build_tokenizer(0, [request_of_pi])
    assert json.loads(again.backend_tokenizer.to_str()) == json.loads(tokenizer.backend_tokenizer.to_str())


def test_content_in_parts_reads_like_text(tokenizer, request_of_pi):
    shown = opening("What?", request_of_pi.system)
    parts = [shown[0], {"role": "user", "content": [{"type": "text", "text": "What?"}]}]
    assert tokenizer.apply_chat_template(parts, tokenize=False) == tokenizer.apply_chat_template(shown, tokenize=False)
