"""The evaluating program with the real agent, sandbox and rollout server, and the token server in place of vLLM.

``python -m tests.evaluation_with_doubled_engine OUTDIR`` measures the base on the suite of :func:`make_suite`.
"""

from __future__ import annotations

import json
import sys
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from scripts import evaluate_policy
from scripts.study.fingerprints import folder_sha256
from scripts.study.suite_index import TaskRow, write_index
from tests.evaluation_parts import settings
from tests.running import ROOT
from tests.token_server import TokenServer

GRADER = """#!/bin/bash
if [ "$(cat /workdir/answer.txt 2>/dev/null)" = 42 ]; then grade=1.0; else grade=0.0; fi
printf '{"correctness": %s, "tool_efficiency": null}' $grade > /logs/verifier/reward.json
"""


def make_suite(outdir: Path, words: list[str]) -> None:
    """A base model's files and a held-out suite whose tasks tell the token server what to answer."""
    rows = []
    for number, word in enumerate(words):
        name = f"{word.lower()}-{number}"
        task = outdir / "suites" / "held" / "tasks" / name
        for folder in ("environment", "tests"):
            (task / folder).mkdir(parents=True)
        (task / "task.toml").write_text(f'version = "1.0"\n[task]\nname = "test/{name}"\n')
        (task / "instruction.md").write_text(f"{word}: write 42 to /workdir/answer.txt\n")
        (task / "environment" / "Dockerfile").write_text("FROM python:3.12-slim\nWORKDIR /workdir\n")
        (task / "tests" / "test.sh").write_text(GRADER)
        rows.append(
            TaskRow(
                suite="held",
                role="heldout",
                task_id=name,
                index=number,
                path=f"suites/held/tasks/{name}",
                sha256=folder_sha256(task),
                difficulty="easy",
                cluster=None,
            )
        )
    write_index(outdir / "suites" / "held.jsonl", rows)
    base = outdir / "policy" / "base"
    base.mkdir(parents=True)
    (base / "config.json").write_text("{}")
    facts = {"hub_id": "owner/model", "sha256": folder_sha256(base)}
    (outdir / "policy" / "base.json").write_text(json.dumps(facts))


@contextmanager
def doubled_engine():
    """The token server, with what the program asks of an engine."""
    with TokenServer() as server:
        server.check = lambda: None  # type: ignore[attr-defined]
        yield server


def main(outdir: Path) -> int:
    """Measure the base model."""
    words = [
        "--settings",
        settings(evaluation={"concurrency": 2, "retries": 1}, rollout={"call_budget": 4}),
        "--policy",
        "base",
    ]
    words += ["--base", str(outdir / "policy" / "base"), "--base-facts", str(outdir / "policy" / "base.json")]
    words += ["--index", str(outdir / "suites" / "held.jsonl"), "--outdir", str(outdir), "--work", str(outdir / "work")]
    words += ["--log-dir", str(outdir / "logs"), "--harbor-python", str(ROOT / ".envs" / "harbor" / "bin" / "python")]
    words += ["--agents-dir", str(ROOT / ".envs" / "agents")]
    parts = replace(evaluate_policy.REAL, engine=lambda job, places: doubled_engine())
    return evaluate_policy.main(words, parts)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
