"""Writes rows to Parquet files of a Delta table. Runs in executors, with pyarrow alone.

A file written here is invisible until the driver commits it. Batches are buffered and written as
row groups once they hold ``ROW_GROUP_BYTES`` of Arrow memory, so a writer's memory is bounded
whatever the size of records, files or partitions: the sum over all open files counts, and the
fullest is written first.

Keys and values get no dictionary and no Parquet statistics, which would take most of the time.
Offsets and timestamps rise slowly, so they are stored as deltas.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as pt

from rangeland.decode.columns import PLAIN_COLUMNS, LogColumns
from rangeland.delta.parquet_files.file_statistics import StatsCollector, has_bounds
from rangeland.delta.parquet_files.partition_values import Values, folder, split, with_computed
from rangeland.delta.stores.store_access import StoreSettings, has_folders, open_store, sync_file
from rangeland.delta.stores.store_errors import store_error
from rangeland.delta.table_metadata import TableLayout
from rangeland.delta.table_schema.column_mapping import relabel_columns, stored_fields
from rangeland.delta.table_schema.table_constraints import check_required_columns_are_filled
from rangeland.errors import TableRefused
from rangeland.model import DataFile

ROW_GROUP_BYTES = 64 << 20
MAX_OPEN_FILES = 16
PAGE_BYTES = 1 << 20

logger = logging.getLogger(__name__)


@dataclass
class _OpenFile:
    """A Parquet file that is being written, and the rows waiting for their row group."""

    path: str
    values: Values
    stats: StatsCollector
    sink: Any = None
    parquet: pq.ParquetWriter | None = None
    waiting: list[pa.RecordBatch] = field(default_factory=list)
    waiting_bytes: int = 0


class FileWriter:
    """Writes the rows of one task. Use it once: ``write`` batches, then ``close`` or ``abort``.

    Raises ``StorageFailed`` when the store is full or fails, ``TableRefused`` if it denies
    writing or a required column holds a null. After an error, call ``abort``."""

    def __init__(
        self,
        table: StoreSettings | str,
        layout: TableLayout,
        *,
        compression: str = "zstd",
        compression_level: int = 1,
        target_file_bytes: int = 256 << 20,
        name_prefix: str = "0",
        row_group_bytes: int = ROW_GROUP_BYTES,
        max_open_files: int = MAX_OPEN_FILES,
        columns: LogColumns = PLAIN_COLUMNS,
    ) -> None:
        """``name_prefix`` is part of every file's name. ``columns`` are the log's own columns,
        which identify records: errors name them."""
        self._store, self._root = open_store(table)
        self._layout = layout
        self._columns = columns
        self._schema = layout.file_schema
        self._stored = self._schema
        if layout.mapped_schema:
            self._stored = stored_fields(self._schema, layout.mapped_schema)
        names = dict(zip(self._schema.names, self._stored.names, strict=True))
        stats_columns = layout.stats_columns
        self._stats_columns = (
            None
            if stats_columns is None
            else frozenset(names[n] for n in stats_columns if n in names)
        )
        self._headers = {names[n] for n in names if n.lower() == "headers"}
        self._codec = compression
        self._level = compression_level if compression == "zstd" else None
        self._target_bytes = target_file_bytes
        self._group_bytes = min(row_group_bytes, target_file_bytes)
        self._prefix = name_prefix
        self._max_open = max_open_files
        self._open: dict[Values, _OpenFile] = {}  # least recently written first
        self._started: list[str] = []
        self._done: list[DataFile] = []
        self._folders: set[str] = set()

    def write(self, batch: pa.RecordBatch) -> None:
        """Takes ownership of the batch, which must not be changed afterwards. Columns are matched
        by name, ignoring case, and cast if the table's type is wider."""
        for portion in self._portions(self._conform(batch)):
            for values, rows in split(portion, self._layout.partition_by):
                self._take(values, self._as_stored(rows))

    def close(self) -> list[DataFile]:
        """Finishes all files, flushes them to disk if the store is local, and returns them.
        Without rows there are no files."""
        for values in list(self._open):
            self._finish(values)
        self._sync_folders()
        return self._done

    def abort(self) -> None:
        """Removes every file of this writer, finished ones included: none is committed yet."""
        for pending in self._open.values():
            pending.waiting.clear()
            _close_quietly(pending.parquet, pending.sink)
        self._open.clear()
        self._done.clear()
        if self._started:
            logger.debug("Removing uncommitted files", extra={"files": len(self._started)})
        for path in self._started:
            try:
                self._store.delete_file(self._full(path))
            except FileNotFoundError:
                continue
            except OSError as error:
                raise store_error(error, self._full(path)) from error

    # --- rows ---------------------------------------------------------------------------

    def _conform(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if batch.schema.equals(self._layout.schema):
            conformed = batch
        else:
            by_name = {name.lower(): index for index, name in enumerate(batch.schema.names)}
            columns = [_cast(batch, by_name, f) for f in self._layout.schema]
            conformed = pa.RecordBatch.from_arrays(columns, schema=self._layout.schema)
        check_required_columns_are_filled(conformed, self._layout.required, self._columns)
        return conformed

    def _as_stored(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The columns of files, by their names in files."""
        if self._layout.keeps_partitions:
            rows = with_computed(rows, self._layout.partition_by)
        rows = rows.select(self._schema.names)
        return rows if self._stored is self._schema else relabel_columns(rows, self._stored)

    def _portions(self, batch: pa.RecordBatch) -> list[pa.RecordBatch]:
        """The batch, in portions if it is larger than a row group."""
        count = min(-(-batch.nbytes // self._group_bytes), batch.num_rows)
        if count <= 1:
            return [batch] if batch.num_rows else []
        step = -(-batch.num_rows // count)
        return [batch.slice(start, step) for start in range(0, batch.num_rows, step)]

    def _take(self, values: Values, rows: pa.RecordBatch) -> None:
        filling = self._open.get(values)
        if filling is not None and filling.waiting_bytes + rows.nbytes > self._group_bytes:
            self._flush(filling)  # may also finish the file
        pending = self._open.pop(values, None) or self._start(values)
        self._open[values] = pending
        pending.waiting.append(rows)
        pending.waiting_bytes += rows.nbytes
        while sum(f.waiting_bytes for f in self._open.values()) > self._group_bytes:
            self._flush(max(self._open.values(), key=lambda f: f.waiting_bytes))

    # --- files --------------------------------------------------------------------------

    def _start(self, values: Values) -> _OpenFile:
        if len(self._open) >= self._max_open:
            self._finish(next(iter(self._open)))
        ending = "parquet" if self._codec == "none" else f"{self._codec}.parquet"
        name = f"part-{self._prefix}-{uuid.uuid4()}.{ending}"
        parent = folder(self._layout.partition_by, values)
        path = f"{parent}/{name}" if parent else name
        stats = StatsCollector(self._stored, self._stats_columns)
        return _OpenFile(path, values, stats)

    def _flush(self, pending: _OpenFile) -> None:
        """Writes the waiting rows as one row group; finishes the file when it is full."""
        if not pending.waiting:
            return
        table = pa.Table.from_batches(pending.waiting, schema=self._stored)
        try:
            parquet = pending.parquet or self._create(pending, table)
            parquet.write_table(table, row_group_size=table.num_rows)
            size = pending.sink.tell()
        except OSError as error:
            raise store_error(error, self._full(pending.path), table.nbytes) from error
        pending.stats.add(table)
        pending.waiting = []
        pending.waiting_bytes = 0
        if size >= self._target_bytes:
            self._finish(pending.values)

    def _create(self, pending: _OpenFile, first: pa.Table) -> pq.ParquetWriter:
        full = self._full(pending.path)
        parent = full.rsplit("/", 1)[0]
        if parent not in self._folders:
            if has_folders(self._store):
                self._store.create_dir(parent, recursive=True)
            self._folders.add(parent)
        self._started.append(pending.path)
        pending.sink = self._store.open_output_stream(full)
        row_bytes = max(1, first.nbytes // first.num_rows)
        pending.parquet = pq.ParquetWriter(
            pending.sink,
            self._stored,
            compression=self._codec,
            compression_level=self._level,
            data_page_size=PAGE_BYTES,
            write_batch_size=max(1, min(1024, PAGE_BYTES // row_bytes)),
            store_schema=False,
            **_encodings(self._stored, self._headers),
        )
        return pending.parquet

    def _finish(self, values: Values) -> None:
        pending = self._open[values]
        if pending.waiting:
            self._flush(pending)
        if self._open.pop(values, None) is None or pending.parquet is None:
            return  # the flush filled and finished it
        try:
            pending.parquet.close()
            size = pending.sink.tell()
            pending.sink.close()
            sync_file(self._store, self._full(pending.path))
        except OSError as error:
            raise store_error(error, self._full(pending.path)) from error
        fields = {"file": pending.path, "rows": pending.stats.rows, "bytes": size}
        logger.debug("Wrote a file", extra=fields)
        names = [column.key for column in self._layout.partition_by]
        self._done.append(
            DataFile(
                path=pending.path,
                size_bytes=size,
                rows=pending.stats.rows,
                stats=pending.stats.as_json(),
                modified_at_ms=time.time_ns() // 1_000_000,
                partition_values=dict(zip(names, values, strict=True)),
            )
        )

    def _sync_folders(self) -> None:
        for path in self._folders:
            try:
                sync_file(self._store, path)
            except OSError as error:
                raise store_error(error, path) from error

    def _full(self, path: str) -> str:
        return f"{self._root}/{path}"


def _cast(batch: pa.RecordBatch, by_name: dict[str, int], target: pa.Field) -> pa.Array:
    index = by_name.get(target.name.lower())
    if index is None:
        raise TableRefused(f"the rows have no column {target.name}", column=target.name)
    column = batch.column(index)
    if column.type.equals(target.type):
        return column
    try:
        return column.cast(target.type)
    except pa.ArrowException as error:
        raise TableRefused(
            f"column {target.name} holds {column.type} that the table's {target.type} cannot",
            why=str(error),
            do="convert it in the transform",
            column=target.name,
        ) from error


def _encodings(schema: pa.Schema, headers: Collection[str]) -> dict[str, Any]:
    """The encoding of each leaf column: a dictionary for repeating values, deltas for rising
    numbers. ``headers`` are columns of a record's headers, whose keys repeat."""
    dictionary, deltas, statistics = [], {}, []
    for f in schema:
        if has_bounds(f.type):
            statistics.append(f.name)
        if pt.is_int64(f.type) or pt.is_timestamp(f.type):
            deltas[f.name] = "DELTA_BINARY_PACKED"
        elif pt.is_boolean(f.type) or pt.is_binary(f.type) or pt.is_large_binary(f.type):
            continue
        elif f.name in headers and pt.is_list(f.type) and pt.is_struct(f.type.value_type):
            dictionary.append(f"{f.name}.list.element.{f.type.value_type.field(0).name}")
        elif not pt.is_nested(f.type):
            dictionary.append(f.name)
    return {
        "use_dictionary": dictionary or False,
        "column_encoding": deltas or None,
        "write_statistics": statistics or False,
    }


def _close_quietly(parquet: pq.ParquetWriter | None, sink: Any) -> None:
    """The file is about to be removed, so errors in closing it do not matter."""
    for resource in (parquet, sink):
        if resource is not None:
            try:
                resource.close()
            except (OSError, pa.ArrowException):
                continue
