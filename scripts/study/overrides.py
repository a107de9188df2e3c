"""Single keys that ``snakemake --config`` changes: it hands over everything below the first key as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml


def with_numbers(config: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The merged config with the values that the command line gave read as YAML, as a file's values are.

    :param config: what Snakemake merged from the config file and the command line.
    :param given: what the command line gave; its keys alone are read again.
    """
    merged = dict(config)
    for key, value in given.items():
        if isinstance(value, Mapping) and isinstance(merged.get(key), Mapping):
            merged[key] = with_numbers(merged[key], value)
        else:
            merged[key] = _read(value)
    return merged


def _read(value: Any) -> Any:
    """A value, with each text in it read as YAML; text that is none stays as it is."""
    if isinstance(value, Mapping):
        return {key: _read(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_read(entry) for entry in value]
    if not isinstance(value, str):
        return value
    try:
        return yaml.safe_load(value)
    except yaml.YAMLError:
        return value
