"""The folders that the two Hub repositories would hold, file by file.

The adapter's repository: the PEFT adapter (config and weights), the chat template that it was trained and evaluated
with, the card, its facts and its pictures. No tokenizer: it is the base model's, and a copy would hide a change there.
The GGUF repository: the adapter, and the base unless that is published elsewhere, the template without the marks that
only a trainer reads, and a card of its own.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

from scripts.card.facts import Card, CardError, File, possible_pictures
from scripts.card.leaks import check_folder
from scripts.card.render import render_card, render_gguf_card
from scripts.study.fingerprints import file_sha256

GENERATION = re.compile(r"\{%-?\s*(?:end)?generation\s*-?%\}")


def inference_template(template: str) -> str:
    """A chat template without ``{% generation %}`` marks, which llama.cpp does not know."""
    return GENERATION.sub("", template)


def prepare_adapter(card: Card, outdir: Path, pictures: Path, facts: Path, folder: Path) -> None:
    """Fill the folder of the adapter's repository.

    :param outdir: the study's outputs, which the card's files are named relative to.
    :param pictures: folder of the card's pictures.
    :param facts: ``card.json``.
    :param folder: an empty folder.
    :raises CardError: a file is missing, has changed since the facts were gathered, or names another base model.
    """
    _copy(card, "adapter", outdir, folder)
    config = json.loads((folder / "adapter_config.json").read_text(encoding="utf-8"))
    named = config.get("base_model_name_or_path")
    if named != card.base.hub_id:
        raise CardError(
            f"{outdir / 'adapters'}: adapter_config.json names the base model {named!r}, the card "
            f"{card.base.hub_id!r}; it must be the Hub id (policy.hub_id)"
        )
    for name in possible_pictures(card):
        shutil.copyfile(pictures / f"{name}.png", folder / f"{name}.png")
    shutil.copyfile(facts, folder / "card.json")
    (folder / "README.md").write_text(render_card(card), encoding="utf-8")


def prepare_gguf(card: Card, outdir: Path, folder: Path) -> None:
    """Fill the folder of the GGUF repository; see :func:`prepare_adapter`."""
    _copy(card, "gguf", outdir, folder)
    template = (outdir / "policy/base/chat_template.jinja").read_text(encoding="utf-8")
    (folder / "chat_template.jinja").write_text(inference_template(template), encoding="utf-8")
    (folder / "README.md").write_text(render_gguf_card(card), encoding="utf-8")


def _copy(card: Card, repository: str, outdir: Path, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for file in (file for file in card.files if file.repository == repository):
        _copy_same(file, outdir / file.source, folder / file.name)


def _copy_same(file: File, source: Path, target: Path) -> None:
    if not source.is_file():
        raise CardError(f"{source}: missing; make it again")
    shutil.copyfile(source, target)
    if file_sha256(target) != file.sha256:
        raise CardError(f"{source}: changed since card.json was made; run scripts.collect_card again")


def check_published(folder: Path, root: Path, outdir: Path) -> None:
    """Refuse a folder that tells of this machine; see :func:`scripts.card.leaks.check_folder`."""
    check_folder(folder, root, outdir)
