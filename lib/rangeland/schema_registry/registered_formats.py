"""The format of payloads whose table has the latest schema of a subject."""

from __future__ import annotations

from typing import Final

from rangeland.decode.payload.avro_format import AvroFormat, WriterSchemas
from rangeland.decode.payload.framed_json import FramedJsonFormat
from rangeland.decode.payload.json_format import JsonFormat
from rangeland.decode.payload.json_schema import parse_json_schema
from rangeland.decode.payload.payload_decoder import (
    PayloadFormat,
    PayloadSchemaError,
    UnknownFields,
)
from rangeland.decode.payload.protobuf_format import ProtobufFormat
from rangeland.decode.payload.schema_catalogue import RegisteredSchema, SchemaFormat
from rangeland.schema_registry.proto_compiler import compile_proto

MAIN_FILE: Final = "rangeland_main.proto"
"""The path of a Protobuf schema itself; a registry names only what it imports."""


def registered_format(
    schema: RegisteredSchema,
    writers: WriterSchemas,
    *,
    message: str = "",
    unknown_fields: UnknownFields = UnknownFields.DROP,
    schema_id: int | None = None,
) -> PayloadFormat:
    """``schema``: the table's, with this id. ``message``: the one that is meant, for a Protobuf
    file with several. ``unknown_fields``: for JSON. Raises PayloadSchemaError for a schema that
    cannot be used, UsageError if there is no compiler for Protobuf."""
    match schema.format:
        case SchemaFormat.AVRO:
            return AvroFormat(schema.text, writers, schema_id=schema_id)
        case SchemaFormat.PROTOBUF:
            files = {one.name: one.text for one in schema.references}
            if MAIN_FILE in files:
                raise PayloadSchemaError(f"it imports a file that is named {MAIN_FILE}")
            found = compile_proto(MAIN_FILE, {**files, MAIN_FILE: schema.text})
            return ProtobufFormat(found, message, writers)
        case SchemaFormat.JSON:
            others = {one.name: one.text for one in schema.references}
            fields = parse_json_schema(schema.text, others)
            return FramedJsonFormat(JsonFormat(fields, unknown_fields), writers)
