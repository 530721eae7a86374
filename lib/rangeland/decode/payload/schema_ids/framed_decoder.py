"""The common part of all decoders of payloads with a schema id.

A decoder asks for each id once. Payloads of all ids are decoded together, in their order.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Generic, TypeAlias, TypeVar

import numpy as np

from rangeland.decode.payload.payload_bytes import PayloadBytes, PayloadFault, payload_bytes
from rangeland.decode.payload.payload_decoder import (
    DecodedPayloads,
    MissingSchemas,
    PayloadArray,
    PayloadDecoder,
    Undecodable,
)
from rangeland.decode.payload.schema_ids.confluent_framing import count_ids, read_schema_ids
from rangeland.decode.payload.schema_ids.schema_catalogue import (
    FoundSchema,
    RegisteredSchema,
    SchemaFormat,
    UnusableSchema,
)
from rangeland.decode.payload.schema_ids.subject_writers import SubjectWriters

Needed = TypeVar("Needed")
Written: TypeAlias = Sequence[tuple[np.ndarray, Needed]]
"""Rows, each with the part that is needed of the schema with which its payloads were written."""

_SHOWN = {
    SchemaFormat.AVRO: "Avro",
    SchemaFormat.JSON: "JSON Schema",
    SchemaFormat.PROTOBUF: "Protobuf",
}


class FramedDecoder(PayloadDecoder, Generic[Needed]):
    """The base of decoders whose payloads may be framed with a schema id. A subclass extracts the
    part that it needs of a writer's schema, and decodes the bodies that follow the frames. Without
    ``writers``, payloads are bare."""

    schema_format: SchemaFormat
    paths: Sequence[str] = ()
    """The paths of the parts of a schema at which there can be a fault, for error messages."""

    def __init__(self, writers: SubjectWriters | None) -> None:
        self._writers = writers
        self._needed: dict[int, Needed | UnusableSchema] = {}

    @abstractmethod
    def _need(self, schema: RegisteredSchema) -> Needed | str:
        """The part that is needed of a writer's schema, or the reason why it lacks that: "has no
        ..."."""

    @abstractmethod
    def _decode_bodies(self, payloads: PayloadBytes, written: Written[Needed]) -> DecodedPayloads:
        """Decodes the payloads without faults, from their ``starts`` on. New faults are either
        noted in ``payloads`` or returned."""

    def _detail(self, payloads: PayloadBytes, row: int, schema_id: int) -> str:
        """The reason to report for the fault of a payload instead of the general one; empty to
        keep that."""
        return ""

    def add_schema(self, schema_id: int, found: FoundSchema) -> None:
        if self._writers is None:
            super().add_schema(schema_id, found)
            return
        schema = self._writers.judge(schema_id, found)
        self._needed[schema_id] = (
            schema if isinstance(schema, UnusableSchema) else self._needed_of(schema_id, schema)
        )

    def decode(self, payloads: PayloadArray) -> DecodedPayloads | MissingSchemas:
        data = payload_bytes(payloads)
        ids = np.zeros(data.count, np.int64)
        if self._writers is not None:
            ids = read_schema_ids(data)
        counts = count_ids(ids)
        if missing := tuple(schema_id for schema_id in counts if schema_id not in self._needed):
            return MissingSchemas(missing)
        decoded = self._decode_bodies(data, self._written(data, ids, counts))
        count = len(decoded.values)
        failures = [
            Undecodable(row, self._reason(data, row, ids)) for row in data.undecodable_rows(count)
        ]
        if decoded.undecodable:
            failures = sorted([*failures, *decoded.undecodable], key=lambda failure: failure.row)
        failures = [
            replace(failure, schema_id=int(ids[failure.row]) or None) for failure in failures
        ]
        if count < data.count:
            counts = count_ids(ids[:count])
        return DecodedPayloads(decoded.values, failures, decoded.rescued, counts)

    def _written(
        self, data: PayloadBytes, ids: np.ndarray, schema_ids: Iterable[int]
    ) -> Written[Needed]:
        """The rows for each usable schema. Notes a fault for the rows of all other schemas."""
        written = []
        for schema_id in schema_ids:
            rows = np.flatnonzero(ids == schema_id)
            needed = self._needed[schema_id]
            if isinstance(needed, UnusableSchema):
                data.fail(rows, PayloadFault.UNKNOWN_SCHEMA_ID)
            else:
                written.append((rows, needed))
        return written

    def _needed_of(self, schema_id: int, schema: RegisteredSchema) -> Needed | UnusableSchema:
        if schema.format is self.schema_format:
            needed = self._need(schema)
        else:
            needed = f"is not {_SHOWN[self.schema_format]} but {schema.format}"
        if isinstance(needed, str):
            return UnusableSchema(f"the schema with id {schema_id} {needed}")
        return needed

    def _reason(self, data: PayloadBytes, row: int, ids: np.ndarray) -> str:
        fault = int(data.faults[row])
        place = int(data.places[row])
        detail = self._detail(data, row, int(ids[row]))
        if fault == PayloadFault.UNKNOWN_SCHEMA_ID:
            unusable = self._needed[int(ids[row])]
            detail = unusable.reason if isinstance(unusable, UnusableSchema) else ""
        return data.reason(row, self.paths[place] if place >= 0 else "", detail)
