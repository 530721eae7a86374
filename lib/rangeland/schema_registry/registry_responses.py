"""The responses of Confluent's API, read from JSON. Every function raises Unreadable for JSON of
another form."""

from __future__ import annotations

from dataclasses import dataclass

from rangeland.decode.payload.schema_ids.schema_catalogue import SchemaFormat, SubjectVersion
from rangeland.untrusted import MAX_INT32, JsonFields, Unreadable, parse_json, require_type

MAX_RESPONSE_BYTES = 16 << 20
UNKNOWN_SUBJECT, UNKNOWN_VERSION, UNKNOWN_SCHEMA = 40401, 40402, 40403
"""Values of ``error_code`` that come with status 404. A 404 with another code, or without one,
comes from a server that is not a registry, or from a URL that lacks the path of its API."""


@dataclass(frozen=True, slots=True)
class SchemaReference:
    """A schema's reference to a version of a subject, which it calls ``name``."""

    name: str
    at: SubjectVersion


@dataclass(frozen=True, slots=True)
class SchemaResponse:
    format: SchemaFormat
    text: str
    references: tuple[SchemaReference, ...]


@dataclass(frozen=True, slots=True)
class VersionResponse:
    """One version of a subject."""

    id: int
    at: SubjectVersion
    schema: SchemaResponse


def read_schema(body: bytes) -> SchemaResponse:
    """Reads the response to ``GET /schemas/ids/{id}``."""
    return _schema(JsonFields.parse(body, max_bytes=MAX_RESPONSE_BYTES))


def read_version(body: bytes) -> VersionResponse:
    """Reads the response to ``GET /subjects/{subject}/versions/{version}``."""
    fields = JsonFields.parse(body, max_bytes=MAX_RESPONSE_BYTES)
    return VersionResponse(
        fields.number("id", 0, MAX_INT32), _subject_version(fields), _schema(fields)
    )


def read_versions(body: bytes) -> tuple[SubjectVersion, ...]:
    """Reads the response to ``GET /schemas/ids/{id}/versions``."""
    versions = require_type(parse_json(body, max_bytes=MAX_RESPONSE_BYTES), list, "the versions")
    return tuple(sorted(_subject_version(JsonFields(version)) for version in versions))


def read_error_code(body: bytes) -> int:
    """The ``error_code`` of a response that reports an error; 0 if it has none."""
    try:
        return JsonFields.parse(body, max_bytes=MAX_RESPONSE_BYTES).number("error_code", default=0)
    except Unreadable:
        return 0


def _schema(fields: JsonFields) -> SchemaResponse:
    name = fields.text("schemaType", SchemaFormat.AVRO.value)
    try:
        kind = SchemaFormat(name)
    except ValueError:
        raise Unreadable(f"schemaType: AVRO, JSON or PROTOBUF, not {name[:40]!r}") from None
    references = tuple(
        SchemaReference(reference.text("name"), _subject_version(reference))
        for reference in fields.each("references", [])
    )
    return SchemaResponse(kind, fields.text("schema"), references)


def _subject_version(fields: JsonFields) -> SubjectVersion:
    return SubjectVersion(fields.text("subject"), fields.number("version", 1, MAX_INT32))
