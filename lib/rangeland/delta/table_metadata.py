"""What is known of a Delta table, and how rows are laid out in it: frozen values only.

The nouns that the driver's side (kernel, fit, ledger, commit) and the executors' side
(files) share. They pickle, they hold no handle on a JVM, a file or a clock, and they
decide nothing: ``fit`` makes a ``TableLayout`` out of ``TableMetadata``, ``files`` obeys it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class TableMetadata:
    """One version of a table. ``schema_json`` is Delta's ``schemaString``; ``path`` is the
    resolved URI; ``features`` are the names of all table features, also those that an old
    protocol version implies."""

    path: str
    version: int
    schema_json: str
    partition_columns: tuple[str, ...] = ()
    configuration: Mapping[str, str] = field(default_factory=dict)
    reader_version: int = 1
    writer_version: int = 2
    features: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class AddedFile:
    """One file that a version of the table holds. ``path`` is decoded and relative to the
    table, unless the file is shared from elsewhere (a shallow clone): then it is a URI.
    ``action`` is the log's own entry, which a removal has to name as it is."""

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
    """One entry of the log that is still on disk. ``transactions`` maps application ids to
    versions; ``restored_to`` is set for a RESTORE to a version, not for one to a time."""

    version: int
    committed_at_ms: int
    operation: str
    transactions: Mapping[str, int]
    restored_to: int | None = None
    parameters: Mapping[str, str | None] = field(default_factory=dict)
    is_restore: bool = False

    @property
    def replaces_all(self) -> bool:
        """It took all rows out of the table before it added its own, if any. What deletes or
        replaces rows by a condition does not."""
        operation = self.operation.upper()
        if "REPLACE TABLE" in operation or operation == "TRUNCATE":
            return True
        if any(self.parameters.get(name) not in _EVERYTHING for name in _CONDITIONS):
            return False
        mode = str(self.parameters.get("mode") or "").lower()
        return operation == "DELETE" or (operation == "WRITE" and mode == "overwrite")


class StoreKind(StrEnum):
    LOCAL = "local"
    PUT_IF_ABSENT = "put-if-absent"
    SINGLE_DRIVER = "single-driver"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class StoreCapabilities:
    """How safe it is for several drivers to commit to a store at the same time. ``note`` is
    a sentence for a person, empty where there is nothing to be careful about."""

    kind: StoreKind
    scheme: str
    log_store: str
    note: str = ""


class Function(StrEnum):
    """How a partition column is made of its source column. Days and hours are UTC."""

    VALUE = "value"
    DATE = "date"
    HOUR = "hour"


@dataclass(frozen=True, slots=True)
class PartitionColumn:
    """``name`` is the table's column; ``source`` the row's column it is computed from."""

    name: str
    source: str
    function: Function = Function.VALUE


@dataclass(frozen=True, slots=True)
class TableLayout:
    """How rows become files.

    ``schema`` holds the columns as the table spells and types them, in the rows' order,
    partition columns included where they are columns of the rows. ``required`` are the
    columns in which a null is an error. ``stats_columns`` get minimum, maximum and null
    count; None means the first 32."""

    schema: pa.Schema
    partition_by: tuple[PartitionColumn, ...] = ()
    required: frozenset[str] = frozenset()
    stats_columns: frozenset[str] | None = None

    @property
    def file_schema(self) -> pa.Schema:
        """The columns that are in the files: Delta keeps partition values out of them."""
        kept = {column.name for column in self.partition_by}
        return pa.schema([f for f in self.schema if f.name not in kept])
