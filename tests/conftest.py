"""Flags of the test suite: heavy groups are off unless asked for."""

from __future__ import annotations

import signal

import pytest

GROUPS = {
    "engine": "starts the real engine (run under .envs/policy-cpu)",
    "study": "runs a whole small study through Snakemake",
}


def pytest_configure() -> None:
    """A shell makes what it starts in the background ignore Ctrl-C, and so all below it; tests send one."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    for name, meaning in GROUPS.items():
        parser.addoption(f"--{name}", action="store_true", help=f"also run tests that {meaning.split(' (')[0]}")
    parser.addoption("--mend", action="store_true", help="write generated files (config/schema.json) anew")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        for name, meaning in GROUPS.items():
            if item.get_closest_marker(name) and not config.getoption(f"--{name}"):
                item.add_marker(pytest.mark.skip(reason=f"--{name}: {meaning}"))
