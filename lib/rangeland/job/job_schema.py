"""The JSON schema of a job file, derived from its models, for editors and validators.

A file may be complete, or be a part that another file extends. So required fields are required only
of a file that names a job and extends nothing; types, values and unknown fields are checked in all
files. The schema keeps to draft 7, which every editor supports, and inlines all definitions.

Everything that a schema cannot express is checked by ``job_file``: for example, that a topic in
``range`` is among ``topics``.
"""

from __future__ import annotations

import json
from typing import Any

from pydantic.json_schema import GenerateJsonSchema

from rangeland.job.job_file import Job
from rangeland.job.job_text import EXTENDS
from rangeland.job.value_parsers import Schema, size_text

DRAFT = "http://json-schema.org/draft-07/schema#"
EXTENDS_SCHEMA: Schema = {
    "description": "A file, or a list of files, to extend: mappings are merged, everything "
    "else is replaced, and later files win. Paths are relative to this file.",
    "anyOf": [
        {"type": "string", "minLength": 1, "examples": ["base.yaml"]},
        {"type": "array", "minItems": 1, "items": {"type": "string", "minLength": 1}},
    ],
}
_REQUIRING = ("required", "oneOf", "anyOf")
"""The keywords that say which fields of a model are required. The last two have other uses in the
schema of a field."""


class _Plain(GenerateJsonSchema):
    """Keeps the titles of our value types, and does not turn the names of fields into titles."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def job_schema() -> Schema:
    """The schema as JSON values; the same models always give the same text."""
    model = Job.model_json_schema(by_alias=True, schema_generator=_Plain)
    parts = model.pop("$defs")
    whole = _inline(model, parts)
    required = _take_required(whole)
    return {
        "$schema": DRAFT,
        "title": "Rangeland job file",
        "description": "A file that names a job and extends nothing must be complete.",
        "type": "object",
        "properties": {EXTENDS: EXTENDS_SCHEMA, **whole["properties"]},
        "additionalProperties": False,
        "if": {"required": ["job"], "not": {"required": [EXTENDS]}},
        "then": required,
    }


def schema_text() -> str:
    """The schema as the text of a file."""
    return json.dumps(job_schema(), indent=2) + "\n"


def _inline(node: Any, parts: Schema) -> Any:
    """The node with definitions in place of references; the field's own keywords win."""
    if isinstance(node, list):
        return [_inline(item, parts) for item in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        part = parts[node["$ref"].rpartition("/")[2]]
        node = {**{k: v for k, v in part.items() if k != "title"}, **node}
        del node["$ref"]
    node = {key: _inline(value, parts) for key, value in node.items()}
    if isinstance(node.get("description"), str):
        node["description"] = " ".join(node["description"].split())
    return _with_plain_default(node)


def _with_plain_default(node: Schema) -> Schema:
    """The schema with its default in the form that a person would write, and without the default if
    it is a section."""
    if node.get("type") == "object" or isinstance(node.get("default"), dict):
        node.pop("default", None)
    if "size" in (node.get("title"), *(member.get("title") for member in node.get("anyOf", ()))):
        default = node.get("default")
        if isinstance(default, int):
            node["default"] = size_text(default)
    return node


def _take_required(node: Schema) -> Schema:
    """Removes the keywords about required fields from a model's schema, and returns them."""
    required: Schema = {}
    for part in [node, *(member for member in node.get("anyOf", ()) if "properties" in member)]:
        if "properties" not in part:
            continue
        required |= {key: part.pop(key) for key in _REQUIRING if key in part}
        inner = {name: _take_required(field) for name, field in part["properties"].items()}
        fields = {name: keywords for name, keywords in inner.items() if keywords}
        if fields:
            required["properties"] = fields
    return required
