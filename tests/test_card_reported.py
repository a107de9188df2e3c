"""The published cards, rendered by our templates: every fact of theirs is in ours, and so is what they leave out."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import ModelCard

from scripts import collect_reported_card, derive_reported
from scripts.card.blocks import read_blocks
from scripts.card.facts import Card, possible_pictures, read_card
from scripts.card.render import render_card
from scripts.card.reported import collect_reported
from scripts.derive_reported import read_reported
from scripts.stats.reported_tables import find_tables

CONFIG = "config/reported.yaml"

BOTH = [
    "[webAI-Official/TwIL-8B](https://huggingface.co/webAI-Official/TwIL-8B)",
    "data-analysis tasks",
    "asynchronous GRPO",
    "[harness-hub/traj2envs-rl](https://huggingface.co/datasets/harness-hub/traj2envs-rl)",
    "repository tasks rebuilt from real agent sessions",
    "within noise",
    "One attempt per task",
    "temperature 0.8",
    "150 held-out tasks of [FineEnvs/SmolDataEnvs-harbor-train]",
    "easy and medium tasks from index 1,000 on; training saw none of them",
    "40 held-out tasks of [harness-hub/traj2envs-rl]",
    "--enable-lora --max-lora-rank 32",
    "--enable-auto-tool-choice --tool-call-parser qwen3_coder --reasoning-parser qwen3",
    "--chat-template chat_template.jinja",
    "--max-model-len 131072",
    "settings of training and evaluation",
    '"Which region had the highest revenue growth in sales.csv?"',
    "hf download mradermacher/TwIL-8B-GGUF TwIL-8B.Q8_0.gguf --local-dir .",
    "llama serve",
    "-m TwIL-8B.Q8_0.gguf",
    "--chat-template-file chat_template.jinja",
    "-c 65536 --port 8080",
    "http://localhost:8080/v1",
    "have not been evaluated again",
    "[AsyncGRPO](https://huggingface.co/docs/trl/main/en/async_grpo_trainer) (TRL, experimental), LoRA",
    "[Harbor](https://github.com/laude-institute/harbor) tasks served by [OpenEnv](https://github.com/huggingface/OpenEnv)",
    "rollouts in HF sandboxes, tool calls screened by [safeagents](https://github.com/huggingface/safeagents)",
    "`correctness`",
    "`reward`",
    "weight 0.1",
    "of a 100-step run",
    "| Learning rate | 1e-5 |",
    "r = 32, alpha = 64, all linear layers",
    "8 per task, temperature 0.8, up to 30 model calls and 1,200 s",
    "4 micro-batches of up to 65,536 tokens",
    "up to 4 policy versions stale",
    "4× NVIDIA H200 on [HF Jobs](https://huggingface.co/docs/huggingface_hub/guides/jobs)",
    "vLLM on one, one trainer per harness on each of the other three",
    "https://github.com/huggingface/trl/tree/main/examples/async_grpo_harbor",
    "None of the traj2envs tasks was reached in training",
    "no improvement on the base model could be shown",
    "no better than the base model, or worse",
    "webai-non-commercial-license-ver.-1.0",
    "forbids commercial use",
    # What the published cards leave out.
    "Tango score interval",
    "McNemar, mid-p",
    "Smallest difference found with 80% power",
]

OWN = {
    "pi": [
        "| 146 | 81.5% | 84.9% | +3.4 ± 5.8 | -37% (112 tasks) |",
        "| 35 | 31.4% | 37.1% | +5.7 ± 16.0 (score interval -11.4 to +23.0) | -24% (8 tasks) |",
        "This adapter (step 90)",
        "about as many tasks as the base model",
        "37% fewer tool calls",
        "(+5.7 ± 16.0 points, n = 35)",
        "Step 90 of 100 was picked among 10 checkpoints by score on these same held-out tasks",
        "the difference above is optimistic, by an estimated",
        "twil-harbor-pi=harness-hub/TwIL-8B-pi",
        "hf download harness-hub/TwIL-8B-pi chat_template.jinja --local-dir .",
        "Node.js 22.19 or newer",
        "npm install -g --ignore-scripts @earendil-works/pi-coding-agent\n",
        "`~/.pi/agent/models.json`",
        'Keep `"api": "openai-completions"`. Without it pi talks to the Responses API',
        "pi --provider local --model twil-harbor-pi --print",
        "hf download harness-hub/TwIL-8B-pi-GGUF TwIL-8B-harbor-pi-lora-F16.gguf --local-dir .",
        "--lora TwIL-8B-harbor-pi-lora-F16.gguf",
        "--alias twil-harbor-pi",
        "pi install git:github.com/huggingface/pi-llama\npi --model llama-cpp/twil-harbor-pi",
        "| Harness | pi |",
        "| Tasks trained on, up to this checkpoint | 142 ",
        "| Steps | 90 (this checkpoint)",
        "±5.8 points",
    ],
    "opencode": [
        "| 150 | 77.3% | 76.7% | -0.7 ± 6.3 | -32% (104 tasks) |",
        "| 35 | 42.9% | 37.1% | -5.7 ± 17.9 (score interval -24.3 to +13.0) | -27% (9 tasks) |",
        "This adapter (step 100)",
        "could not be shown to solve as many tasks",
        "32% fewer tool calls",
        "(-5.7 ± 17.9 points, n = 35)",
        "Step 100 is the last checkpoint of the run",
        "[OpenCode](https://github.com/sst/opencode)",
        "twil-harbor-opencode=harness-hub/TwIL-8B-opencode",
        "hf download harness-hub/TwIL-8B-opencode chat_template.jinja --local-dir .",
        "training and evaluation used 1.19.5",
        "npm install -g opencode-ai@1.19.5",
        "`~/.config/opencode/opencode.json`",
        "opencode run -m local/twil-harbor-opencode",
        "hf download harness-hub/TwIL-8B-opencode-GGUF TwIL-8B-harbor-opencode-lora-F16.gguf --local-dir .",
        "--lora TwIL-8B-harbor-opencode-lora-F16.gguf",
        "--alias twil-harbor-opencode",
        "| Harness | OpenCode 1.19.5 |",
        "| Tasks trained on, up to this checkpoint | 116 ",
        "| Steps | 100 (this checkpoint)",
        "±6.3 points",
    ],
}


@cache
def published(harness: str) -> tuple[Card, str]:
    """Facts and text of one card."""
    reported = read_reported(CONFIG)
    card = collect_reported(reported, find_tables(reported), harness, CONFIG)
    return card, render_card(card, f"card_{harness}/")


@pytest.mark.parametrize(("harness", "fact"), [(name, fact) for name, own in OWN.items() for fact in [*BOTH, *own]])
def test_a_published_fact_is_in_the_card(harness: str, fact: str) -> None:
    assert fact in published(harness)[1]


@pytest.mark.parametrize("harness", list(OWN))
def test_front_matter_is_the_published_one(harness: str) -> None:
    data = ModelCard(published(harness)[1]).data.to_dict()
    assert {
        key: data[key] for key in ("base_model", "library_name", "license", "license_name", "datasets", "tags")
    } == {
        "base_model": "webAI-Official/TwIL-8B",
        "library_name": "peft",
        "license": "other",
        "license_name": "webai-non-commercial-license-ver.-1.0",
        "datasets": ["FineEnvs/SmolDataEnvs-harbor-train"],
        "tags": ["trl", "grpo", "async-grpo", "lora", "agents", "harbor", "openenv", harness],
    }
    assert data["license_link"] == "https://huggingface.co/webAI-Official/TwIL-8B/blob/main/LICENSE.md"


def holds(ours: Any, theirs: Any) -> bool:
    """Whether everything in a published config is in ours."""
    if isinstance(theirs, dict):
        return all(key in ours and holds(ours[key], value) for key, value in theirs.items())
    if isinstance(theirs, list):
        return len(ours) == len(theirs) and all(map(holds, ours, theirs))
    return bool(ours == theirs)


@pytest.mark.parametrize("harness", list(OWN))
def test_the_agents_config_holds_the_published_one(harness: str) -> None:
    ours = json.loads(read_blocks(published(harness)[1])["harness-config"].text)
    assert holds(ours, read_reported(CONFIG).cards[harness].config)


@pytest.mark.parametrize("harness", list(OWN))
def test_commands_are_the_published_ones(harness: str) -> None:
    blocks, card = read_blocks(published(harness)[1]), read_reported(CONFIG).cards[harness]
    assert blocks["harness-install"].text == card.install
    assert blocks["harness-run"].text.startswith(card.run)
    assert ("llama-plugin" in blocks) == bool(card.llama_commands)


def test_only_the_card_that_was_picked_speaks_of_optimism() -> None:
    assert "optimistic" not in published("opencode")[1]


def test_pictures() -> None:
    assert possible_pictures(published("pi")[0]) == ["hero", "forest", "outcomes"]


def test_program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tables = tmp_path / "tables.json"
    assert derive_reported.main(["--reported", CONFIG, "--out", str(tmp_path / "t.md"), "--json", str(tables)]) == 0
    arguments = ["--reported", CONFIG, "--tables", str(tables), "--out", str(tmp_path / "card.json"), "--harness"]
    assert collect_reported_card.main([*arguments, "pi"]) == 0
    assert read_card(tmp_path / "card.json") == published("pi")[0]
    assert collect_reported_card.main([*arguments, "claude"]) == 1
    assert "cards: pi, opencode" in capsys.readouterr().err
    tables.unlink()
    assert collect_reported_card.main([*arguments, "pi"]) == 1
    assert "tables.json" in capsys.readouterr().err
