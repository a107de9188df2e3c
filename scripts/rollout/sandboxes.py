"""A study's sandbox as Harbor's environment settings. Imports neither harbor nor openenv."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scripts.study.config import Sandbox

BUBBLEWRAP = "bubblewrap"
IMPORT_PATH = "scripts.rollout.bubblewrap:BubblewrapEnvironment"


def environment_settings(sandbox: Sandbox, agents_dir: Path, root: Path, ports: Sequence[int]) -> dict[str, Any]:
    """The fields ``type``, ``import_path`` and ``kwargs`` of Harbor's ``EnvironmentConfig``.

    :param sandbox: the study's section; ``bubblewrap``, a Harbor environment's name, or ``module:Class``.
    :param agents_dir: folder whose ``node_modules`` holds the agents; used by bubblewrap alone.
    :param root: folder for the sandboxes of this job; used by bubblewrap alone.
    :param ports: loopback ports that must answer inside, the capture proxy's; used by bubblewrap alone.
    """
    options = dict(sandbox.options)
    if sandbox.environment == BUBBLEWRAP:
        ours = {"agents_dir": str(agents_dir.resolve()), "root": str(root.resolve()), "expose_ports": list(ports)}
        return {"type": None, "import_path": IMPORT_PATH, "kwargs": {**options, **ours}}
    if ":" in sandbox.environment:
        return {"type": None, "import_path": sandbox.environment, "kwargs": options}
    return {"type": sandbox.environment, "import_path": None, "kwargs": options}
