"""JSON payloads, decoded by a schema. What is accepted: ``json_rules``."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from rangeland.decode.native.native_library import load_library
from rangeland.decode.payload.json.json_kernel import JsonKernel
from rangeland.decode.payload.json.json_rules import check_schema
from rangeland.decode.payload.payload_decoder import (
    PayloadDecoder,
    PayloadFormat,
    UnknownFields,
)


@dataclass(frozen=True)
class JsonFormat(PayloadFormat):
    """Raises PayloadSchemaError for a schema that JSON cannot have."""

    schema: pa.StructType
    unknown_fields: UnknownFields = UnknownFields.DROP

    name = "json"

    def __post_init__(self) -> None:
        check_schema(self.schema)

    @property
    def arrow_type(self) -> pa.DataType:
        return self.schema

    def decoder(self) -> PayloadDecoder:
        return JsonKernel(load_library(), self.schema, self.unknown_fields)
