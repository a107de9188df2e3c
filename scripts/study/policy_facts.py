"""The facts of a base model, ``policy/base.json``: where it came from, its files and its license."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from scripts.study.config import Section, explain
from scripts.study.files import write_json
from scripts.study.fingerprints import files_sha256, folder_files
from scripts.study.jobs import PolicyJob


class PolicyError(ValueError):
    """A base model cannot be used; the message names the file or key and what to do."""


class PolicyFacts(Section):
    """What the pipeline and the card know of the base model."""

    hub_id: str
    source: str
    revision: str | None
    sha256: str
    """Over all files (:func:`scripts.study.fingerprints.files_sha256`)."""
    files: dict[str, str]
    """SHA-256 by file name."""
    parameters: int
    license: str
    license_name: str | None
    license_link: str | None
    recipe: dict[str, Any] | None
    """How a demo policy was built; null for others."""


def gather_facts(job: PolicyJob, folder: Path, recipe: dict[str, Any] | None) -> PolicyFacts:
    """Collect the facts of a model in a folder.

    :raises PolicyError: a file that every model needs is missing, or the weights cannot be read.
    """
    for name in ("config.json", "tokenizer.json"):
        if not (folder / name).is_file():
            raise PolicyError(f"{folder}: no {name}; it is no model in the Hugging Face layout")
    files = folder_files(folder)
    return PolicyFacts(
        hub_id=job.hub_id,
        source=job.source,
        revision=job.revision,
        sha256=files_sha256(files),
        files=files,
        parameters=count_parameters(folder),
        license=job.license,
        license_name=job.license_name,
        license_link=job.license_link,
        recipe=recipe,
    )


def write_facts(path: Path, facts: PolicyFacts) -> None:
    """Write the facts whole."""
    write_json(path, facts.model_dump())


def read_facts(path: Path) -> PolicyFacts:
    """Read the facts.

    :raises PolicyError: the file is missing or broken.
    """
    try:
        return PolicyFacts.model_validate_json(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise PolicyError(f"{path}: {error.strerror}; make the base model first") from None
    except ValidationError as error:
        raise PolicyError(explain(error, str(path))) from None


def count_parameters(folder: Path) -> int:
    """Number of weights in a folder's safetensors files, from their headers alone.

    :raises PolicyError: there is none, or a header is broken.
    """
    weights = sorted(folder.glob("*.safetensors"))
    if not weights:
        raise PolicyError(f"{folder}: no *.safetensors; other formats of weights are not supported")
    total = 0
    for path in weights:
        try:
            with path.open("rb") as file:
                (size,) = struct.unpack("<Q", file.read(8))
                header = json.loads(file.read(min(size, 1 << 28)))
        except (struct.error, ValueError) as error:
            raise PolicyError(f"{path}: no safetensors file ({error})") from None
        for name, tensor in header.items():
            if name != "__metadata__":
                count = 1
                for length in tensor["shape"]:
                    count *= length
                total += count
    return total
