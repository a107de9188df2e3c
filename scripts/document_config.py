"""Write what is derived from the config model: ``config/schema.json`` and the key tables of ``config/README.md``."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from scripts.study.config import Section, Study

BEGIN = "<!-- begin: written by scripts/document_config.py -->"
END = "<!-- end -->"


def kind(field: dict[str, Any]) -> str:
    """A field's type in words, from its JSON schema."""
    if "enum" in field:
        return " \\| ".join(f"`{value}`" for value in field["enum"])
    if "const" in field:
        return f"`{field['const']}`"
    if "anyOf" in field:
        return " or ".join(kind(option) for option in field["anyOf"])
    if field.get("type") == "array":
        return f"list of {kind(field.get('items', {}))}"
    return {"integer": "whole number", "boolean": "true or false", "string": "text", "object": "mapping"}.get(
        field.get("type", ""), field.get("type", "")
    )


def default(field: dict[str, Any]) -> str:
    """A field's default as YAML would hold it, or that it must be given."""
    return f"`{json.dumps(field['default'])}`" if "default" in field else "must be given"


def table(title: str, model: type[Section]) -> str:
    """A Markdown section with one row per key of a model."""
    schema = model.model_json_schema()
    lines = [f"### {title}", "", (model.__doc__ or "").split("\n")[0], ""]
    lines += ["| key | type | default | meaning |", "|---|---|---|---|"]
    for key, field in schema["properties"].items():
        if "description" in field:
            lines.append(f"| `{key}` | {kind(field)} | {default(field)} | {field['description']} |")
        else:
            lines.append(f"| `{key}` | section | | see below |")
    return "\n".join(lines)


def sections(model: type[Section], prefix: str = "") -> list[tuple[str, type[Section]]]:
    """Every section below a model with its dotted key, in the order of the fields."""
    found: list[tuple[str, type[Section]]] = []
    for name, field in model.model_fields.items():
        annotation = field.annotation
        if isinstance(annotation, type) and issubclass(annotation, Section):
            found += [(f"{prefix}{name}", annotation), *sections(annotation, f"{prefix}{name}.")]
        elif name == "suites":
            from scripts.study.config import Suite

            found.append(("suites.<name>", Suite))
    return found


def documents(root: Path) -> dict[Path, str]:
    """The derived files and the text that each should hold.

    :param root: folder of the repository.
    """
    readme = root / "config" / "README.md"
    before, rest = readme.read_text().split(BEGIN)
    after = rest.split(END)[1]
    tables = "\n\n".join([table("The study", Study), *(table(f"`{key}`", model) for key, model in sections(Study))])
    return {
        root / "config" / "schema.json": json.dumps(Study.model_json_schema(), indent=2, sort_keys=True) + "\n",
        readme: f"{before}{BEGIN}\n\n{tables}\n\n{END}{after}",
    }


def main(argv: list[str] | None = None) -> int:
    """Write the derived files."""
    argparse.ArgumentParser(description=__doc__).parse_args(argv)
    for path, text in documents(Path(__file__).parent.parent).items():
        path.write_text(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
