"""Nothing of the machine that made it may stand in a published file: no absolute path, no folder of the study.

The repository's root and the study's outdir are refused in every byte. In what people and programs read as text
(cards, configs, the headers of weights) any absolute path of a usual root is. Tokenizers, templates and weights are
not searched for those: a sandbox's own ``/home/user`` belongs to the tasks.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from scripts.card.facts import CardError

ABSOLUTE = re.compile(
    r"(?<![\w:/.~}-])/(?:home|root|Users|tmp|mnt|var|opt|srv|data|scratch|workspace|work|private)/[\w.-][^\s\"'`)]*"
)
WINDOWS = re.compile(r"\b[A-Z]:\\[\w.-]+")
TEXT = {".md", ".json", ".txt", ".yaml", ".yml"}
# Names of the folders below an outdir; `results/policy/base` in a card would be a path of this machine.
STAGES = "suites|policy|work|adapters|select|train|eval|traces|gguf|compare|publish|logs"

# GGUF value types and their sizes in bytes (ggml-org/ggml, docs/gguf.md).
_SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
_STRING, _ARRAY = 8, 9
_NOT_SEARCHED = ("tokenizer.ggml.", "tokenizer.chat_template")


def check_folder(folder: Path, root: Path, outdir: Path) -> None:
    """Search every file of a folder.

    :param folder: the folder that is to be published.
    :param root: the repository.
    :param outdir: the study's outdir.
    :raises CardError: names the file and what was found in it.
    """
    for path in sorted(folder.rglob("*")):
        if not path.is_file():
            continue
        if path.is_symlink():
            raise CardError(f"{path}: a link cannot be published; copy the file")
        _check_bytes(path, [root.resolve(), outdir.resolve()])
        for where, text in _texts(path):
            found = ABSOLUTE.search(text) or WINDOWS.search(text) or _stage(outdir).search(text)
            if found:
                raise CardError(f"{path}{where}: {found[0]!r} is a path of this machine; it must not be published")


def _stage(outdir: Path) -> re.Pattern[str]:
    name = re.escape(outdir.name)
    return re.compile(rf"(?<![\w-]){name}/(?:[\w-]+/)?(?:{STAGES})(?:/|\b)")


def _check_bytes(path: Path, folders: list[Path]) -> None:
    data = path.read_bytes()
    for folder in folders:
        if len(folder.parts) > 1 and str(folder).encode() in data:
            raise CardError(f"{path}: holds {str(folder)!r}, a path of this machine; it must not be published")


def _texts(path: Path) -> Iterator[tuple[str, str]]:
    """(place, text) of all that is read as text in a file."""
    if path.suffix == ".safetensors":
        yield ", header", safetensors_header(path)
    elif path.suffix == ".gguf":
        for key, value in gguf_texts(path):
            if not key.startswith(_NOT_SEARCHED):
                yield f", {key}", value
    elif path.suffix in TEXT and not path.name.startswith("tokenizer"):
        yield "", path.read_text(encoding="utf-8")


def safetensors_header(path: Path) -> str:
    """The JSON header of a safetensors file.

    :raises CardError: it is none.
    """
    data = path.read_bytes()
    length = struct.unpack("<Q", data[:8])[0] if len(data) >= 8 else 0
    header = data[8 : 8 + length]
    try:
        json.loads(header)
    except ValueError:
        raise CardError(f"{path}: no safetensors file; make it anew") from None
    return header.decode()


def gguf_texts(path: Path) -> list[tuple[str, str]]:
    """(key, text) of all texts in the header of a GGUF file, texts in lists included.

    :raises CardError: it is none.
    """
    try:
        with path.open("rb") as file:
            if file.read(4) != b"GGUF":
                raise ValueError
            _, _, values = struct.unpack("<IQQ", file.read(20))
            found: list[tuple[str, str]] = []
            for _ in range(values):
                key = _string(file)
                found += [(key, text) for text in _value(file, struct.unpack("<I", file.read(4))[0])]
            return found
    except (ValueError, KeyError, struct.error):
        raise CardError(f"{path}: no GGUF file; make it anew") from None


def _string(file: BinaryIO) -> str:
    length = struct.unpack("<Q", file.read(8))[0]
    return file.read(length).decode("utf-8", errors="replace")


def _value(file: BinaryIO, kind: int) -> list[str]:
    if kind == _STRING:
        return [_string(file)]
    if kind == _ARRAY:
        inner, length = struct.unpack("<IQ", file.read(12))
        if inner in _SIZES:
            file.seek(_SIZES[inner] * length, 1)
            return []
        return [text for _ in range(length) for text in _value(file, inner)]
    file.seek(_SIZES[kind], 1)
    return []
