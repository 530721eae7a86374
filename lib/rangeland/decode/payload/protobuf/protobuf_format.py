"""Protobuf payloads: framed with the id of their schema and the indexes of their message, or bare.

The table's descriptors decode all of them, as fields are known by their numbers. Of a writer's
schema only the place of the message in its file matters, which is in the text of the schema.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa

from rangeland.decode.payload.payload_bytes import PayloadBytes, payload_bytes
from rangeland.decode.payload.payload_decoder import (
    DecodedPayloads,
    PayloadArray,
    PayloadDecoder,
    PayloadFormat,
    PayloadSchemaError,
    Undecodable,
)
from rangeland.decode.payload.payload_faults import PayloadFault
from rangeland.decode.payload.payload_kernel import PayloadKernel
from rangeland.decode.payload.protobuf.protobuf_columns import ProtobufCompiler
from rangeland.decode.payload.protobuf.protobuf_descriptors import (
    message_indexes,
    parse_descriptor_set,
)
from rangeland.decode.payload.schema_ids.confluent_framing import (
    count_ids,
    read_schema_ids,
    skip_message_indexes,
)
from rangeland.decode.payload.schema_ids.schema_catalogue import (
    SchemaFormat,
    UnusableSchema,
    WriterSchemas,
    WrittenBefore,
)

CHOOSE: Final = "name one of them as message in the job file, beside format"


@dataclass(frozen=True)
class ProtobufFormat(PayloadFormat):
    """``descriptors``: a descriptor set with all imports, the file itself last. ``message``: the
    full name of the message, which may be left out if the file has only one. ``writers``: for
    payloads that are framed with a schema id."""

    descriptors: bytes
    message: str = ""
    writers: WriterSchemas | None = None
    name = "protobuf"

    def __post_init__(self) -> None:
        """Raises PayloadSchemaError."""
        self.decoder()

    @property
    def arrow_type(self) -> pa.DataType:
        return self.decoder().arrow_type

    def of_records(self, written: WrittenBefore) -> ProtobufFormat:
        if self.writers is None:
            return self
        return replace(self, writers=self.writers.of_records(written))

    def decoder(self) -> ProtobufDecoder:
        return ProtobufDecoder(self)


class ProtobufDecoder(PayloadDecoder):
    """See ``ProtobufFormat``."""

    def __init__(self, form: ProtobufFormat) -> None:
        types = parse_descriptor_set(form.descriptors)
        if not form.message and len(types.main_messages) != 1:
            raise PayloadSchemaError(
                f"it has {len(types.main_messages)} messages, and none is chosen: "
                + ", ".join(types.main_messages[:10]),
                do=CHOOSE,
            )
        if form.message and form.message not in types.messages:
            known = ", ".join(types.main_messages[:10])
            raise PayloadSchemaError(
                f"the message {form.message} is not defined; there are {known}", do=CHOOSE
            )
        self._message = form.message or types.main_messages[0]
        self._writers = form.writers
        compiler = ProtobufCompiler(types, self._message)
        self.arrow_type = compiler.arrow_type
        self._columns = compiler.columns
        self._program = compiler.program()
        self._places: dict[int, tuple[int, ...] | str] = {}
        self._kernel: PayloadKernel | None = None

    def decode(self, payloads: PayloadArray) -> DecodedPayloads:
        found = payload_bytes(payloads)
        ids = np.zeros(found.count, np.int64)
        if self._writers is not None:
            ids = read_schema_ids(found)
        for schema_id in count_ids(ids):
            rows = np.flatnonzero(ids == schema_id)
            place = self._place_of(schema_id)
            if isinstance(place, str):
                found.fail(rows, PayloadFault.UNKNOWN_SCHEMA_ID)
            else:
                skip_message_indexes(found, rows, place)
        self._kernel = self._kernel or PayloadKernel()
        values = self._kernel.decode_protobuf(found, self._program, self._columns)
        count = len(values)
        bad = [self._judged(found, row, int(ids[row])) for row in found.bad_rows(count)]
        return DecodedPayloads(values, bad, schema_ids=count_ids(ids[:count]))

    def _place_of(self, schema_id: int) -> tuple[int, ...] | str:
        """The indexes of the message in the file of a schema, or why there are none."""
        if schema_id not in self._places:
            self._places[schema_id] = self._looked_up(schema_id)
        return self._places[schema_id]

    def _looked_up(self, schema_id: int) -> tuple[int, ...] | str:
        assert self._writers is not None
        schema = self._writers.of_id(schema_id)
        if isinstance(schema, UnusableSchema):
            return schema.reason
        if schema.format is not SchemaFormat.PROTOBUF:
            return f"the schema with id {schema_id} is not Protobuf but {schema.format}"
        found = message_indexes(schema.text).get(self._message)
        return found or f"the schema with id {schema_id} has no message {self._message}"

    def _judged(self, found: PayloadBytes, row: int, schema_id: int) -> Undecodable:
        place = int(found.places[row])
        path = self._program.paths[place] if place >= 0 else ""
        detail = ""
        if found.faults[row] == PayloadFault.UNKNOWN_SCHEMA_ID:
            detail = str(self._places[schema_id])
        return Undecodable(row, found.reason(row, path, detail), schema_id or None)
