"""Avro payloads: framed with the id of their writer's schema, or bare and all of one schema.

Payloads of all ids are decoded together, in one call of the kernel and in their order. What a
schema id stands for is looked up once per decoder.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa

from rangeland.decode.payload.avro.avro_resolution import AvroCompiler, Mismatch
from rangeland.decode.payload.avro.avro_schema import AvroType, arrow_type_of, parse_avro_schema
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
from rangeland.decode.payload.schema_ids.confluent_framing import count_ids, read_schema_ids
from rangeland.decode.payload.schema_ids.schema_catalogue import (
    RegisteredSchema,
    SchemaFormat,
    UnusableSchema,
    WriterSchemas,
    WrittenBefore,
)


@dataclass(frozen=True)
class AvroFormat(PayloadFormat):
    """``schema``: the table's, as JSON. ``writers``: for payloads that are framed with a schema id;
    without it payloads are bare, and written with ``writer_schema``, by default the table's.
    ``schema_id``: that of the table's schema, for messages."""

    schema: str
    writers: WriterSchemas | None = None
    writer_schema: str = ""
    schema_id: int | None = None
    name = "avro"

    def __post_init__(self) -> None:
        """Raises PayloadSchemaError."""
        self.decoder()

    @cached_property
    def _reader(self) -> AvroType:
        return parse_avro_schema(self.schema)

    @property
    def arrow_type(self) -> pa.DataType:
        return arrow_type_of(self._reader)

    def of_records(self, written: WrittenBefore) -> AvroFormat:
        if self.writers is None:
            return self
        return replace(self, writers=self.writers.of_records(written))

    def unreadable(self, schema_id: int) -> tuple[Mismatch, ...]:
        """The fields of a writer's schema whose type the table's schema cannot take. Nothing for an
        id that cannot be used: its records are undecodable. Raises what a lookup raises."""
        writer = None if self.writers is None else self.writers.of_id(schema_id)
        if not isinstance(writer, RegisteredSchema) or writer.format is not SchemaFormat.AVRO:
            return ()
        try:
            found = unreadable_fields(writer.text, self.schema)
        except PayloadSchemaError:
            return ()
        return tuple(one for one in found if not one.is_of_some)

    def decoder(self) -> AvroDecoder:
        return AvroDecoder(self)


def unreadable_fields(writer: str, reader: str) -> tuple[Mismatch, ...]:
    """What a reader's schema cannot take of a writer's, so that payloads that have it would be
    undecodable; nothing if every payload can be read. Raises PayloadSchemaError."""
    compiler = AvroCompiler(parse_avro_schema(reader))
    found = compiler.add_writer(parse_avro_schema(writer))
    return tuple(found.mismatches.values())


class AvroDecoder(PayloadDecoder):
    """See ``AvroFormat``."""

    def __init__(self, form: AvroFormat) -> None:
        self._writers = form.writers
        reader = parse_avro_schema(form.schema)
        self.arrow_type = arrow_type_of(reader)
        self._compiler = AvroCompiler(reader)
        self._mismatches: dict[int, Mismatch] = {}
        self._roots: dict[int, int | str] = {}
        self._reader = "" if form.schema_id is None else f" in schema {form.schema_id}"
        self._bare = -1
        if self._writers is None:
            writer = parse_avro_schema(form.writer_schema) if form.writer_schema else reader
            self._bare = self._added(writer)
        self._program = self._compiler.nodes.program()
        self._kernel: PayloadKernel | None = None

    def decode(self, payloads: PayloadArray) -> DecodedPayloads:
        found = payload_bytes(payloads)
        ids = np.zeros(found.count, np.int64)
        roots = np.full(found.count, self._bare, np.int64)
        if self._writers is not None:
            ids = read_schema_ids(found)
            self._look_up(list(count_ids(ids)), found, ids, roots)
        self._kernel = self._kernel or PayloadKernel()
        values = self._kernel.decode_avro(found, roots, self._program, self._compiler.columns)
        count = len(values)
        bad = [self._judged(found, row, int(ids[row])) for row in found.bad_rows(count)]
        return DecodedPayloads(values, bad, schema_ids=count_ids(ids[:count]))

    def _look_up(
        self, wanted: list[int], found: PayloadBytes, ids: np.ndarray, roots: np.ndarray
    ) -> None:
        missing = [schema_id for schema_id in wanted if schema_id not in self._roots]
        for schema_id in missing:
            self._roots[schema_id] = self._root_of(schema_id)
        if missing:
            self._program = self._compiler.nodes.program()
        for schema_id in wanted:
            root, rows = self._roots[schema_id], ids == schema_id
            if isinstance(root, int):
                roots[rows] = root
            else:
                found.fail(rows, PayloadFault.UNKNOWN_SCHEMA_ID)

    def _root_of(self, schema_id: int) -> int | str:
        """Where the program of a writer's schema begins, or why it cannot be used."""
        assert self._writers is not None
        schema = self._writers.of_id(schema_id)
        if isinstance(schema, UnusableSchema):
            return schema.reason
        if schema.format is not SchemaFormat.AVRO:
            return f"the schema with id {schema_id} is not Avro but {schema.format}"
        try:
            return self._added(parse_avro_schema(schema.text))
        except PayloadSchemaError as error:
            return f"the schema with id {schema_id} cannot be used: {error}"

    def _added(self, writer: AvroType) -> int:
        program = self._compiler.add_writer(writer)
        self._mismatches.update(program.mismatches)
        return program.root

    def _judged(self, found: PayloadBytes, row: int, schema_id: int) -> Undecodable:
        place = int(found.places[row])
        path = self._compiler.nodes.paths[place] if place >= 0 else ""
        detail = ""
        if found.faults[row] == PayloadFault.UNRESOLVED and place in self._mismatches:
            detail = f"{self._mismatches[place]}{self._reader}"
        if found.faults[row] == PayloadFault.UNKNOWN_SCHEMA_ID:
            detail = str(self._roots[schema_id])
        return Undecodable(row, found.reason(row, path, detail), schema_id or None)
