"""The settings of a job file as a page, made from the models.

``python -m rangeland.job.reference_page`` makes it.

It writes anew what is between the two marks of ``configs/README.md``, and the JSON schema
beside it. Without a folder it takes ``configs`` of the working folder. A test holds that
both are current, so that a field without a description or a stale table cannot last.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rangeland.job.job_schema import job_schema, schema_text

BEGIN = "<!-- settings: made by `python -m rangeland.job.reference_page`, do not edit below -->"
END = "<!-- end of settings -->"
SCHEMA_FILE = "job.schema.json"

Schema = dict[str, Any]


def settings_page() -> str:
    """All settings: a table for the file itself, and one per section."""
    schema = job_schema()
    properties, demands = schema["properties"], schema["then"]
    plain = {name: node for name, node in properties.items() if section_of(node) is None}
    parts = [_table(plain, demands)]
    for name, node in properties.items():
        section = section_of(node)
        if section is not None:
            inner = demands.get("properties", {}).get(name, {})
            parts.append(f"### {name}\n\n{node['description']}\n\n" + _rows_of(section, inner))
    return "\n".join(parts)


def section_of(node: Schema) -> Schema | None:
    """The schema with the section's fields, also of one that may be left out or be a word."""
    for one in (node, *node.get("anyOf", ())):
        if "properties" in one:
            found: Schema = one
            return found
    return None


def _rows_of(section: Schema, demands: Schema) -> str:
    return _table(dict(_fields(section, demands, "")), _flat_demands(demands, ""))


def _fields(section: Schema, demands: Schema, prefix: str) -> Iterator[tuple[str, Schema]]:
    for name, node in section["properties"].items():
        inner = section_of(node)
        if inner is None or "boolean" in {one.get("type") for one in node.get("anyOf", ())}:
            yield prefix + name, node
        if inner is not None:
            yield from _fields(inner, demands, f"{prefix}{name}.")


def _flat_demands(demands: Schema, prefix: str) -> Schema:
    needed = [prefix + name for name in demands.get("required", ())]
    for name, inner in demands.get("properties", {}).items():
        needed += _flat_demands(inner, f"{prefix}{name}.")["required"]
    return {"required": needed}


def _table(fields: Schema, demands: Schema) -> str:
    needed = demands.get("required", ())
    lines = ["| field | words | default | meaning |", "|---|---|---|---|"]
    for name, node in fields.items():
        default = "needed" if name in needed else default_of(node)
        cells = [f"`{name}`", words_of(node), default, node["description"]]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def words_of(node: Schema) -> str:
    """What may be written, in a few words."""
    if "anyOf" in node and node.get("title") != "size":
        kinds = [words_of(one) for one in node["anyOf"] if one.get("type") != "null"]
        return ", ".join(dict.fromkeys(kinds))
    if "title" in node:
        title = str(node["title"])
        return f"`{title}`" if ":" in title else title
    if "enum" in node or "const" in node:
        return ", ".join(f"`{word}`" for word in node.get("enum", [node.get("const")]))
    match node["type"]:
        case "array":
            return f"list of {words_of(node['items'])}"
        case "integer":
            least = node.get("minimum", node.get("exclusiveMinimum", -1) + 1)
            return f"whole number from {least}"
        case "boolean":
            return "`true`, `false`"
        case "object":
            return "section"
        case kind:
            return {"string": "text"}[kind]


def default_of(node: Schema) -> str:
    """The default as one would write it, nothing where there is none."""
    default = node.get("default")
    if default is None or default == []:
        return ""
    return f"`{str(default).lower() if isinstance(default, bool) else default}`"


def renewed(page: str) -> str:
    """The page with what is between the marks made anew. Raises ValueError without marks."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page lacks {BEGIN if not begin else END}")
    return f"{before}{BEGIN}\n\n{settings_page()}\n{END}{after}"


def main(arguments: list[str]) -> int:
    folder = Path(arguments[0] if arguments else "configs")
    page = folder / "README.md"
    page.write_text(renewed(page.read_text(encoding="utf-8")), encoding="utf-8")
    (folder / SCHEMA_FILE).write_text(schema_text(), encoding="utf-8")
    print(f"{page} and {folder / SCHEMA_FILE} are current")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
