"""The real client of the Hub, in a process of its own, against a server on this machine."""

import json
import os
import subprocess
import sys

import pytest

from scripts.study.suite_index import read_index
from tests.hub_double import REVISION, HubDouble


def run(hub, tmp_path, program, *arguments):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    environment |= {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "cache"), "HF_HUB_DISABLE_XET": "1"}
    environment |= {"HF_HUB_DISABLE_TELEMETRY": "1", "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
    command = [sys.executable, "-m", program, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)


def model_files():
    header = json.dumps({"w": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}}).encode()
    weights = len(header).to_bytes(8, "little") + header + bytes(24)
    return {
        "config.json": b"{}",
        "tokenizer.json": b"{}",
        "model.safetensors": weights,
        "README.md": b"---\nlicense: other\nlicense_name: mild\nlicense_link: https://example.org/l\n---\n# Card\n",
        "pytorch_model.bin": b"never fetched",
        "sub/config.json": b"never fetched",
    }


def fetch(hub, tmp_path, **changes):
    job = {"source": "hub", "hub_id": "owner/model", "revision": REVISION, "license": "other"}
    job |= {"license_name": "mild", "license_link": "https://example.org/l"} | changes
    paths = ["--out", str(tmp_path / "base"), "--facts", str(tmp_path / "base.json")]
    return run(hub, tmp_path, "scripts.fetch_policy", "--settings", json.dumps(job), *paths)


def test_model_is_fetched_at_its_commit(tmp_path):
    with HubDouble("owner/model", model_files(), large=["model.safetensors"]) as hub:
        done = fetch(hub, tmp_path)
        assert done.returncode == 0, done.stderr
        facts = json.loads((tmp_path / "base.json").read_text())
        assert (facts["parameters"], facts["revision"], facts["license_name"]) == (6, REVISION, "mild")
        assert sorted(facts["files"]) == ["README.md", "config.json", "model.safetensors", "tokenizer.json"]
        assert sorted(path.name for path in (tmp_path / "base").iterdir()) == sorted(facts["files"])


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_broken_file_is_refused(tmp_path, name):
    with HubDouble("owner/model", model_files(), large=["model.safetensors"], lies=[name]) as hub:
        done = fetch(hub, tmp_path)
    assert done.returncode == 1
    assert REVISION in done.stderr
    assert not (tmp_path / "base").exists()


def test_license_of_the_card_must_be_the_configs(tmp_path):
    with HubDouble("owner/model", model_files(), large=["model.safetensors"]) as hub:
        done = fetch(hub, tmp_path, license="mit", license_name=None, license_link=None)
    assert done.returncode == 1
    assert "policy.license is 'mit', but the card of owner/model says 'other'" in done.stderr
    assert not (tmp_path / "base").exists()


def test_unknown_model_is_one_line(tmp_path):
    with HubDouble("owner/model", model_files()) as hub:
        done = fetch(hub, tmp_path, hub_id="owner/nothing")
    assert done.returncode == 1
    assert len(done.stderr.strip().splitlines()) == 1
    assert "owner/nothing" in done.stderr


def test_suite_from_the_hub_fetches_only_what_it_takes(tmp_path):
    files = {}
    for number in range(6):
        task = f"tasks/t{number}"
        tier = "hard" if number == 3 else "easy"
        files[f"{task}/task.toml"] = f'[metadata]\ndifficulty_tier = "{tier}"\n'.encode()
        files[f"{task}/instruction.md"] = f"Question {number}".encode()
        files[f"{task}/tests/test.sh"] = b"true"
    suite = {"role": "heldout", "source": "hub", "hub_id": "owner/tasks", "revision": REVISION}
    suite |= {"min_index": 2, "limit": 2}
    paths = [
        "--out",
        str(tmp_path / "suites/s"),
        "--index",
        str(tmp_path / "suites/s.jsonl"),
        "--outdir",
        str(tmp_path),
    ]
    with HubDouble("owner/tasks", files) as hub:
        done = run(hub, tmp_path, "scripts.make_suite", "--name", "s", "--settings", json.dumps(suite), *paths)
        assert done.returncode == 0, done.stderr
        assert [row.task_id for row in read_index(tmp_path / "suites/s.jsonl")] == ["t2", "t4"]
        assert not [name for name in hub.fetched if name.startswith(("tasks/t0", "tasks/t1"))]
        assert "tasks/t3/instruction.md" not in hub.fetched
        assert "tasks/t5/instruction.md" not in hub.fetched
