"""How records become rows with typed columns: the formats of key and value, and the layout.

A ``RowFormat`` is a value that is sent to the tasks, where its decoder replaces the bytes of whole
chunks. In a nested table, ``value`` is one column. In a flat table, its fields are columns, and the
log's own columns come first, with a prefix, because Delta keeps statistics of the first columns.
All columns are nullable, whatever the schema requires: a record without a value has a row as well,
and a schema may stop requiring a field. The decoders check that required fields are present.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.types as pt

from rangeland.decode.columns import KEY, PLAIN_COLUMNS, VALUE, LogColumns
from rangeland.decode.payload.payload_decoder import (
    DecodedPayloads,
    MissingSchemas,
    PayloadArray,
    PayloadDecoder,
    PayloadFormat,
    PayloadSchemaError,
)
from rangeland.decode.payload.schema_ids.schema_catalogue import (
    AskSchemas,
    FoundSchema,
    RecordField,
    SchemaCatalogue,
    TopicField,
)
from rangeland.errors import Bug

FLAT_COLUMNS = LogColumns("_")
RESCUED = pa.field("_rescued_data", pa.string())
_PARTS: tuple[RecordField, RecordField] = ("key", "value")


@dataclass(frozen=True)
class UndecodableRow:
    """A row with a key or value that cannot be decoded; ``field`` says which."""

    row: int
    field: str
    reason: str
    schema_id: int | None = None


@dataclass(frozen=True)
class DecodedRows:
    """Rows with typed columns, including undecodable rows. ``schema_ids``: how many values name
    each writer's schema, by its id."""

    batch: pa.RecordBatch
    undecodable: Sequence[UndecodableRow] = ()
    schema_ids: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class RowFormat:
    """The formats of key and value; None for bytes. ``keeps_unknown``: fields that the schema lacks
    go into a column of their own, as JSON text. ``catalogue``: the schemas of the run, for
    answering its decoders."""

    key: PayloadFormat | None = None
    value: PayloadFormat | None = None
    is_flat: bool = False
    keeps_unknown: bool = False
    catalogue: SchemaCatalogue = field(default_factory=SchemaCatalogue, repr=False)

    def __post_init__(self) -> None:
        """Raises PayloadSchemaError for columns that a table cannot have."""
        if not self.is_flat:
            return
        if self.value is None or not pt.is_struct(self.value.arrow_type):
            raise PayloadSchemaError("a flat table needs values with fields")
        names = {RESCUED.name} if self.keeps_unknown else set()
        for name in self.value.arrow_type.names:
            if name.lower() in names:
                raise PayloadSchemaError(f"the table would have two columns named {name}")
            names.add(name.lower())

    @property
    def columns(self) -> LogColumns:
        return FLAT_COLUMNS if self.is_flat else PLAIN_COLUMNS

    def schema(self, row_schema: pa.Schema) -> pa.Schema:
        """The columns of typed rows, derived from those of ``decode.columns``. Raises
        PayloadSchemaError if a field has the same name as one of the log's own columns."""
        typed = {KEY.name: self.key, VALUE.name: self.value}
        row_fields = [f for f in row_schema if not (self.is_flat and f.name == VALUE.name)]
        own = [
            pa.field(
                self.columns.column_name(f.name),
                nullable_type(payloads.arrow_type) if (payloads := typed.get(f.name)) else f.type,
            )
            for f in row_fields
        ]
        fields = self._fields()
        names = {f.name.lower() for f in own}
        for f in fields:
            if f.name.lower() in names:
                raise PayloadSchemaError(
                    f"the field {f.name} has the same name as a column of the log",
                    do="rename the field in the schema, or write decode.layout: nested",
                )
        return pa.schema([*own, *fields, *([RESCUED] if self.keeps_unknown else [])])

    def _fields(self) -> list[pa.Field]:
        if not self.is_flat or self.value is None:
            return []
        return [pa.field(f.name, nullable_type(f.type)) for f in self.value.arrow_type]

    def decoder(self, topic: str) -> RowDecoder:
        """A new decoder for records of this topic."""
        key, value = (one and one.of_topic(topic) for one in (self.key, self.value))
        return RowDecoder(replace(self, key=key, value=value), topic)


class RowDecoder:
    """Decodes rows of one topic."""

    def __init__(self, row_format: RowFormat, topic: str) -> None:
        self._format = row_format
        self._topic = topic
        formats = dict(zip(_PARTS, (row_format.key, row_format.value), strict=True))
        self._decoders: dict[RecordField, PayloadDecoder] = {
            name: one.decoder() for name, one in formats.items() if one is not None
        }

    def add_schema(self, topic_field: TopicField, schema_id: int, found: FoundSchema) -> None:
        """Takes one of the schemas that were asked for. Raises JobFileError for a schema for which
        the table has no columns."""
        self._decoders[topic_field.field].add_schema(schema_id, found)

    def decode(self, rows: pa.RecordBatch) -> Iterator[DecodedRows | AskSchemas]:
        """Decodes keys and values. ``rows`` have the columns of ``decode.columns``. They are
        decoded in as many pieces as needed, so that none takes much more memory than
        ``MAX_DECODED_BYTES``. If a question is yielded, it must be answered before the next result
        is taken. Never raises because of the contents of rows."""
        while True:
            decoded = yield from self._decode_first(rows)
            rows = rows.slice(decoded.batch.num_rows)
            yield decoded
            if not rows.num_rows:
                return

    def _decode_first(self, rows: pa.RecordBatch) -> Generator[AskSchemas, None, DecodedRows]:
        decoded: dict[str, DecodedPayloads] = {}
        for name in self._decoders:
            decoded[name] = yield from self._decode_part(name, rows.column(name))
            rows = rows.slice(0, len(decoded[name].values))
        return self._make_rows(
            rows, {name: part.first(rows.num_rows) for name, part in decoded.items()}
        )

    def _decode_part(
        self, name: RecordField, payloads: PayloadArray
    ) -> Generator[AskSchemas, None, DecodedPayloads]:
        decoder = self._decoders[name]
        decoded = decoder.decode(payloads)
        if isinstance(decoded, MissingSchemas):
            yield AskSchemas(TopicField(self._topic, name), decoded.ids)
            decoded = decoder.decode(payloads)
        if isinstance(decoded, MissingSchemas):
            raise Bug(f"the schemas {decoded.ids} were asked for and not added")
        return decoded

    def _make_rows(
        self, rows: pa.RecordBatch, decoded: Mapping[str, DecodedPayloads]
    ) -> DecodedRows:
        """The rows with these keys and values."""
        schema = self._format.schema(rows.schema)
        values = decoded.get(VALUE.name)
        columns = {f.name: rows.column(f.name) for f in rows.schema}
        columns |= {name: part.values for name, part in decoded.items()}
        by_name = {
            self._format.columns.column_name(name): column for name, column in columns.items()
        }
        if self._format.is_flat and values is not None:
            # A null value has null in each field.
            fields = zip(values.values.type.names, values.values.flatten(), strict=True)
            by_name |= dict(fields)
        if self._format.keeps_unknown:
            by_name[RESCUED.name] = _rescued_texts(decoded, rows.num_rows)
        batch = pa.RecordBatch.from_arrays(
            [_cast(by_name[f.name], f.type) for f in schema], schema=schema
        )
        return DecodedRows(batch, _undecodable_rows(decoded), values.schema_ids if values else {})


def _undecodable_rows(parts: Mapping[str, DecodedPayloads]) -> list[UndecodableRow]:
    """The first reason for each row, in the order of the rows."""
    by_row: dict[int, UndecodableRow] = {}
    for name, decoded in parts.items():
        for failure in decoded.undecodable:
            by_row.setdefault(
                failure.row, UndecodableRow(failure.row, name, failure.reason, failure.schema_id)
            )
    return [by_row[row] for row in sorted(by_row)]


def _rescued_texts(parts: Mapping[str, DecodedPayloads], row_count: int) -> pa.Array:
    values = parts.get(VALUE.name)
    if values is None or values.rescued is None:
        return pa.nulls(row_count, RESCUED.type)
    return values.rescued


def _cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    return column if column.type.equals(kind) else column.cast(kind)


def nullable_type(kind: pa.DataType) -> pa.DataType:
    """The type, with everything inside it nullable: a schema may require a field today and not
    tomorrow, and Delta could not follow. Decoders check that required fields are present."""
    if pt.is_struct(kind):
        return pa.struct([pa.field(f.name, nullable_type(f.type)) for f in kind])
    if pt.is_map(kind):
        return pa.map_(
            nullable_type(kind.key_type), pa.field("value", nullable_type(kind.item_type))
        )
    if pt.is_list(kind) or pt.is_large_list(kind):
        return pa.list_(pa.field("element", nullable_type(kind.value_type)))
    return kind
