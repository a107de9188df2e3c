"""A request in the shape of a recorded one, made up for tests: the agents' own prompts are not kept here."""

import json
from pathlib import Path

SYSTEM = """You are a made-up coding assistant of the tests, running in a made-up harness.

<rules>
- Use the tools that are listed, one at a time, and be brief
- Documentation lies in /opt/agents/node_modules/made-up/README.md
</rules>

<cwd>
/workdir
</cwd>"""


def write_request(path: Path, **changes: object) -> Path:
    """Write the request as ``policy/prompts/<harness>.json`` would hold it, some keys changed."""
    tools = [
        {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {}}}}
        for name in ("read", "bash")
    ]
    user = {"role": "user", "content": [{"type": "text", "text": "What is the sum of price in sales.csv?"}]}
    request = {"model": "policy", "messages": [{"role": "system", "content": SYSTEM}, user], "tools": tools}
    path.write_text(json.dumps({"harness": "pi", "harness_version": "1.6.0", "request": request} | changes))
    return path
