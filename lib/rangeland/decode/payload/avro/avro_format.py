"""Avro payloads: either framed with the id of their writer's schema, or bare and all of the same
schema.

Payloads of all ids are decoded in one call of the kernel, each by its writer's program.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from rangeland.decode.payload.avro.avro_resolution import AvroCompiler, Mismatch
from rangeland.decode.payload.avro.avro_schema import AvroType, arrow_type_of, parse_avro_schema
from rangeland.decode.payload.payload_bytes import PayloadBytes, PayloadFault
from rangeland.decode.payload.payload_decoder import (
    DecodedPayloads,
    PayloadFormat,
    PayloadSchemaError,
)
from rangeland.decode.payload.payload_kernel import AvroProgram, PayloadKernel
from rangeland.decode.payload.schema_ids.framed_decoder import FramedDecoder, Written
from rangeland.decode.payload.schema_ids.schema_catalogue import (
    RegisteredSchema,
    SchemaFormat,
    UnusableSchema,
)
from rangeland.decode.payload.schema_ids.subject_writers import SubjectWriters


@dataclass(frozen=True)
class AvroFormat(PayloadFormat):
    """Payloads in Avro, decoded to the schema of one table."""

    schema: str
    """The table's schema, as JSON."""
    writers: SubjectWriters | None = None
    """The writers of payloads that are framed with a schema id. If it is None, payloads are
    bare."""
    writer_schema: str = ""
    """The writer's schema of bare payloads; the default is the table's schema."""
    schema_id: int | None = None
    """The id of the table's schema, for messages."""
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

    def unreadable(self, writer: RegisteredSchema | UnusableSchema) -> tuple[Mismatch, ...]:
        """The fields of a writer's schema whose types the table's schema cannot take. Empty for a
        schema that cannot be used: its records are undecodable."""
        if not isinstance(writer, RegisteredSchema) or writer.format is not SchemaFormat.AVRO:
            return ()
        try:
            mismatches = unreadable_fields(writer.text, self.schema)
        except PayloadSchemaError:
            return ()
        return tuple(mismatch for mismatch in mismatches if not mismatch.is_of_some)

    def decoder(self) -> AvroDecoder:
        return AvroDecoder(self)


def unreadable_fields(writer: str, reader: str) -> tuple[Mismatch, ...]:
    """The parts of a writer's schema that a reader's schema cannot take, so that payloads that
    contain them would be undecodable; empty if every payload can be read. Raises
    PayloadSchemaError."""
    compiler = AvroCompiler(parse_avro_schema(reader))
    _, mismatches = compiler.add_writer(parse_avro_schema(writer))
    return tuple(mismatches.values())


class AvroDecoder(FramedDecoder[int]):
    """Decodes payloads of an ``AvroFormat``. All it needs to know about a writer's schema is where
    its program begins."""

    schema_format = SchemaFormat.AVRO

    def __init__(self, form: AvroFormat) -> None:
        super().__init__(form.writers)
        reader = parse_avro_schema(form.schema)
        self.arrow_type = arrow_type_of(reader)
        self._compiler = AvroCompiler(reader)
        self.paths = self._compiler.nodes.paths
        self._mismatches: dict[int, Mismatch] = {}
        self._reader = "" if form.schema_id is None else f" in schema {form.schema_id}"
        self._bare = -1
        self._program: AvroProgram | None = None
        if form.writers is None:
            writer = parse_avro_schema(form.writer_schema) if form.writer_schema else reader
            self._bare = self._add(writer)

    @cached_property
    def _kernel(self) -> PayloadKernel:
        return PayloadKernel()

    def _need(self, schema: RegisteredSchema) -> int | str:
        try:
            return self._add(parse_avro_schema(schema.text))
        except PayloadSchemaError as error:
            return f"cannot be used: {error}"

    def _add(self, writer: AvroType) -> int:
        root, mismatches = self._compiler.add_writer(writer)
        self._mismatches.update(mismatches)
        self._program = None
        return root

    def _decode_bodies(self, payloads: PayloadBytes, written: Written[int]) -> DecodedPayloads:
        roots = np.full(payloads.count, self._bare, np.int64)
        for rows, root in written:
            roots[rows] = root
        self._program = self._program or self._compiler.nodes.program()
        columns = self._compiler.columns
        return DecodedPayloads(self._kernel.decode_avro(payloads, roots, self._program, columns))

    def _detail(self, payloads: PayloadBytes, row: int, schema_id: int) -> str:
        place = int(payloads.places[row])
        if payloads.faults[row] == PayloadFault.UNRESOLVED and place in self._mismatches:
            return f"{self._mismatches[place]}{self._reader}"
        return ""
