"""The registry of coding agents."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scripts.rollout.agents import CONTEXT_WINDOW, HARNESSES, AgentMissing, installed_version
from scripts.rollout.sandboxes import environment_settings
from scripts.study import config

ROOT = Path(__file__).parent.parent


def test_registry_and_config_know_the_same_agents() -> None:
    assert tuple(HARNESSES) == config.HARNESSES
    assert all(name == harness.name for name, harness in HARNESSES.items())


def test_every_agent_is_pinned() -> None:
    pinned = json.loads((ROOT / "envs/agents/package.json").read_text())["dependencies"]
    assert {harness.package for harness in HARNESSES.values()} <= set(pinned)


def test_installed_version_is_the_packages(tmp_path: Path) -> None:
    manifest = tmp_path / "node_modules" / HARNESSES["pi"].package / "package.json"
    manifest.parent.mkdir(parents=True)
    manifest.write_text('{"version": "1.6.0"}')
    assert installed_version(tmp_path, "pi") == "1.6.0"


def test_missing_agent_is_named(tmp_path: Path) -> None:
    with pytest.raises(AgentMissing, match=r"pi-coding-agent is not installed; build the agents' environment"):
        installed_version(tmp_path, "pi")


def test_only_our_sandbox_gets_our_arguments(tmp_path: Path) -> None:
    ours = environment_settings(config.Sandbox.model_validate({}), tmp_path, tmp_path / "root", [8100])
    assert ours["import_path"] == "scripts.rollout.bubblewrap:BubblewrapEnvironment"
    assert ours["kwargs"] == {"agents_dir": str(tmp_path), "root": str(tmp_path / "root"), "expose_ports": [8100]}
    docker = config.Sandbox.model_validate({"environment": "docker", "options": {"x": 1}})
    assert environment_settings(docker, tmp_path, tmp_path, [1]) == {
        "type": "docker",
        "import_path": None,
        "kwargs": {"x": 1},
    }


def test_pi_is_told_the_limits_of_the_policy() -> None:
    pytest.importorskip("harbor")
    from scripts.rollout.installed_agents import models_json

    [provider] = json.loads(models_json("http://127.0.0.1:1", "key", "policy", 160))["providers"].values()
    assert provider["baseUrl"] == "http://127.0.0.1:1/v1"
    assert provider["models"] == [{"id": "policy", "contextWindow": CONTEXT_WINDOW, "maxTokens": 160}]


def test_seams_name_our_agents_and_keep_openenvs_wiring(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("harbor")
    from openenv.harbor import seams

    from scripts.rollout.agents import install_seams

    monkeypatch.setattr(seams, "SEAMS", dict(seams.SEAMS))
    install_seams(max_output_tokens=99)
    model, kwargs, *_ = seams.SEAMS["pi"].resolve(base_url="http://h:1", session="s", model="policy")
    assert model == "intercept/policy"
    assert kwargs["max_output_tokens"] == 99
    assert kwargs["intercept_config"] == {"base_url": "http://h:1", "api_key": "s", "model": "policy"}
    assert seams.SEAMS["pi"].import_path == HARNESSES["pi"].import_path
