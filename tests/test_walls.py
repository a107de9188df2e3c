"""The walls between the parts: what a package may import, and how files may be named and how long they may be."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
HEAVY = {"torch", "transformers", "trl", "peft", "vllm", "harbor", "openenv", "numpy", "scipy", "matplotlib"}
WINGS = {"study", "rollout", "training", "stats", "card", "demo", "environments", "gguf"}
FORBIDDEN = {
    "study": {*(f"scripts.{wing}" for wing in WINGS - {"study"}), *HEAVY},
    "stats": {"scripts.rollout", "scripts.training", "scripts.card", "scripts.demo", "torch", "harbor", "openenv"},
    "card": {"scripts.rollout", "scripts.training", "scripts.demo", "torch", "harbor", "openenv"},
    "rollout": {"scripts.training", "scripts.stats", "scripts.card", "scripts.demo"},
    "training": {"scripts.stats", "scripts.card", "scripts.demo"},
    "environments": {"scripts.training", "scripts.stats", "scripts.card", "scripts.demo", *HEAVY},
    "gguf": {"scripts.training", "scripts.stats", "scripts.card", "scripts.demo"},
    "demo": {"scripts.training", "scripts.stats", "scripts.card", "scripts.rollout"},
}


def imports(path: Path) -> set[str]:
    """Dotted names of all modules that a file imports, anywhere in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


def crossings(wing: str, path: Path) -> list[str]:
    return [name for name in imports(path) for wall in FORBIDDEN[wing] if name == wall or name.startswith(f"{wall}.")]


@pytest.mark.parametrize("wing", sorted(WINGS))
def test_wing_keeps_its_walls(wing: str) -> None:
    files = list((ROOT / "scripts" / wing).glob("**/*.py"))
    assert files
    found = {str(path.relative_to(ROOT)): crossings(wing, path) for path in files}
    assert not {path: names for path, names in found.items() if names}


def test_walls_are_seen(tmp_path: Path) -> None:
    file = tmp_path / "x.py"
    file.write_text("def f():\n    from scripts import rollout\n    import torch.nn\n")
    assert sorted(crossings("study", file)) == ["scripts.rollout", "torch.nn"]


def test_no_room_without_a_name() -> None:
    vague = {"utils", "helpers", "common", "lib"}
    assert not [path for path in ROOT.glob("scripts/**/*") if path.stem.strip("_") in vague]


def test_files_fit_in_a_head() -> None:
    sources = [*ROOT.glob("scripts/**/*.py"), *ROOT.glob("tests/*.py"), *ROOT.glob("rules/*.smk"), ROOT / "Snakefile"]
    assert not {str(path.relative_to(ROOT)): n for path in sources if (n := len(path.read_text().splitlines())) > 420}


def test_every_program_runs_alone() -> None:
    """A program is a module with main() that does nothing on import."""
    for path in (ROOT / "scripts").glob("*.py"):
        tree = ast.parse(path.read_text())
        if path.name == "__init__.py":
            continue
        assert any(isinstance(node, ast.FunctionDef) and node.name == "main" for node in tree.body), path
        assert 'if __name__ == "__main__":' in path.read_text(), path
