"""Build the demo's base policy: its tokenizer, its weights, and the facts of both."""

from __future__ import annotations

import argparse
import importlib.metadata
import sys
import time
from pathlib import Path
from typing import Any

from scripts.demo.transcripts import PromptError, RecordedRequest, read_request
from scripts.rollout.processes import end_with_workflow
from scripts.study.config import ConfigError
from scripts.study.files import folder_written_whole
from scripts.study.fingerprints import text_sha256
from scripts.study.jobs import PolicyJob, read_settings
from scripts.study.policy_facts import PolicyError, gather_facts, write_facts


def say(line: str) -> None:
    """Show a line of progress."""
    print(f"build_policy: {line}", file=sys.stderr, flush=True)


def build(job: PolicyJob, requests: list[RecordedRequest], folder: Path) -> None:
    """Train tokenizer and policy and save both into an empty folder."""
    from scripts.demo.tokenizer import build_tokenizer
    from scripts.demo.training import train_policy

    assert job.demo is not None
    assert job.seed is not None
    assert job.sampling is not None
    tokenizer = build_tokenizer(job.seed, requests)
    say(f"tokenizer of {len(tokenizer)} entries; training {job.demo.steps} steps on {job.demo.threads} threads")
    model = train_policy(tokenizer, requests, job.demo, job.seed, say)
    # The agent sends no temperature: whoever serves the model takes it from this file.
    model.generation_config.update(do_sample=True, **job.sampling.model_dump())
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    # The weights are written through a temporary file that only its owner can read.
    (folder / "model.safetensors").chmod((folder / "config.json").stat().st_mode & 0o777)


def recipe_of(job: PolicyJob, requests: list[RecordedRequest]) -> dict[str, Any]:
    """What the policy was built from, for its facts."""
    assert job.demo is not None
    assert job.sampling is not None
    return {
        "seed": job.seed,
        "settings": job.demo.model_dump(),
        "sampling": job.sampling.model_dump(),
        "harnesses": {
            request.harness: {"version": request.version, "system_prompt_sha256": text_sha256(request.system)}
            for request in requests
        },
        "versions": {name: importlib.metadata.version(name) for name in ("torch", "transformers", "tokenizers")},
    }


def check(job: PolicyJob) -> None:
    """Refuse settings that cannot be built.

    :raises PolicyError: names the key.
    """
    if job.source != "demo" or job.demo is None or job.seed is None or job.sampling is None:
        raise PolicyError("--settings: source must be demo, with demo, seed and sampling; fetch_policy does the others")
    if job.chat_template:
        raise PolicyError("policy.chat_template: the demo policy knows its own template only; remove the key")


def main(argv: list[str] | None = None) -> int:
    """Run the program; 0 on success, 1 on an error of the user's."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--settings", required=True, help="the job's settings, JSON or a file")
    parser.add_argument("--prompts", required=True, nargs="+", type=Path, help="recorded first requests of the agents")
    parser.add_argument("--out", required=True, type=Path, help="model folder to make")
    parser.add_argument("--facts", required=True, type=Path, help="facts to write")
    args = parser.parse_args(argv)
    end_with_workflow()
    started = time.monotonic()
    try:
        job = read_settings(PolicyJob, args.settings)
        check(job)
        requests = [read_request(path) for path in args.prompts]
        with folder_written_whole(args.out) as folder:
            build(job, requests, folder)
            facts = gather_facts(job, folder, recipe_of(job, requests))
        write_facts(args.facts, facts)
    except (ConfigError, PromptError, PolicyError) as error:
        print(f"build_policy: {error}", file=sys.stderr)
        return 1
    say(f"{facts.parameters:,} parameters in {time.monotonic() - started:.0f} s")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
