"""The section ``decode`` of a job file: how keys and values become typed columns.

What a format cannot do yet is refused here, when the job file is loaded.
"""

from __future__ import annotations

import re
from typing import Literal

from pydantic import Field, field_validator, model_validator

from rangeland.decode.payload.payload_decoder import PayloadSchemaError
from rangeland.decode.payload.schema_ddl import parse_ddl
from rangeland.job.section import MisplacedKey, Section

DDL_FILE = ".ddl"
SCHEMA_FILES = (DDL_FILE,)
_WITHOUT_SCHEMA = ("bytes", "string")
_FILE = re.compile(r"[^\s<>(),]+\.(ddl|json|avsc|proto|desc|pb)", re.IGNORECASE)


def names_file(schema: str) -> bool:
    """Whether a schema is the name of a file, and not a schema itself."""
    return _FILE.fullmatch(schema.strip()) is not None


class PayloadSpec(Section):
    """What keys or values are."""

    format: Literal["bytes", "string", "json"] = Field(
        default="bytes",
        description="`bytes` stay as they are, `string` is text in UTF-8, `json` has the fields of "
        "its schema.",
    )
    schema_: str | None = Field(
        default=None,
        alias="schema",
        min_length=1,
        json_schema_extra={"examples": ["id BIGINT, name STRING", "schemas/orders.ddl"]},
        description="The fields, in Spark's DDL, or the path of a `.ddl` file with them. A field "
        "that is NOT NULL is required of every record.",
    )

    @field_validator("schema_")
    @classmethod
    def _possible(cls, schema: str | None) -> str | None:
        if schema is None:
            return None
        if not names_file(schema):
            try:
                parse_ddl(schema)
            except PayloadSchemaError as error:
                raise ValueError(f"a schema in Spark's DDL: {error}") from None
        elif not schema.strip().lower().endswith(SCHEMA_FILES):
            raise ValueError(
                "a schema in Spark's DDL, or a .ddl file; others are not supported yet"
            )
        return schema

    @model_validator(mode="after")
    def _with_or_without_schema(self) -> PayloadSpec:
        if self.schema_ is None and self.format not in _WITHOUT_SCHEMA:
            raise MisplacedKey(f"the fields of {self.format}, as Spark DDL or a file", "schema")
        if self.schema_ is not None and self.format in _WITHOUT_SCHEMA:
            raise MisplacedKey(f"nothing: {self.format} has no fields", "schema")
        return self

    @property
    def has_fields(self) -> bool:
        return self.format not in _WITHOUT_SCHEMA


class Decode(Section):
    """How keys and values become typed columns. Without it both are BINARY. What happens to a
    record that cannot be decoded is `policy.undecodable`."""

    value: PayloadSpec = Field(default=PayloadSpec(), description="What values are.")
    key: PayloadSpec = Field(default=PayloadSpec(), description="What keys are.")
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

    @property
    def is_typed(self) -> bool:
        return {self.value.format, self.key.format} != {"bytes"}

    @model_validator(mode="after")
    def _has_fields(self) -> Decode:
        if self.layout == "flat" and not self.value.has_fields:
            expected = f"nested: values that are {self.value.format} have no fields"
            raise MisplacedKey(expected, "layout")
        if self.unknown_fields == "keep" and not self.value.has_fields:
            expected = f"drop: values that are {self.value.format} have no fields"
            raise MisplacedKey(expected, "unknown_fields")
        return self
