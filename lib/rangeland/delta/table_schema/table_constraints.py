"""The conditions that a table sets for its rows: CHECK constraints, column invariants, and the
expressions of generated columns. Pure.

Delta Kernel cannot evaluate them and refuses such tables. So Spark evaluates them on the rows of
prepared files (``spark/constraint_query``), and Delta Kernel commits the files that pass. NOT NULL
is checked by the file writer itself.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from rangeland.decode.columns import LogColumns
from rangeland.delta.table_metadata import TableMetadata
from rangeland.delta.table_schema.arrow_schema import fields_of
from rangeland.errors import TableRefused
from rangeland.model import Partition
from rangeland.untrusted import Unreadable, parse_json

CHECK_PREFIX = "delta.constraints."
INVARIANT = "delta.invariants"
GENERATED = "delta.generationExpression"


@dataclass(frozen=True, slots=True)
class TableConstraint:
    """A condition on the rows of a table. ``condition``, in Spark SQL, must be true, not null, for
    each row. ``text`` is the constraint as the table's owner wrote it."""

    name: str
    condition: str
    text: str


def constraints_of(metadata: TableMetadata) -> tuple[TableConstraint, ...]:
    """The constraints of a table, in the order of their names. Raises TableRefused for an invariant
    that is not understood."""
    constraints = [
        _check(key.removeprefix(CHECK_PREFIX), expression)
        for key, expression in metadata.configuration.items()
        if key.startswith(CHECK_PREFIX)
    ]
    for field in fields_of(metadata.schema_json):
        field_metadata = field.get("metadata", {})
        if INVARIANT in field_metadata:
            constraints.append(_invariant(metadata, field["name"], field_metadata[INVARIANT]))
        if GENERATED in field_metadata:
            constraints.append(_generated_column(field["name"], field_metadata[GENERATED]))
    return tuple(sorted(constraints, key=lambda constraint: constraint.name))


def _check(name: str, expression: str) -> TableConstraint:
    return TableConstraint(name, expression, f"CHECK ({expression})")


def _generated_column(column: str, expression: str) -> TableConstraint:
    condition = f"{quoted_column(column)} <=> ({expression})"
    return TableConstraint(column, condition, f"GENERATED ALWAYS AS ({expression})")


def _invariant(metadata: TableMetadata, column: str, text: Any) -> TableConstraint:
    try:
        expression: object = parse_json(text)["expression"]["expression"]
    except (Unreadable, KeyError, TypeError):
        expression = None
    if not isinstance(expression, str):
        raise TableRefused(
            f"column {column} of table {metadata.path} has an invariant",
            why=f"it does not have the form that Delta's protocol prescribes: {text}",
            do="remove it, or land in another table and INSERT from there",
            feature="invariants",
            used=column,
        )
    return TableConstraint(column, expression, f"invariant ({expression})")


def quoted_column(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


@dataclass(frozen=True, slots=True)
class RecordPlace:
    """The record from which a row was made. ``partition`` and ``offset`` are None if the row does
    not show them."""

    partition: Partition | None = None
    offset: int | None = None

    @classmethod
    def of(cls, row: Mapping[str, Any], columns: LogColumns) -> RecordPlace:
        """The record from which ``row`` was made. The names of its log columns, if any, are in
        lower case."""
        topic = row.get(columns.topic)
        number = row.get(columns.partition)
        if topic is None or number is None:
            return cls()
        broker = str(row.get(columns.broker) or "")
        return cls(Partition(str(topic), int(number), broker), row.get(columns.offset))

    @property
    def facts(self) -> dict[str, Any]:
        if self.partition is None:
            return {}
        return {
            "topic": self.partition.topic,
            "partition": self.partition.number,
            "offset": self.offset,
        }

    def __str__(self) -> str:
        if self.partition is None:
            return "a row"
        return f"the record of {self.partition} at offset {self.offset}"


def violation_error(constraint: TableConstraint, table: str, place: RecordPlace) -> TableRefused:
    """The error for the first record that violates a constraint."""
    return TableRefused(
        f"{place} violates the constraint {constraint.name} of table {table}",
        why=f"{constraint.text} is not true for it; nothing was committed",
        do="leave such records out or correct them in a transform, or change the table's "
        "constraint, then run again",
        constraint=constraint.name,
        expression=constraint.condition,
        **place.facts,
    )


def check_required_columns_are_filled(
    batch: pa.RecordBatch, required: Collection[str], columns: LogColumns
) -> None:
    """Raises TableRefused for a null in a column that is NOT NULL in the table."""
    for name in sorted(required):
        column = batch.column(name)
        if not column.null_count:
            continue
        first = pc.index(pc.is_null(column), True).as_py()
        place_columns = (columns.topic, columns.partition, columns.broker, columns.offset)
        names = {n.lower(): n for n in batch.schema.names if n.lower() in place_columns}
        row = {lower: batch.column(n)[first].as_py() for lower, n in names.items()}
        place = RecordPlace.of(row, columns)
        raise TableRefused(
            f"{column.null_count} rows have no {name}",
            why=f"the table's column is NOT NULL; the first is {place}",
            do=f"run ALTER TABLE ... ALTER COLUMN {name} DROP NOT NULL, "
            "or give it a value in a transform",
            column=name,
            nulls=column.null_count,
            **place.facts,
        )
