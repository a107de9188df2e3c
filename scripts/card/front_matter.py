"""The YAML block that the Hub reads at the top of a card, checked before it is written."""

from __future__ import annotations

import re
from typing import Literal

from huggingface_hub import ModelCardData

from scripts.card.facts import Card, CardError
from scripts.study.config import HUB_ID

TAGS = ["trl", "grpo", "async-grpo", "lora", "agents", "harbor", "openenv"]


def front_matter(card: Card, repository: Literal["adapter", "gguf"] = "adapter") -> str:
    """The block without its ``---`` lines.

    :raises CardError: the Hub would refuse it; names the key.
    """
    base = card.base
    data: dict[str, object] = {"base_model": base.hub_id, "base_model_relation": "adapter"}
    if repository == "adapter":
        data["library_name"] = "peft"
    data |= {"pipeline_tag": "text-generation", "license": base.license}
    if base.license == "other":
        data |= {"license_name": base.license_name, "license_link": base.license_link}
    if card.datasets:
        data["datasets"] = list(card.datasets)
    data["tags"] = [*TAGS, card.harness.name, *(["gguf", "llama-cpp"] if repository == "gguf" else [])]
    check_front_matter(data)
    return ModelCardData(**data).to_yaml()  # type: ignore[arg-type]


def check_front_matter(data: dict[str, object]) -> None:
    """Refuse what the Hub refuses: a base or data set that is no Hub id, a nameless license of one's own.

    :raises CardError: naming the key.
    """
    datasets = data.get("datasets") or []
    assert isinstance(datasets, list)
    for key, value in [("base_model", data["base_model"]), *(("datasets", dataset) for dataset in datasets)]:
        if not re.fullmatch(HUB_ID, str(value)):
            raise CardError(f"front matter: {key} {value!r} is no Hub id (owner/name); set it in the study's config")
    license_id = str(data["license"])
    if not re.fullmatch(r"[a-z0-9.+-]+", license_id):
        raise CardError(f"front matter: license {license_id!r} is no license id of the Hub; set policy.license")
    if license_id == "other":
        for key in ("license_name", "license_link"):
            if not data.get(key):
                raise CardError(f"front matter: {key} is missing, and license is other; set policy.{key}")
        if not re.fullmatch(r"[a-z0-9.-]+", str(data["license_name"])):
            raise CardError(
                f"front matter: license_name {data['license_name']!r} may hold lower-case letters, digits, . and - only"
            )
