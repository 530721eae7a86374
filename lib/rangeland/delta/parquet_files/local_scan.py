"""Reads some columns of a small table in this process, since Spark would take seconds to start.

Files are read through Arrow's own file systems, as executors write them.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from rangeland.delta.parquet_files.file_statistics import rows_in
from rangeland.delta.stores.store_access import StoreSettings
from rangeland.delta.table_metadata import AddedFile
from rangeland.delta.table_schema.column_mapping import mapping_mode, stored_column

if TYPE_CHECKING:
    from rangeland.delta.transaction_log.table_snapshot import Snapshot

MAX_FILES = 200
"""The most files that are read here: each takes a request to the store, and more of them would take
longer than Spark takes to start."""
MAX_ROWS = 2_000_000
"""The most rows that are read here: their columns fit into the memory of any driver. For more rows,
it is worth starting Spark."""
FILE = "file"
_READERS = 8
"""The number of threads: reading small files is mostly waiting for the store."""


def small_table(
    snapshot: Snapshot, store: StoreSettings, types: Mapping[str, pa.DataType]
) -> pa.Table | None:
    """The top-level columns named in ``types``, for all rows, in no particular order, and a column
    ``file`` with the relative path of each row's file. A column that a file lacks is null; the rows
    of a file that is gone are left out. None if Spark must read the table: it has more than
    ``MAX_FILES`` files, more than ``MAX_ROWS`` rows or an unknown number of them, deletion vectors,
    columns found by number, files of another table, or a file that cannot be read in this
    process."""
    metadata = snapshot.metadata
    if mapping_mode(metadata) == "id":
        return None
    files = list(snapshot.files())
    if len(files) > MAX_FILES or sum(rows_in(f, MAX_ROWS + 1) for f in files) > MAX_ROWS:
        return None
    if any(file.has_deletion_vector or ":/" in file.path for file in files):
        return None
    columns = {name: stored_column(metadata.schema_json, name) for name in types}
    schema = pa.schema([*types.items(), (FILE, pa.string())])
    try:
        filesystem, root = store.open()
        reader = _ColumnReader(filesystem, root, columns, schema)
        with ThreadPoolExecutor(_READERS) as pool:
            return pa.concat_tables([schema.empty_table(), *pool.map(reader.read, files)])
    except (OSError, pa.ArrowException):
        return None


class _ColumnReader:
    """Reads columns of files. ``schema`` is the schema of the result, and ``columns`` maps its
    names to names in files."""

    def __init__(
        self, store: pafs.FileSystem, root: str, columns: Mapping[str, str], schema: pa.Schema
    ) -> None:
        self._store = store
        self._root = root
        self._columns = columns
        self._schema = schema

    def read(self, file: AddedFile) -> pa.Table:
        try:
            source = self._store.open_input_file(f"{self._root}/{file.path}")
        except FileNotFoundError:
            return self._schema.empty_table()
        with source, pq.ParquetFile(source) as parquet:
            # Even if files contain partition columns, the log has the last word.
            names = set(parquet.schema_arrow.names) - set(file.partition_values)
            table = parquet.read([name for name in self._columns.values() if name in names])
            rows = parquet.metadata.num_rows
        columns = [self._column(field, file, table, rows) for field in self._schema]
        return pa.table(columns, schema=self._schema)

    def _column(
        self, field: pa.Field, file: AddedFile, table: pa.Table, row_count: int
    ) -> pa.ChunkedArray | pa.Array:
        if field.name == FILE:
            return pa.repeat(pa.scalar(file.path, pa.string()), row_count)
        name = self._columns[field.name]
        if name in table.column_names:
            return table.column(name).cast(field.type)
        value = file.partition_values.get(name)
        return pa.repeat(pa.scalar(value, pa.string()).cast(field.type), row_count)
