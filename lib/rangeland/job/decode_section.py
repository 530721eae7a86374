"""The section ``decode`` of a job file: how keys and values become typed columns.

Options that a format does not support are refused here, when the job file is loaded.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from rangeland.decode.payload.payload_decoder import PayloadSchemaError
from rangeland.decode.payload.schema_ddl import parse_ddl
from rangeland.decode.payload.schema_ids.schema_catalogue import RecordField
from rangeland.job.registry_section import SchemaRegistry
from rangeland.job.section import MisplacedKey, Section, UnneededKey
from rangeland.job.text_patterns import MESSAGE_NAME

_WITHOUT_SCHEMA = ("bytes", "string")
_FILES = {"json": (".ddl", ".json"), "avro": (".avsc",), "protobuf": (".proto", ".desc", ".pb")}
"""The suffixes of schema files, by format."""
_FILE = re.compile(r"[^\s<>(),]+\.(ddl|json|avsc|proto|desc|pb)", re.IGNORECASE)


def names_file(schema: str) -> bool:
    """Whether a schema is given as the name of a file, as opposed to the schema itself."""
    return _FILE.fullmatch(schema.strip()) is not None


class PayloadSpec(Section):
    """The format of keys or values."""

    format: Literal["bytes", "string", "json", "avro", "protobuf"] = Field(
        default="bytes",
        description="`bytes` stay as they are, `string` is text in UTF-8. `json`, `avro` and "
        "`protobuf` have the fields of their schema.",
    )
    schema_: str | None = Field(
        default=None,
        alias="schema",
        min_length=1,
        json_schema_extra={"examples": ["id BIGINT, name STRING", "schemas/orders.ddl"]},
        description="For JSON the fields in Spark's DDL, a `.ddl` file with them, or a JSON "
        "Schema (`.json`). For Avro an `.avsc` file. For Protobuf a `.proto` file, or a "
        "descriptor set (`.desc`, `.pb`). Every record must have the required fields. With "
        "`decode.registry` the schema may be left out: then the table has the latest schema of "
        "the registry.",
    )
    message: str | None = Field(
        default=None,
        pattern=MESSAGE_NAME,
        json_schema_extra={"examples": ["shop.v1.Order"]},
        description="The Protobuf message, if the schema's file has several.",
    )

    @model_validator(mode="after")
    def _with_or_without_schema(self) -> PayloadSpec:
        if self.schema_ is not None and not self.has_fields:
            raise UnneededKey(f"{self.format} has no fields", "schema")
        if self.message is not None and self.format != "protobuf":
            raise UnneededKey(f"{self.format} has no messages", "message")
        if self.schema_ is None:
            return self
        if names_file(self.schema_):
            if not self.schema_.strip().lower().endswith(_FILES[self.format]):
                raise MisplacedKey(self.expected_schema, "schema")
        elif self.format != "json":
            raise MisplacedKey(self.expected_schema, "schema")
        else:
            try:
                parse_ddl(self.schema_)
            except PayloadSchemaError as error:
                raise MisplacedKey(f"a schema in Spark's DDL: {error}", "schema") from None
        return self

    @property
    def has_fields(self) -> bool:
        return self.format not in _WITHOUT_SCHEMA

    @property
    def expected_schema(self) -> str:
        """The values that ``schema`` may have, in words."""
        file = f"a file that ends with {' or '.join(_FILES[self.format])}"
        return f"fields in Spark's DDL, or {file}" if self.format == "json" else file


class Decode(Section):
    """How keys and values become typed columns. Without it both are BINARY. `policy.undecodable`
    says what happens to a record that cannot be decoded."""

    value: PayloadSpec = Field(default=PayloadSpec(), description="The format of values.")
    key: PayloadSpec = Field(default=PayloadSpec(), description="The format of keys.")
    layout: Literal["nested", "flat"] = Field(
        default="nested",
        description="`nested`: `value` is a STRUCT. `flat`: its fields are columns, and the log's "
        "own columns are named `_key`, `_topic`, `_partition`, `_offset`, `_timestamp` and so on.",
    )
    evolution: Literal["add", "fail", "ignore"] = Field(
        default="add",
        description="Fields of the schema that an existing table lacks: `add` them as nullable "
        "columns, in the commit that lands their first rows; `fail`; or `ignore` them. Columns "
        "that the schema lacks stay in the table.",
    )
    unknown_fields: Literal["drop", "fail", "keep"] = Field(
        default="drop",
        description="Fields of JSON that the schema lacks: `drop` them, `fail` to decode the "
        "record, or `keep` those of the value as JSON text in a column `_rescued_data`.",
    )

    registry: SchemaRegistry | None = Field(
        default=None,
        description="The schema registry of the records. Keys and values that are Avro, JSON or "
        "Protobuf then begin with a schema id, as Confluent's serializers write them.",
    )

    @property
    def is_typed(self) -> bool:
        return {self.value.format, self.key.format} != {"bytes"}

    def payload(self, field: RecordField) -> PayloadSpec:
        return self.key if field == "key" else self.value

    @property
    def schema_files(self) -> dict[RecordField, Path]:
        """The files that contain schemas, by the field of records that they describe."""
        fields: tuple[RecordField, ...] = ("key", "value")
        schemas = {field: self.payload(field).schema_ or "" for field in fields}
        return {field: Path(name.strip()) for field, name in schemas.items() if names_file(name)}

    @property
    def fields_with_schema_ids(self) -> tuple[RecordField, ...]:
        """Which of the fields, keys and values, name schemas in the registry."""
        fields: tuple[RecordField, ...] = ("key", "value")
        return tuple(f for f in fields if self.registry and self.payload(f).has_fields)

    @model_validator(mode="after")
    def _has_schemas(self) -> Decode:
        for name in ("value", "key"):
            payload = getattr(self, name)
            if payload.has_fields and payload.schema_ is None and self.registry is None:
                schema = f"{payload.expected_schema}, or a section decode.registry"
                raise MisplacedKey(schema, name, "schema")
        if self.registry is not None and not self.fields_with_schema_ids:
            raise UnneededKey("neither keys nor values name schemas", "registry")
        return self

    @model_validator(mode="after")
    def _has_fields(self) -> Decode:
        if self.layout == "flat" and not self.value.has_fields:
            layout = f"nested: values that are {self.value.format} have no fields"
            raise MisplacedKey(layout, "layout")
        formats = {self.value.format, self.key.format}
        if self.unknown_fields == "keep" and self.value.format != "json":
            reason = f"it is only for values that are json, and they are {self.value.format}"
            raise UnneededKey(reason, "unknown_fields")
        if self.unknown_fields == "fail" and "json" not in formats:
            raise UnneededKey("neither keys nor values are json", "unknown_fields")
        return self
