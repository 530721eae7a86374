"""Decides whether rows fit a table, and how they are laid out in it. Pure.

Rows are given as an Arrow schema, the table as ``TableMetadata``. Names match regardless of case,
and the table's spelling wins. A narrower number may go into a wider column; nothing else is
converted. A column that only the table has stays null; a column that only the rows have is refused,
with the statement that would add it. The partitioning of an existing table takes precedence over
the job's, provided that it can be computed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from rangeland.delta.table_metadata import (
    COMPUTED_TYPES,
    INDEXED_COLUMNS,
    Function,
    PartitionColumn,
    TableLayout,
    TableMetadata,
    indexed_columns,
)
from rangeland.delta.table_schema.arrow_schema import (
    arrow_type,
    delta_field,
    delta_type,
    fields_of,
    schema_json,
    sql_type,
)
from rangeland.delta.table_schema.column_mapping import mapping_mode, stored_name
from rangeland.delta.table_schema.schema_evolution import WIDENING_PROPERTY, Misfit, compare_column
from rangeland.delta.table_schema.table_features import (
    KEEP_PARTITIONS,
    check_features_are_supported,
)
from rangeland.errors import JobFileError, TableRefused

_CALL = re.compile(r"(date|hour)\(\s*([^()\s]+)\s*\)")
_PARTITION_TYPES = {Function.DATE: "date", Function.HOUR: "timestamp"}


@dataclass(frozen=True, slots=True)
class RowLayout:
    """The layout of rows in an existing table. ``filled`` are the columns of the table that stay
    null; ``notes`` are messages for the user, for example about a partitioning that is not used."""

    layout: TableLayout
    filled: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NewTable:
    """The table to create if it does not exist, for ``DeltaKernel.create``."""

    schema_json: str
    partition_columns: tuple[str, ...]
    layout: TableLayout


def parse_partition_by(texts: Sequence[str], schema: pa.Schema) -> tuple[PartitionColumn, ...]:
    """The job file's ``partition_by``: a column, ``date(column)`` or ``hour(column)``.

    ``date(timestamp)`` makes a column ``date`` of type DATE; ``hour(timestamp)`` a column
    ``hour`` of type TIMESTAMP that holds the start of the hour. Both are UTC."""
    columns = tuple(_parse(text, schema) for text in texts)
    names = [column.name.lower() for column in columns]
    if len(set(names)) < len(names):
        raise JobFileError(
            f"sink.partition_by {list(texts)}",
            why="makes two columns of the same name",
            do="leave one of them out",
        )
    for column in columns:
        if column.function is not Function.VALUE and _index(schema, column.name) is not None:
            raise JobFileError(
                f"sink.partition_by {column.function}({column.source})",
                why=f"the rows already have a column {column.name}",
                do=f"write {column.name}, or rename that column in the transform",
            )
    return columns


def _parse(text: str, schema: pa.Schema) -> PartitionColumn:
    call = _CALL.fullmatch(text.strip())
    name = call[2] if call else text.strip()
    index = _index(schema, name)
    if index is None:
        raise JobFileError(
            f"sink.partition_by {text}",
            why=f"the rows have no column {name}",
            do=f"choose one of {', '.join(schema.names)}",
        )
    field = schema.field(index)
    if call is None:
        if pt.is_nested(field.type) or delta_type(field.type) == "binary":
            raise JobFileError(
                f"sink.partition_by {text}",
                why=f"a column of type {field.type} cannot partition",
                do="choose a column of another type, or convert it in the transform",
            )
        return PartitionColumn(field.name, field.name)
    if not pt.is_timestamp(field.type):
        raise JobFileError(
            f"sink.partition_by {text}",
            why=f"the column {name} is not a timestamp",
            do=f"choose a timestamp, or write {name} to partition by its values",
        )
    return PartitionColumn(call[1], field.name, Function(call[1]))


def new_table(row_schema: pa.Schema, partition_by: Sequence[str] = ()) -> NewTable:
    """A table for exactly these rows."""
    columns = parse_partition_by(partition_by, row_schema)
    layout_schema = pa.schema([_written_field(f) for f in row_schema])
    computed = [c for c in columns if c.function is not Function.VALUE]
    computed_fields = [pa.field(c.name, COMPUTED_TYPES[c.function]) for c in computed]
    layout = TableLayout(layout_schema, columns)
    return NewTable(
        schema_json(pa.schema([*layout_schema, *computed_fields])),
        tuple(column.name for column in columns),
        replace(layout, stats_columns=indexed_columns(layout.file_schema)),
    )


def _written_field(field: pa.Field) -> pa.Field:
    """The field as it is stored: with a type that Delta has, and without dictionary-encoded
    strings."""
    kind = arrow_type(delta_type(field.type))
    return pa.field(field.name, kind, nullable=field.nullable)


def row_layout(
    metadata: TableMetadata, row_schema: pa.Schema, partition_by: Sequence[str] = ()
) -> RowLayout:
    """Fits rows into the table. If they do not fit, raises TableRefused, which names the feature or
    column and says what to do.

    A column that is NOT NULL in the table and nullable in the rows is not refused here: the writer
    refuses rows with a null in it (``TableLayout.required``).
    """
    partitioned = {name.lower() for name in metadata.partition_columns}
    requested = parse_partition_by(partition_by, row_schema)
    computed = {c.name.lower() for c in requested} & partitioned
    check_features_are_supported(metadata, computed | {name.lower() for name in row_schema.names})
    table = {f["name"].lower(): f for f in fields_of(metadata.schema_json)}
    partitions = _partitions(metadata, table, row_schema, requested)
    fields = [_place(metadata, f, table.get(f.name.lower())) for f in row_schema]
    computed_names = {c.name.lower() for c in partitions if c.function is not Function.VALUE}
    row_names = {f.name.lower() for f in fields}
    filled = _filled_columns(metadata, table, row_names | computed_names)
    schema = pa.schema(fields)
    return RowLayout(
        TableLayout(
            schema,
            partitions,
            required=frozenset(
                f.name
                for f, row_field in zip(fields, row_schema, strict=True)
                if row_field.nullable and not table[f.name.lower()]["nullable"]
            ),
            stats_columns=_stats_columns(metadata, table, schema),
            mapped_schema=metadata.schema_json if mapping_mode(metadata) else "",
            keeps_partitions=bool(metadata.features & KEEP_PARTITIONS),
        ),
        filled,
        _notes(requested, partitions),
    )


def _place(
    metadata: TableMetadata, row_field: pa.Field, column: Mapping[str, Any] | None
) -> pa.Field:
    """The field with the table's spelling and type."""
    if column is None:
        raise _no_column_error(metadata, row_field.name, delta_type(row_field.type))
    change = compare_column(column, delta_field(row_field))
    for misfit in change.misfits:
        raise _misfit_error(metadata, misfit)
    for name, kind in change.added.items():
        raise _no_column_error(metadata, name, kind)
    arrow_kind = arrow_type(column["type"])
    if arrow_kind is None:
        raise _misfit_error(
            metadata, Misfit(column["name"], column["type"], delta_type(row_field.type))
        )
    return pa.field(column["name"], arrow_kind, nullable=column["nullable"])


def _no_column_error(metadata: TableMetadata, name: str, kind: Any) -> TableRefused:
    statement = f"ALTER TABLE {_sql_name(metadata)} ADD COLUMNS ({name} {sql_type(kind)})"
    return TableRefused(
        f"Table {metadata.path} has no column {name}",
        why="the rows have one, and its values would be lost",
        do=f"run {statement}",
        column=name,
        statement=statement,
    )


def _misfit_error(metadata: TableMetadata, misfit: Misfit) -> TableRefused:
    old = sql_type(misfit.old)
    if misfit.new is None:
        return TableRefused(
            f"column {misfit.field} of table {metadata.path} is NOT NULL",
            why="the rows have no such field",
            do="give it a value in a transform, or land in another table",
            column=misfit.field,
        )
    new = sql_type(misfit.new)
    do = "convert it in a transform, or land in another table"
    if misfit.is_widening:
        on = f"SET TBLPROPERTIES ('{WIDENING_PROPERTY}' = 'true')"
        do += (
            f"; typed rows (`decode:` with `evolution: add`) make the column {new} once you have "
            f"run ALTER TABLE {_sql_name(metadata)} {on}"
        )
    return TableRefused(
        f"column {misfit.field} of table {metadata.path} is {old}",
        why=f"the rows have {new} there",
        do=do,
        column=misfit.field,
        old_type=old,
        new_type=new,
    )


def _filled_columns(
    metadata: TableMetadata, table: Mapping[str, Mapping[str, Any]], present: set[str]
) -> tuple[str, ...]:
    absent = [f for name, f in table.items() if name not in present]
    for f in absent:
        if not f["nullable"]:
            raise TableRefused(
                f"column {f['name']} of table {metadata.path} is NOT NULL",
                why="the rows have no such column",
                do=f"run ALTER TABLE {_sql_name(metadata)} ALTER COLUMN {f['name']} DROP NOT NULL, "
                "or make the column in a transform",
                column=f["name"],
            )
    return tuple(f["name"] for f in absent)


def _partitions(
    metadata: TableMetadata,
    table: Mapping[str, Mapping[str, Any]],
    row_schema: pa.Schema,
    requested: tuple[PartitionColumn, ...],
) -> tuple[PartitionColumn, ...]:
    by_name = {column.name.lower(): column for column in requested}
    columns = []
    for name in metadata.partition_columns:
        table_type = table[name.lower()]["type"]
        if table_type == "binary":
            raise _binary_partition_error(metadata, name)
        if _index(row_schema, name) is not None:
            columns.append(PartitionColumn(name, name))
            continue
        job = by_name.get(name.lower())
        if job is None or _PARTITION_TYPES[job.function] != table_type:
            raise _no_partition_error(metadata, name, table_type)
        columns.append(PartitionColumn(name, job.source, job.function))
    sources = {
        f.name.lower(): table.get(f.name.lower(), {}).get("name", f.name) for f in row_schema
    }
    return tuple(
        PartitionColumn(
            c.name, sources[c.source.lower()], c.function, _key(metadata, table[c.name.lower()])
        )
        for c in columns
    )


def _key(metadata: TableMetadata, column: Mapping[str, Any]) -> str:
    return stored_name(column) if mapping_mode(metadata) else ""


def _no_partition_error(metadata: TableMetadata, name: str, table_type: Any) -> TableRefused:
    hint = {"date": "date(timestamp)", "timestamp": "hour(timestamp)"}.get(
        table_type if isinstance(table_type, str) else ""
    )
    do = f"make column {name} in a transform"
    if hint is not None and hint.startswith(name.lower() + "("):
        do = f"put {hint} under sink.partition_by in the job file"
    return TableRefused(
        f"table {metadata.path} is partitioned by {name} {sql_type(table_type)}",
        why="the rows have no such column and the job file does not say how to compute it",
        do=do,
        column=name,
    )


def _binary_partition_error(metadata: TableMetadata, name: str) -> TableRefused:
    return TableRefused(
        f"table {metadata.path} is partitioned by {name} BINARY",
        why="Delta's log stores partition values as text, and not all bytes are valid text",
        do="land in another table",
        column=name,
    )


def _stats_columns(
    metadata: TableMetadata, table: Mapping[str, Mapping[str, Any]], schema: pa.Schema
) -> frozenset[str]:
    """The columns for which the table wants statistics."""
    listed = metadata.configuration.get("delta.dataSkippingStatsColumns")
    if listed is not None:
        names_with_stats = {name.strip().strip("`").lower() for name in listed.split(",")}
        return frozenset(name for name in schema.names if name.lower() in names_with_stats)
    limit = int(metadata.configuration.get("delta.dataSkippingNumIndexedCols", INDEXED_COLUMNS))
    if "clustering" in metadata.features:
        limit = -1  # clustering columns need them, and may be anywhere
    names = [f["name"] for f in table.values() if f["name"] not in metadata.partition_columns]
    return frozenset(schema.names) & frozenset(names if limit < 0 else names[:limit])


def _notes(
    requested: tuple[PartitionColumn, ...], actual: tuple[PartitionColumn, ...]
) -> tuple[str, ...]:
    if not requested or [c.name.lower() for c in requested] == [c.name.lower() for c in actual]:
        return ()
    names = ", ".join(c.name for c in actual) or "nothing"
    return (f"The table is partitioned by {names}; sink.partition_by is not used.",)


def _index(schema: pa.Schema, name: str) -> int | None:
    lowered = [field.lower() for field in schema.names]
    return lowered.index(name.lower()) if name.lower() in lowered else None


def _sql_name(metadata: TableMetadata) -> str:
    return f"delta.`{metadata.path.removeprefix('file:')}`"
