"""Finds the names of records in their schemas. Every strategy except the one based on topic names
derives subjects from these names."""

from __future__ import annotations

import re
from typing import Any, Final

from rangeland.decode.payload.schema_ids.schema_catalogue import RegisteredSchema, SchemaFormat
from rangeland.untrusted import Unreadable, parse_json

_NOT_CODE: Final = re.compile(
    r'//[^\n]*|/\*.*?\*/|"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)*\'', re.DOTALL
)
_PACKAGE: Final = re.compile(r"\bpackage\s+([\w.]+)\s*;")
_MESSAGE: Final = re.compile(r"\bmessage\s+(\w+)\s*\{")


def record_name(schema: RegisteredSchema) -> str | None:
    """The full name of an Avro type, the ``title`` of a JSON Schema, or the full name of the first
    message of a Protobuf file; None if there is no name."""
    if schema.format is SchemaFormat.PROTOBUF:
        code = _NOT_CODE.sub(" ", schema.text)
        package = _PACKAGE.search(code)
        message = _MESSAGE.search(code)
        if message is None:
            return None
        return f"{package[1]}.{message[1]}" if package else message[1]
    try:
        content = parse_json(schema.text)
    except Unreadable:
        return None
    name = _avro_name(content) if schema.format is SchemaFormat.AVRO else _title(content)
    return name if isinstance(name, str) and name else None


def _avro_name(content: Any) -> Any:
    if not isinstance(content, dict):
        return content  # the name of a primitive type
    name = content.get("name", content.get("type"))
    namespace = content.get("namespace")
    if isinstance(name, str) and isinstance(namespace, str) and namespace and "." not in name:
        return f"{namespace}.{name}"
    return name


def _title(content: Any) -> Any:
    return content.get("title") if isinstance(content, dict) else None
