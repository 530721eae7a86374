"""JSON payloads with a schema id in front, as Confluent's JSON Schema serializer writes them.

The frame becomes white space, and what follows is decoded by the table's schema. The writer's
schema is only looked up to know that the id names a JSON Schema.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from rangeland.decode.payload.json.json_format import JsonFormat
from rangeland.decode.payload.payload_bytes import PayloadBytes, payload_bytes
from rangeland.decode.payload.payload_decoder import (
    DecodedPayloads,
    PayloadArray,
    PayloadDecoder,
    PayloadFormat,
    Undecodable,
)
from rangeland.decode.payload.payload_faults import PayloadFault
from rangeland.decode.payload.schema_ids.confluent_framing import (
    FRAME_BYTES,
    count_ids,
    read_schema_ids,
)
from rangeland.decode.payload.schema_ids.schema_catalogue import (
    SchemaFormat,
    UnusableSchema,
    WriterSchemas,
    WrittenBefore,
)

BLANK = ord(" ")


@dataclass(frozen=True)
class FramedJsonFormat(PayloadFormat):
    """``body``: the format of what follows the frame."""

    body: JsonFormat
    writers: WriterSchemas
    name = "json"

    @property
    def arrow_type(self) -> pa.DataType:
        return self.body.arrow_type

    def of_records(self, written: WrittenBefore) -> FramedJsonFormat:
        return replace(self, writers=self.writers.of_records(written))

    def decoder(self) -> FramedJsonDecoder:
        return FramedJsonDecoder(self)


class FramedJsonDecoder(PayloadDecoder):
    """See ``FramedJsonFormat``."""

    def __init__(self, form: FramedJsonFormat) -> None:
        self.arrow_type = form.arrow_type
        self._writers = form.writers
        self._body = form.body.decoder()
        self._refused: dict[int, str] = {}

    def decode(self, payloads: PayloadArray) -> DecodedPayloads:
        found = payload_bytes(payloads)
        ids = read_schema_ids(found)
        for schema_id in count_ids(ids):
            if self._reason(schema_id):
                found.fail(np.flatnonzero(ids == schema_id), PayloadFault.UNKNOWN_SCHEMA_ID)
        decoded = self._body.decode(_without_frames(found, payloads.type))
        count = len(decoded.values)
        bad = {
            row: Undecodable(
                row, found.reason(row, detail=self._refused.get(int(ids[row]), "")), _id(ids, row)
            )
            for row in found.bad_rows(count)
        }
        for one in decoded.undecodable:
            bad[one.row] = replace(one, schema_id=_id(ids, one.row))
        undecodable = [bad[row] for row in sorted(bad)]
        return replace(decoded, undecodable=undecodable, schema_ids=count_ids(ids[:count]))

    def _reason(self, schema_id: int) -> str:
        """Why payloads with this id are refused; empty if they are not. Looked up once."""
        if schema_id not in self._refused:
            schema = self._writers.of_id(schema_id)
            reason = ""
            if isinstance(schema, UnusableSchema):
                reason = schema.reason
            elif schema.format is not SchemaFormat.JSON:
                reason = f"the schema with id {schema_id} is not JSON Schema but {schema.format}"
            self._refused[schema_id] = reason
        return self._refused[schema_id]


def _without_frames(found: PayloadBytes, kind: pa.DataType) -> PayloadArray:
    """The payloads with blanks for their frames, and null for those at fault. One copy."""
    count, is_sound = found.count, found.faults == 0
    first = int(found.begins[0]) if count else 0
    end = int(found.ends[-1]) if count else 0
    data = np.frombuffer(found.data, np.uint8)[first:end].copy()
    frames = found.begins[is_sound] - first
    for at in range(FRAME_BYTES):
        data[frames + at] = BLANK
    width = np.int64 if pa.types.is_large_binary(kind) else np.int32
    offsets = np.concatenate([found.begins - first, [end - first]]).astype(width)
    valid = pa.py_buffer(np.packbits(is_sound, bitorder="little"))
    return pa.Array.from_buffers(kind, count, [valid, pa.py_buffer(offsets), pa.py_buffer(data)])


def _id(ids: np.ndarray, row: int) -> int | None:
    return int(ids[row]) or None
