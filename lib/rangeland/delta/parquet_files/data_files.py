"""Writes rows to Parquet files of a Delta table. Runs in executors, with pyarrow alone.

A file written here is invisible until the driver commits it. Batches are buffered and written as
row groups once they take up ``ROW_GROUP_BYTES`` of Arrow memory, so a writer's memory is bounded
whatever the size of records, files or partitions: the sum over all open files counts, and the file
with the fullest buffer is written first.

Keys and values get neither dictionaries nor Parquet statistics, which would take most of the time.
Offsets and timestamps rise slowly, so they are stored as deltas.
"""

from __future__ import annotations

import logging
import uuid
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pyarrow.types as pt

from rangeland.clock import wall_ms
from rangeland.decode.columns import PLAIN_COLUMNS, LogColumns
from rangeland.delta.parquet_files.file_statistics import StatsCollector, has_bounds
from rangeland.delta.parquet_files.partition_values import Values, folder, split, with_computed
from rangeland.delta.stores.store_access import StoreSettings, has_folders, sync_file
from rangeland.delta.stores.store_errors import as_own_errors
from rangeland.delta.table_metadata import TableLayout
from rangeland.delta.table_schema.column_mapping import relabel_columns, stored_fields
from rangeland.delta.table_schema.table_constraints import check_required_columns_are_filled
from rangeland.errors import TableRefused
from rangeland.model import DataFile

ROW_GROUP_BYTES = 64 << 20
"""The size of row groups in memory: large enough for good compression and few row groups, small
enough for several tasks on one host."""
MAX_OPEN_FILES = 16
"""How many files may be open at once: each has its own buffers, and rows of many partitions may
arrive interleaved."""
PAGE_BYTES = 1 << 20
"""Parquet's usual page size."""
CALENDAR = {"org.apache.spark.version": "3.5.0"}
"""Spark infers a file's calendar from the Spark version that wrote it; from 3.0 on, that is the
calendar that Arrow uses. If no version is given, Spark before 4.0 refuses dates before 1582 and
times before 1900."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FileWriterSettings:
    """The settings with which a task writes files. They contain the keys to the table's store in
    clear text, but no ``repr`` shows them."""

    table: StoreSettings
    layout: TableLayout
    compression: str = "zstd"
    compression_level: int = 1
    target_file_bytes: int = 256 << 20
    name_prefix: str = "0"
    """Part of every file's name: it identifies the plan."""
    columns: LogColumns = PLAIN_COLUMNS
    """The log's own columns, which identify records in errors."""


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

    Raises ``StorageFailed`` if the store is full or fails, and ``TableRefused`` if it denies
    writing or a required column contains a null. After an error, call ``abort``.
    """

    def __init__(
        self,
        settings: FileWriterSettings,
        *,
        row_group_bytes: int = ROW_GROUP_BYTES,
        max_open_files: int = MAX_OPEN_FILES,
    ) -> None:
        self._settings = settings
        self._layout = settings.layout
        self._store, self._root = settings.table.open()
        self._stored = self._layout.file_schema
        if self._layout.mapped_schema:
            self._stored = stored_fields(self._stored, self._layout.mapped_schema)
        self._stats_columns = _stats_columns(self._layout, self._stored)
        self._group_bytes = min(row_group_bytes, settings.target_file_bytes)
        self._max_open = max_open_files
        self._open: dict[Values, _OpenFile] = {}  # least recently written first
        self._started: list[str] = []
        self._done: list[DataFile] = []
        self._folders: set[str] = set()

    def write(self, batch: pa.RecordBatch) -> None:
        """Adds the rows of a batch, which must not be changed afterwards. Columns are matched
        by name, ignoring case, and cast if the table's type is wider."""
        for portion in self._portions(self._conform(batch)):
            for values, rows in split(portion, self._layout.partition_by):
                self._take(values, self._as_stored(rows))

    def close(self) -> list[DataFile]:
        """Finishes all files, flushes them to disk if the store is local, and returns them. If
        there were no rows, there are no files."""
        for file in list(self._open.values()):
            self._finish(file)
        self._sync_folders()
        return self._done

    def abort(self) -> None:
        """Removes every file of this writer, including finished ones: none has been committed
        yet."""
        for pending in self._open.values():
            pending.waiting.clear()
            _close_quietly(pending.parquet, pending.sink)
        self._open.clear()
        self._done.clear()
        if self._started:
            logger.debug("Removing uncommitted files", extra={"files": len(self._started)})
        for path in self._started:
            with as_own_errors(self._full(path)), suppress(FileNotFoundError):
                self._store.delete_file(self._full(path))

    # --- rows ---------------------------------------------------------------------------

    def _conform(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if batch.schema.equals(self._layout.schema):
            conformed = batch
        else:
            by_name = {name.lower(): index for index, name in enumerate(batch.schema.names)}
            columns = [_cast(batch, by_name, f) for f in self._layout.schema]
            conformed = pa.RecordBatch.from_arrays(columns, schema=self._layout.schema)
        check_required_columns_are_filled(conformed, self._layout.required, self._settings.columns)
        return conformed

    def _as_stored(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The columns under the names that they have in files."""
        if self._layout.keeps_partitions:
            rows = with_computed(rows, self._layout.partition_by)
        rows = rows.select(self._layout.file_schema.names)
        return relabel_columns(rows, self._stored) if self._layout.mapped_schema else rows

    def _portions(self, batch: pa.RecordBatch) -> list[pa.RecordBatch]:
        """The batch, split into portions if it is larger than a row group."""
        count = min(-(-batch.nbytes // self._group_bytes), batch.num_rows)
        if count <= 1:
            return [batch] if batch.num_rows else []
        step = -(-batch.num_rows // count)
        return [batch.slice(start, step) for start in range(0, batch.num_rows, step)]

    def _take(self, values: Values, rows: pa.RecordBatch) -> None:
        filling = self._open.get(values)
        if filling is not None and filling.waiting_bytes + rows.nbytes > self._group_bytes:
            self._write_group(filling)
        file = self._open.pop(values, None) or self._start(values)
        self._open[values] = file
        file.waiting.append(rows)
        file.waiting_bytes += rows.nbytes
        while sum(f.waiting_bytes for f in self._open.values()) > self._group_bytes:
            self._write_group(max(self._open.values(), key=lambda f: f.waiting_bytes))

    def _write_group(self, file: _OpenFile) -> None:
        """Writes the waiting rows of a file, and finishes it if it is full."""
        if self._flush(file):
            self._finish(file)

    # --- files --------------------------------------------------------------------------

    def _start(self, values: Values) -> _OpenFile:
        if len(self._open) >= self._max_open:
            self._finish(next(iter(self._open.values())))
        codec = self._settings.compression
        ending = "parquet" if codec == "none" else f"{codec}.parquet"
        name = f"part-{self._settings.name_prefix}-{uuid.uuid4()}.{ending}"
        parent = folder(self._layout.partition_by, values)
        path = f"{parent}/{name}" if parent else name
        return _OpenFile(path, values, StatsCollector(self._stored, self._stats_columns))

    def _flush(self, file: _OpenFile) -> bool:
        """Writes the waiting rows of a file as one row group, and says whether it is full."""
        if not file.waiting:
            return False
        table = pa.Table.from_batches(file.waiting, schema=self._stored)
        with as_own_errors(self._full(file.path), table.nbytes):
            parquet = file.parquet or self._create(file, table)
            parquet.write_table(table, row_group_size=table.num_rows)
            size: int = file.sink.tell()
        file.stats.add(table)
        file.waiting = []
        file.waiting_bytes = 0
        return size >= self._settings.target_file_bytes

    def _create(self, file: _OpenFile, first: pa.Table) -> pq.ParquetWriter:
        full = self._full(file.path)
        parent = full.rsplit("/", 1)[0]
        if parent not in self._folders:
            if has_folders(self._store):
                self._store.create_dir(parent, recursive=True)
            self._folders.add(parent)
        self._started.append(file.path)
        file.sink = self._store.open_output_stream(full)
        codec, level = self._settings.compression, self._settings.compression_level
        row_bytes = max(1, first.nbytes // first.num_rows)
        file.parquet = open_parquet(
            file.sink,
            self._stored,
            compression=codec,
            compression_level=level if codec == "zstd" else None,
            data_page_size=PAGE_BYTES,
            write_batch_size=max(1, min(1024, PAGE_BYTES // row_bytes)),
            **_encodings(self._layout.file_schema, self._stored),
        )
        return file.parquet

    def _finish(self, file: _OpenFile) -> None:
        self._flush(file)
        del self._open[file.values]
        if file.parquet is None:
            return
        with as_own_errors(self._full(file.path)):
            file.parquet.close()
            size = file.sink.tell()
            file.sink.close()
            sync_file(self._store, self._full(file.path))
        fields = {"file": file.path, "rows": file.stats.rows, "bytes": size}
        logger.debug("Wrote a file", extra=fields)
        names = [column.key for column in self._layout.partition_by]
        self._done.append(
            DataFile(
                path=file.path,
                size_bytes=size,
                rows=file.stats.rows,
                stats=file.stats.as_json(),
                modified_at_ms=wall_ms(),
                partition_values=dict(zip(names, file.values, strict=True)),
            )
        )

    def _sync_folders(self) -> None:
        for path in self._folders:
            with as_own_errors(path):
                sync_file(self._store, path)

    def _full(self, path: str) -> str:
        return f"{self._root}/{path}"


def open_parquet(sink: Any, schema: pa.Schema, **settings: Any) -> pq.ParquetWriter:
    """A Parquet writer whose files every Spark version reads correctly."""
    parquet = pq.ParquetWriter(sink, schema, store_schema=False, **settings)
    parquet.add_key_value_metadata(CALENDAR)
    return parquet


def write_whole_file(store: pafs.FileSystem, full: str, table: pa.Table) -> int:
    """Writes a Parquet file of one table, flushes it to disk if the store is local, and returns its
    size. Raises like ``FileWriter``."""
    with as_own_errors(full, table.nbytes):
        with store.open_output_stream(full) as sink:
            with open_parquet(sink, table.schema, compression="zstd") as parquet:
                parquet.write_table(table)
            size: int = sink.tell()
        sync_file(store, full)
    return size


def _cast(batch: pa.RecordBatch, by_name: dict[str, int], target: pa.Field) -> pa.Array:
    index = by_name.get(target.name.lower())
    if index is None:
        raise TableRefused(
            f"the rows have no column {target.name}",
            do="return that column from the transform",
            column=target.name,
        )
    column = batch.column(index)
    if column.type.equals(target.type):
        return column
    try:
        return column.cast(target.type)
    except pa.ArrowException as error:
        raise TableRefused(
            f"column {target.name} has {column.type} values that do not fit the table's "
            f"{target.type}",
            why=str(error),
            do="convert it in the transform",
            column=target.name,
        ) from error


def _stats_columns(layout: TableLayout, stored: pa.Schema) -> frozenset[str] | None:
    """The columns that get statistics, by their names in files; None means the first few
    columns."""
    if layout.stats_columns is None:
        return None
    names = zip(layout.file_schema.names, stored.names, strict=True)
    return frozenset(in_files for name, in_files in names if name in layout.stats_columns)


def _encodings(schema: pa.Schema, stored: pa.Schema) -> dict[str, Any]:
    """The encoding of each leaf column, by its name in files: a dictionary for values that repeat,
    such as header keys, and deltas for rising numbers."""
    dictionary = []
    deltas = {}
    statistics = []
    for name, f in zip(schema.names, stored, strict=True):
        # Arrow's bounds of row groups ignore NaN, which Spark considers the largest number: a
        # filter would miss it. In the file's own statistics, a column with a NaN has no bounds.
        if has_bounds(f.type) and not pt.is_floating(f.type):
            statistics.append(f.name)
        if pt.is_int64(f.type) or pt.is_timestamp(f.type):
            deltas[f.name] = "DELTA_BINARY_PACKED"
        elif pt.is_boolean(f.type) or pt.is_binary(f.type) or pt.is_large_binary(f.type):
            continue
        elif name.lower() == "headers" and pt.is_list(f.type) and pt.is_struct(f.type.value_type):
            dictionary.append(f"{f.name}.list.element.{f.type.value_type.field(0).name}")
        elif not pt.is_nested(f.type):
            dictionary.append(f.name)
    return {
        "use_dictionary": dictionary or False,
        "column_encoding": deltas or None,
        "write_statistics": statistics or False,
    }


def _close_quietly(parquet: pq.ParquetWriter | None, sink: Any) -> None:
    """Closes a file that is about to be removed: errors do not matter."""
    for resource in (parquet, sink):
        if resource is not None:
            try:
                resource.close()
            except (OSError, pa.ArrowException):
                continue
