"""Fetch a pinned base model from the Hub, or take one from a folder, and write its facts."""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path
from typing import Any

import yaml

from scripts.rollout.processes import end_with_workflow
from scripts.study.config import ConfigError
from scripts.study.files import folder_written_whole
from scripts.study.fingerprints import FingerprintError
from scripts.study.hub_files import HubError, HubSource
from scripts.study.jobs import PolicyJob, read_settings
from scripts.study.policy_facts import PolicyError, gather_facts, write_facts

LICENSE_KEYS = ("license", "license_name", "license_link")

WANTED = (".json", ".safetensors", ".jinja", ".txt", ".model", ".md")
"""Ends of the names of files that serving, training and the card may need; code and other weights stay away."""


def wanted(names: list[str]) -> list[str]:
    """The files of a model's top folder that the pipeline needs."""
    return [name for name in names if "/" not in name and (name.endswith(WANTED) or name.startswith("LICENSE"))]


def front_matter(readme: str) -> dict[str, Any]:
    """The metadata at the head of a model card; empty if it has none.

    :raises PolicyError: it is not valid YAML.
    """
    lines = readme.lstrip("\ufeff").splitlines()
    if not lines or lines[0].strip() != "---":
        return {}
    end = next((number for number, line in enumerate(lines[1:], start=1) if line.strip() == "---"), None)
    if end is None:
        return {}
    try:
        data = yaml.safe_load("\n".join(lines[1:end]))
    except yaml.YAMLError as error:
        raise PolicyError(f"README.md of the base model: its front matter is no YAML ({error})") from None
    return data if isinstance(data, dict) else {}


def check_license(job: PolicyJob, readme: str | None) -> None:
    """Hold the config's license fields against the model's own card.

    :raises PolicyError: the card says something else, with both values.
    """
    if readme is None:
        return
    card = front_matter(readme)
    if "license" not in card:
        return
    for key in LICENSE_KEYS:
        theirs, ours = card.get(key), getattr(job, key)
        if theirs != ours:
            raise PolicyError(f"policy.{key} is {ours!r}, but the card of {job.hub_id} says {theirs!r}; use the card's")


def fetch(job: PolicyJob, folder: Path) -> None:
    """Put the model's files into an empty folder.

    :raises HubError, PolicyError: they cannot be had, with the reason.
    """
    if job.source == "hub":
        if job.revision is None:
            raise PolicyError("policy.revision: set it to the 40-digit commit of the model")
        source = HubSource(job.hub_id, job.revision, "model", folder)
        print(f"fetch_policy: {job.hub_id} at {job.revision}", file=sys.stderr, flush=True)
        source.fetch(wanted(source.names()))
        # The client's notes on the download are no part of the model.
        shutil.rmtree(folder / ".cache", ignore_errors=True)
    elif job.source == "path":
        root = Path(job.path or "")
        if not job.path or not root.is_dir():
            raise PolicyError(f"policy.path: {job.path!r} is no folder")
        for name in wanted(sorted(path.name for path in root.iterdir() if path.is_file())):
            shutil.copyfile(root / name, folder / name)
    else:
        raise PolicyError("policy.source is demo: build_policy makes it")


def main(argv: list[str] | None = None) -> int:
    """Run the program; 0 on success, 1 on an error of the user's."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--settings", required=True, help="the job's settings, JSON or a file")
    parser.add_argument("--out", required=True, type=Path, help="model folder to make")
    parser.add_argument("--facts", required=True, type=Path, help="facts to write")
    args = parser.parse_args(argv)
    end_with_workflow()
    try:
        job = read_settings(PolicyJob, args.settings)
        with folder_written_whole(args.out) as folder:
            fetch(job, folder)
            readme = folder / "README.md"
            check_license(job, readme.read_text(encoding="utf-8") if readme.is_file() else None)
            if job.chat_template:
                template = Path(job.chat_template)
                if not template.is_file():
                    raise PolicyError(f"policy.chat_template: {template} is no file")
                shutil.copyfile(template, folder / "chat_template.jinja")
            facts = gather_facts(job, folder, recipe=None)
        write_facts(args.facts, facts)
    except (ConfigError, HubError, PolicyError, FingerprintError) as error:
        print(f"fetch_policy: {error}", file=sys.stderr)
        return 1
    print(f"fetch_policy: {facts.parameters:,} parameters", file=sys.stderr)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
