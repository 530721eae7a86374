"""The metadata of a Delta table, and how rows are laid out in it: frozen values only.

The driver and the executors share them. They can be pickled, hold no reference to a JVM, a file or
a clock, and decide nothing: ``schema_compatibility`` makes a ``TableLayout`` from
``TableMetadata``, and ``data_files`` writes files in that layout.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import pyarrow as pa

INDEXED_COLUMNS = 32


@dataclass(frozen=True, slots=True)
class TableMetadata:
    """The metadata of one version of a table."""

    path: str
    """The resolved URI."""
    version: int
    schema_json: str
    """Delta's ``schemaString``."""
    partition_columns: tuple[str, ...] = ()
    configuration: Mapping[str, str] = field(default_factory=dict)
    features: frozenset[str] = frozenset()
    """The names of all table features, including those that an old protocol version implies."""
    table_id: str = ""


@dataclass(frozen=True, slots=True)
class AddedFile:
    """One file in a version of the table. ``path`` is decoded and relative to the table, unless the
    file belongs to another table (a shallow clone): then it is a URI. ``action`` is the log's own
    entry, which a removal must repeat exactly."""

    path: str
    size_bytes: int
    modified_at_ms: int
    stats: str | None
    partition_values: Mapping[str, str | None]
    has_deletion_vector: bool = False
    action: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)


_CONDITIONS = ("predicate", "isDynamicPartitionOverwrite", "replaceOnCond", "replaceUsingCols")
_EVERYTHING = (None, "", "[]", '["true"]', "null", "false", False)


@dataclass(frozen=True, slots=True)
class CommitMetadata:
    """One entry of the log. ``transactions`` maps application ids to versions; ``restored_to`` is
    set for a RESTORE to a version, but not for a RESTORE to a time."""

    version: int
    committed_at_ms: int
    operation: str
    transactions: Mapping[str, int]
    restored_to: int | None = None
    parameters: Mapping[str, str | None] = field(default_factory=dict)

    @property
    def is_restore(self) -> bool:
        return self.operation == "RESTORE"

    @property
    def has_condition(self) -> bool:
        """Whether it deletes or replaces rows that match a condition."""
        return any(self.parameters.get(name) not in _EVERYTHING for name in _CONDITIONS)

    @property
    def replaces_all(self) -> bool:
        """Whether it removed all rows of the table before it added its own, if any. A commit that
        deletes or replaces rows by condition does not."""
        operation = self.operation.upper()
        if "REPLACE TABLE" in operation or operation == "TRUNCATE":
            return True
        if self.has_condition:
            return False
        mode = str(self.parameters.get("mode") or "").lower()
        return operation == "DELETE" or (operation == "WRITE" and mode == "overwrite")


class Function(StrEnum):
    """The function that computes a partition column from its source column. Days and hours are in
    UTC."""

    VALUE = "value"
    DATE = "date"
    HOUR = "hour"


COMPUTED_TYPES = {Function.DATE: pa.date32(), Function.HOUR: pa.timestamp("us", "UTC")}


@dataclass(frozen=True, slots=True)
class PartitionColumn:
    """A column by which a table is partitioned. ``name`` is the table's column, ``source`` the
    column of the rows from which it is computed. ``stored_as`` is its name in the log, if that
    differs."""

    name: str
    source: str
    function: Function = Function.VALUE
    stored_as: str = ""

    @property
    def key(self) -> str:
        """The key of the column's values in the log."""
        return self.stored_as or self.name


@dataclass(frozen=True, slots=True)
class TableLayout:
    """The layout of rows in files."""

    schema: pa.Schema
    """The columns, with the table's spelling and types, in the order of the rows; including any
    partition columns that the rows have."""
    partition_by: tuple[PartitionColumn, ...] = ()
    required: frozenset[str] = frozenset()
    """The columns in which a null is an error."""
    stats_columns: frozenset[str] | None = None
    """The columns that get a minimum, maximum and null count; None means the first 32."""
    mapped_schema: str = ""
    """The table's schema, as Delta's JSON, if its columns have other names in files."""
    keeps_partitions: bool = False
    """Whether the files contain the partition columns too."""

    @property
    def file_schema(self) -> pa.Schema:
        """The columns in the files, under the table's names. Delta usually leaves partition columns
        out; otherwise they come last."""
        names = {column.name for column in self.partition_by}
        plain = [f for f in self.schema if f.name not in names]
        return pa.schema([*plain, *(self._partition_fields() if self.keeps_partitions else ())])

    def _partition_fields(self) -> Iterator[pa.Field]:
        for column in self.partition_by:
            computed = COMPUTED_TYPES.get(column.function)
            source = self.schema.field(column.source)
            yield source if computed is None else pa.field(column.name, computed)


def indexed_columns(schema: pa.Schema) -> frozenset[str]:
    """The columns that Delta indexes by default: the first ones."""
    return frozenset(schema.names[:INDEXED_COLUMNS])
