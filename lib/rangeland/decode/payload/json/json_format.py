"""JSON payloads, decoded by the table's schema: either bare, or preceded by the id of their
writer's schema, as Confluent's JSON Schema serializer writes them. ``json_rules`` explains the
rules.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from rangeland.decode.native.native_library import load_library
from rangeland.decode.payload.json.json_kernel import JsonKernel
from rangeland.decode.payload.json.json_rules import check_schema_fits_json
from rangeland.decode.payload.payload_bytes import PayloadBytes
from rangeland.decode.payload.payload_decoder import (
    DecodedPayloads,
    PayloadDecoder,
    PayloadFormat,
    UnknownFields,
)
from rangeland.decode.payload.schema_ids.confluent_framing import FRAME_BYTES
from rangeland.decode.payload.schema_ids.framed_decoder import FramedDecoder, Written
from rangeland.decode.payload.schema_ids.schema_catalogue import (
    RegisteredSchema,
    SchemaFormat,
)
from rangeland.decode.payload.schema_ids.subject_writers import SubjectWriters

BLANK = ord(" ")


@dataclass(frozen=True)
class JsonFormat(PayloadFormat):
    """The format of JSON payloads. Raises PayloadSchemaError for a schema that JSON cannot
    fulfil."""

    schema: pa.StructType
    unknown_fields: UnknownFields = UnknownFields.DROP
    writers: SubjectWriters | None = None
    """The writers of payloads that are framed with a schema id. If it is None, payloads are
    bare."""
    name = "json"

    def __post_init__(self) -> None:
        check_schema_fits_json(self.schema)

    @property
    def arrow_type(self) -> pa.DataType:
        return self.schema

    def decoder(self) -> PayloadDecoder:
        bare = JsonKernel(load_library(), self.schema, self.unknown_fields)
        return bare if self.writers is None else FramedJsonDecoder(bare, self.writers)


class FramedJsonDecoder(FramedDecoder[bool]):
    """Decodes JSON that follows a frame with a schema id. The frame is overwritten with white
    space, and the writer's schema is needed only to know that the id stands for a JSON Schema."""

    schema_format = SchemaFormat.JSON

    def __init__(self, bare: JsonKernel, writers: SubjectWriters) -> None:
        super().__init__(writers)
        self.arrow_type = bare.arrow_type
        self._bare = bare

    def _need(self, schema: RegisteredSchema) -> bool:
        return True

    def _decode_bodies(self, payloads: PayloadBytes, written: Written[bool]) -> DecodedPayloads:
        return self._bare.decode(_without_frames(payloads))


def _without_frames(found: PayloadBytes) -> pa.LargeBinaryArray:
    """The payloads with blanks in place of their frames, and null for faulty ones. Makes one
    copy."""
    count = found.count
    is_sound = found.faults == 0
    first = int(found.begins[0]) if count else 0
    end = int(found.ends[-1]) if count else 0
    data = np.frombuffer(found.data, np.uint8)[first:end].copy()
    frames = found.begins[is_sound] - first
    for at in range(FRAME_BYTES):
        data[frames + at] = BLANK
    offsets = np.concatenate([found.begins - first, [end - first]]).astype(np.int64)
    valid = pa.py_buffer(np.packbits(is_sound, bitorder="little"))
    buffers = [valid, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.large_binary(), count, buffers)
