"""A store in memory with the calls that the product makes of Arrow's file systems, and files that
stand for Parquet: they hold the Arrow tables that were written.

What is written is there only once it is closed, as in an object store.
"""

from __future__ import annotations

import errno
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs

from tests.simulation.world import World

LOG = "/_delta_log"
ROW_BYTES = 100


@dataclass(frozen=True)
class RowTable:
    """In place of an Arrow table of rows that are read back as they were written."""

    rows: list[dict[str, Any]]

    @classmethod
    def from_pylist(cls, rows: Sequence[dict[str, Any]], schema: pa.Schema) -> RowTable:
        names: list[str] = schema.names
        return cls([{name: row.get(name) for name in names} for row in rows])

    @classmethod
    def from_batches(cls, batches: Sequence[RowTable]) -> RowTable:
        return cls([row for batch in batches for row in batch.rows])

    @property
    def schema(self) -> pa.Schema:
        """Files in memory need none."""
        return pa.schema([])

    @property
    def num_rows(self) -> int:
        return len(self.rows)

    @property
    def nbytes(self) -> int:
        return ROW_BYTES * len(self.rows)

    def to_pylist(self) -> list[dict[str, Any]]:
        return self.rows

    def select(self, names: Sequence[str]) -> RowTable:
        return RowTable([{name: row[name] for name in names} for row in self.rows])


class RowArrow:
    """In place of ``pyarrow`` where tables are only written and read back."""

    Table = RowTable
    ArrowException = pa.ArrowException


@dataclass
class StoredFile:
    table: pa.Table | RowTable
    size: int
    written_ms: int

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        """Nobody may change them."""
        found: list[dict[str, Any]] = self.table.to_pylist()
        return found


@dataclass(frozen=True)
class FileInfo:
    path: str
    type: pafs.FileType
    size: int

    @property
    def base_name(self) -> str:
        return self.path.rpartition("/")[2]


class Sink:
    """A file that is being written."""

    def __init__(self, store: MemoryStore, path: str) -> None:
        self._store = store
        self._path = path
        self.tables: list[pa.Table | RowTable] = []
        self.size = 0
        self._is_open = True

    def take(self, table: pa.Table | RowTable) -> None:
        self.tables.append(table)
        self.size += ROW_BYTES * table.num_rows

    def tell(self) -> int:
        return self.size

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            self._store.finish(self._path, self)

    def __enter__(self) -> Sink:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if kind is None:
            self.close()


class MemoryStore:
    """``folders`` are those that have a Delta log."""

    def __init__(self, world: World, folders: Collection[str]) -> None:
        self._world = world
        self.files: dict[str, StoredFile] = {}
        self.folders = folders

    def _point(self, tag: str, path: str) -> None:
        if self._world.point(tag) == "refused":
            raise OSError(errno.EIO, f"the store refuses {path}")

    def open_output_stream(self, path: str) -> Sink:
        self._point("store.open", path)
        return Sink(self, path)

    def finish(self, path: str, sink: Sink) -> None:
        self._point("store.close", path)
        first, *more = sink.tables
        table = pa.concat_tables(sink.tables) if more else first
        self.files[path] = StoredFile(table, sink.size, self._world.now_ms)

    def delete_file(self, path: str) -> None:
        self._point("store.delete", path)
        if self.files.pop(path, None) is None:
            raise FileNotFoundError(path)

    def create_dir(self, path: str, recursive: bool = True) -> None:
        """There are no folders."""

    def get_file_info(self, wanted: Any) -> list[FileInfo]:
        self._point("store.list", str(wanted))
        if isinstance(wanted, pafs.FileSelector):
            return self._listed(wanted.base_dir)
        return [self._info(path) for path in wanted]

    def _info(self, path: str) -> FileInfo:
        found = self.files.get(path)
        if found is not None:
            return FileInfo(path, pafs.FileType.File, found.size)
        is_log = path.endswith(LOG) and path.removesuffix(LOG) in self.folders
        return FileInfo(path, pafs.FileType.Directory if is_log else pafs.FileType.NotFound, -1)

    def _listed(self, folder: str) -> list[FileInfo]:
        start = folder.rstrip("/") + "/"
        paths = [*self.files, *(f"{root}{LOG}/0" for root in self.folders)]
        names = {path[len(start) :].partition("/")[0] for path in paths if path.startswith(start)}
        return [FileInfo(start + name, pafs.FileType.Directory, 0) for name in sorted(names)]

    def read(self, path: str) -> StoredFile:
        self._point("store.read", path)
        if path not in self.files:
            raise FileNotFoundError(errno.ENOENT, "there is no such file", path)
        return self.files[path]

    def vacuum(self, table: str, kept: Collection[str]) -> None:
        """Delta's VACUUM removes files that the table does not have, except in hidden folders."""
        start = f"{table}/"
        for path in [path for path in self.files if path.startswith(start)]:
            name = path[len(start) :]
            if not name.startswith("_") and name not in kept:
                del self.files[path]


class ParquetWriter:
    def __init__(self, sink: Sink, schema: pa.Schema, **settings: object) -> None:
        self._sink = sink

    def add_key_value_metadata(self, metadata: Mapping[str, str]) -> None:
        """Nobody asks for it."""

    def write_table(self, table: pa.Table | RowTable, row_group_size: int | None = None) -> None:
        self._sink.take(table)

    def close(self) -> None:
        """Everything is in the sink."""

    def __enter__(self) -> ParquetWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass(frozen=True)
class Filter:
    """The rows whose column has one of these values."""

    name: str
    values: Sequence[object] = ()

    def isin(self, values: Sequence[object]) -> Filter:
        return Filter(self.name, values)


class Parquet:
    """In place of ``pyarrow.parquet`` and ``pyarrow.dataset``."""

    ParquetWriter = ParquetWriter
    field = Filter

    @staticmethod
    def read_table(
        path: str,
        columns: list[str] | None = None,
        filesystem: MemoryStore | None = None,
        partitioning: object = None,
        filters: Sequence[tuple[str, str, object]] | None = None,
        coerce_int96_timestamp_unit: object = None,
    ) -> pa.Table | RowTable:
        assert filesystem is not None
        found = filesystem.read(path).table
        if filters is not None:
            wanted = [(name, value) for name, _, value in filters]
            found = RowTable([r for r in found.rows if all(r[n] == v for n, v in wanted)])
        return found if columns is None else found.select(columns)

    @staticmethod
    def dataset(
        paths: Iterable[str], schema: pa.Schema, format: str, filesystem: MemoryStore
    ) -> Rows:
        return Rows([row for path in paths for row in filesystem.read(path).rows])


@dataclass(frozen=True)
class Rows:
    """All columns of some rows: what is asked of an Arrow table or dataset of them."""

    rows: Sequence[dict[str, Any]]

    def to_table(self, filter: Filter | None = None) -> Rows:
        if filter is None:
            return self
        return Rows([row for row in self.rows if row[filter.name] in filter.values])

    def to_batches(self, **settings: object) -> list[RowTable]:
        return [RowTable(list(self.rows))]

    def take(self, numbers: Sequence[int]) -> Rows:
        return Rows([self.rows[number] for number in numbers])

    def to_pylist(self) -> list[dict[str, Any]]:
        return list(self.rows)
