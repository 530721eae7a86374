"""How records become rows with typed columns: the formats of key and value, and the layout.

A ``RowFormat`` is a value that travels to the tasks, where its decoder replaces the bytes of whole
chunks. In a nested table ``value`` is a column of its own. In a flat one its fields are columns,
and the log's own columns come first, with a prefix: Delta keeps statistics of the first columns.
All columns are nullable, whatever the schema requires: a record without a value has a row, too, and
a schema may stop requiring a field. The decoders see to it that required fields are there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.types as pt

from rangeland.decode.columns import KEY, PLAIN_COLUMNS, VALUE, LogColumns
from rangeland.decode.payload.payload_decoder import (
    DecodedPayloads,
    PayloadDecoder,
    PayloadFormat,
    PayloadSchemaError,
)
from rangeland.decode.payload.schema_ids.schema_catalogue import WrittenBefore

FLAT_COLUMNS = LogColumns("_")
RESCUED = pa.field("_rescued_data", pa.string())
_PARTS = (KEY.name, VALUE.name)


@dataclass(frozen=True)
class UndecodableRow:
    """A row whose key or value cannot be decoded. ``field`` says which."""

    row: int
    field: str
    reason: str
    schema_id: int | None = None


@dataclass(frozen=True)
class DecodedRows:
    """Rows with typed columns, those that cannot be decoded still among them. ``schema_ids``: how
    many values named each writer's schema."""

    batch: pa.RecordBatch
    undecodable: Sequence[UndecodableRow] = ()
    schema_ids: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class RowFormat:
    """The formats of key and value, None for bytes. ``keeps_unknown``: fields that the schema lacks
    go to a column of their own, as JSON text. ``written``: what is known of the records' age."""

    key: PayloadFormat | None = None
    value: PayloadFormat | None = None
    is_flat: bool = False
    keeps_unknown: bool = False
    written: WrittenBefore | None = None

    def __post_init__(self) -> None:
        """Raises PayloadSchemaError for columns that a table cannot have."""
        if not self.is_flat:
            return
        if self.value is None or not pt.is_struct(self.value.arrow_type):
            raise PayloadSchemaError("a flat table needs values with fields")
        taken = {RESCUED.name} if self.keeps_unknown else set()
        for name in self.value.arrow_type.names:
            if name.lower() in taken:
                raise PayloadSchemaError(f"the table would have two columns {name}")
            taken.add(name.lower())

    @property
    def columns(self) -> LogColumns:
        return FLAT_COLUMNS if self.is_flat else PLAIN_COLUMNS

    def schema(self, row_schema: pa.Schema) -> pa.Schema:
        """The columns of typed rows, for those of ``decode.columns``. Raises PayloadSchemaError
        where a field has the name of one of the log's own columns."""
        typed = {KEY.name: self.key, VALUE.name: self.value}
        kept = [f for f in row_schema if not (self.is_flat and f.name == VALUE.name)]
        own = [
            pa.field(self.columns.column_name(f.name), _type_of(typed.get(f.name)) or f.type)
            for f in kept
        ]
        fields = self._fields()
        names = {f.name.lower() for f in own}
        for f in fields:
            if f.name.lower() in names:
                raise PayloadSchemaError(
                    f"the field {f.name} has the name of a column of the log",
                    do="rename the field in the schema, or write decode.layout: nested",
                )
        return pa.schema([*own, *fields, *([RESCUED] if self.keeps_unknown else [])])

    def _fields(self) -> list[pa.Field]:
        if not self.is_flat or self.value is None:
            return []
        return [pa.field(f.name, nullable_type(f.type)) for f in self.value.arrow_type]

    def decoder(self, topic: str) -> RowDecoder:
        """A new decoder, for records of this topic."""
        key, value = (one and self._format_for(one, topic) for one in (self.key, self.value))
        return RowDecoder(replace(self, key=key, value=value))

    def _format_for(self, payloads: PayloadFormat, topic: str) -> PayloadFormat:
        made = payloads.of_topic(topic)
        return made if self.written is None else made.of_records(self.written)


class RowDecoder:
    """Decodes rows of one topic."""

    def __init__(self, row_format: RowFormat) -> None:
        self._format = row_format
        formats = dict(zip(_PARTS, (row_format.key, row_format.value), strict=True))
        self._decoders: dict[str, PayloadDecoder] = {
            name: one.decoder() for name, one in formats.items() if one is not None
        }

    def decode(self, rows: pa.RecordBatch) -> Iterator[DecodedRows]:
        """Decodes keys and values. ``rows`` have the columns of ``decode.columns``. They are
        decoded in as many pieces as needed, so that none takes much more memory than
        ``MAX_DECODED_BYTES``. Raises nothing for what is in them."""
        while True:
            decoded = self._decode_first(rows)
            rows = rows.slice(decoded.batch.num_rows)
            yield decoded
            if not rows.num_rows:
                return

    def _decode_first(self, rows: pa.RecordBatch) -> DecodedRows:
        schema = self._format.schema(rows.schema)
        found: dict[str, DecodedPayloads] = {}
        for name, decoder in self._decoders.items():
            found[name] = decoder.decode(rows.column(name))
            rows = rows.slice(0, len(found[name].values))
        found = {name: one.first(rows.num_rows) for name, one in found.items()}
        values = found.get(VALUE.name)
        columns = {f.name: rows.column(f.name) for f in rows.schema}
        columns |= {name: one.values for name, one in found.items()}
        given = {self._format.columns.column_name(name): column for name, column in columns.items()}
        if self._format.is_flat and values is not None:
            # A null value has null in each field.
            fields = zip(values.values.type.names, values.values.flatten(), strict=True)
            given |= dict(fields)
        if self._format.keeps_unknown:
            given[RESCUED.name] = _rescued_texts(found, rows.num_rows)
        batch = pa.RecordBatch.from_arrays(
            [_cast(given[f.name], f.type) for f in schema], schema=schema
        )
        return DecodedRows(batch, _undecodable(found), values.schema_ids if values else {})


def _undecodable(found: Mapping[str, DecodedPayloads]) -> list[UndecodableRow]:
    """The first reason for each row, in order of rows."""
    by_row: dict[int, UndecodableRow] = {}
    for name, decoded in found.items():
        for one in decoded.undecodable:
            by_row.setdefault(one.row, UndecodableRow(one.row, name, one.reason, one.schema_id))
    return [by_row[row] for row in sorted(by_row)]


def _rescued_texts(found: Mapping[str, DecodedPayloads], row_count: int) -> pa.Array:
    values = found.get(VALUE.name)
    if values is None or values.rescued is None:
        return pa.nulls(row_count, RESCUED.type)
    return values.rescued


def _type_of(payloads: PayloadFormat | None) -> pa.DataType | None:
    return None if payloads is None else nullable_type(payloads.arrow_type)


def _cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    return column if column.type.equals(kind) else column.cast(kind)


def nullable_type(kind: pa.DataType) -> pa.DataType:
    """The type with everything nullable inside: a schema that requires a field today may not
    tomorrow, and Delta could not follow. Decoders check that required fields are there."""
    if pt.is_struct(kind):
        return pa.struct([pa.field(f.name, nullable_type(f.type)) for f in kind])
    if pt.is_map(kind):
        return pa.map_(
            nullable_type(kind.key_type), pa.field("value", nullable_type(kind.item_type))
        )
    if pt.is_list(kind) or pt.is_large_list(kind):
        return pa.list_(pa.field("element", nullable_type(kind.value_type)))
    return kind
