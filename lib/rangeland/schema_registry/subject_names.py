"""The subjects of schemas, by the three strategies of Confluent's serializers."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Any, Final

from rangeland.decode.payload.schema_ids.schema_catalogue import (
    RegisteredSchema,
    SchemaFormat,
    TopicField,
)
from rangeland.untrusted import Unreadable, parse_json

_NOT_CODE: Final = re.compile(
    r'//[^\n]*|/\*.*?\*/|"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)*\'', re.DOTALL
)
_PACKAGE: Final = re.compile(r"\bpackage\s+([\w.]+)\s*;")
_MESSAGE: Final = re.compile(r"\bmessage\s+(\w+)\s*\{")


class SubjectNameStrategy(StrEnum):
    """The strategies, as Confluent's serializers name them."""

    TOPIC = "TopicNameStrategy"
    RECORD = "RecordNameStrategy"
    TOPIC_RECORD = "TopicRecordNameStrategy"

    @property
    def names_the_record(self) -> bool:
        """Whether a subject depends on the full name of the record, so that the values of a topic
        may have several."""
        return self is not SubjectNameStrategy.TOPIC


def own_prefix(strategy: SubjectNameStrategy, topic: str) -> str | None:
    """The prefix of the names of a topic's subjects; None if there is only one, with a known
    name."""
    if strategy is SubjectNameStrategy.RECORD:
        return ""
    return f"{topic}-" if strategy.names_the_record else None


def subject_name(
    strategy: SubjectNameStrategy, of: TopicField, schema: RegisteredSchema | None = None
) -> str | None:
    """The subject of a topic's keys or values. ``schema``: a schema of the records, for its name.
    None if the strategy names the record, and there is no schema or it has no name."""
    if not strategy.names_the_record:
        return f"{of.topic}-{of.field}"
    name = record_name(schema) if schema is not None else None
    if name is None:
        return None
    return name if strategy is SubjectNameStrategy.RECORD else f"{of.topic}-{name}"


def record_name(schema: RegisteredSchema) -> str | None:
    """The full name of an Avro type, the ``title`` of a JSON Schema, or the full name of the first
    message of a Protobuf file; None if it has none."""
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
