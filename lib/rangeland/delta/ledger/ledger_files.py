"""The ledger's files: a commit adds small Parquet files, each with events of one kind.

A file's statistics show which event its rows belong to, so most files are never opened. Files made
by compaction or ``OPTIMIZE`` contain many events: they are opened and searched.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TypeVar

import pyarrow as pa
import pyarrow.dataset as pds
import pyarrow.parquet as pq

from rangeland.clock import wall_ms
from rangeland.delta.ledger.event_codec import (
    INDEXED,
    SCHEMA,
    from_row,
    key_of,
    stats_of,
    to_row,
)
from rangeland.delta.ledger.events import EventKey, LedgerEvent, PlanEvent
from rangeland.delta.parquet_files.data_files import open_parquet, write_whole_file
from rangeland.delta.stores.store_access import StoreSettings, sync_file
from rangeland.delta.stores.store_errors import as_own_errors, masked_error
from rangeland.delta.table_metadata import AddedFile
from rangeland.errors import Bug, Conflict, RangelandError, StorageFailed
from rangeland.model import DataFile
from rangeland.untrusted import JsonFields, Unreadable

OUR_FILES = "part-ledger-"
COMPACTED = "compacted-ledger-"
ROW_GROUP_BYTES = 8 << 20
"""The size of row groups. It is small because rows of the ledger may be long, and compaction runs
in the driver, whose memory is meant for the plan."""
E = TypeVar("E", bound=LedgerEvent)
_KEY_COLUMNS = ["event", "application", "job", "sequence", "entered", "attempt"]


class LedgerFiles:
    """The files of one ledger."""

    def __init__(self, path: str, store: StoreSettings) -> None:
        self.path = path
        self._store, self._root = store.open()
        self._newest: tuple[EventKey, PlanEvent] | None = None

    def write(self, events: Sequence[LedgerEvent]) -> DataFile:
        """Writes a file of events of one kind, all of which share the values in its statistics."""
        rows = [to_row(event) for event in events]
        name = f"{OUR_FILES}{rows[0]['event']}-{uuid.uuid4()}.zstd.parquet"
        table = pa.Table.from_pylist(rows, schema=SCHEMA)
        size = write_whole_file(self._store, f"{self._root}/{name}", table)
        return DataFile(name, size, len(rows), stats_of(rows), events[0].written_at_ms)

    def rewrite(self, paths: Sequence[str]) -> DataFile:
        """Writes the rows of these files into one."""
        name = f"{COMPACTED}{uuid.uuid4()}.zstd.parquet"
        full = f"{self._root}/{name}"
        keys: list[dict[str, object]] = []
        try:
            rows = self._dataset([f"{self._root}/{path}" for path in paths])
            with self._store.open_output_stream(full) as sink:
                writer = open_parquet(sink, SCHEMA, compression="zstd")
                for table in _row_groups(rows):
                    keys += table.select(INDEXED).to_pylist()
                    writer.write_table(table)
                writer.close()
                size = sink.tell()
            sync_file(self._store, full)
        except (OSError, pa.ArrowException) as error:
            shown = masked_error(error)
            raise self._unreadable_error(f"compacting the ledger {self.path}", shown) from shown
        return DataFile(name, size, len(keys), stats_of(keys), wall_ms())

    def _dataset(self, paths: list[str]) -> pds.Dataset:
        return pds.dataset(paths, schema=SCHEMA, format="parquet", filesystem=self._store)

    def remove(self, file: DataFile) -> None:
        full = f"{self._root}/{file.path}"
        with as_own_errors(full):
            self._store.delete_file(full)

    def keys_of(self, file: AddedFile) -> Iterator[EventKey]:
        """The keys of a file's events: from its statistics if a commit of events wrote it, and
        from its rows if compaction or ``OPTIMIZE`` did."""
        if file.has_deletion_vector:
            raise self.contradiction_error(f"rows of {file.path} were deleted")
        if file.stats and file.path.startswith(OUR_FILES):
            yield self._key_in(file.stats, file.path)
            return
        for row in self._rows_in(file.path, columns=_KEY_COLUMNS):
            yield key_of(row, file.path)

    def _key_in(self, stats: str, path: str) -> EventKey:
        try:
            row = JsonFields.parse(stats).fields("minValues")
            names = ("sequence", "entered", "attempt")
            sequence, entered, attempt = (row.number(name, default=0) for name in names)
            event, application, job = map(row.text, ("event", "application", "job"))
        except Unreadable as error:
            raise Conflict(
                f"the statistics of {path} in the ledger {self.path} cannot be read",
                why=str(error),
                do="restore the folder _rangeland of the table from a backup",
            ) from error
        return EventKey(
            event=event,
            application=application,
            job=job,
            sequence=sequence,
            entered=entered,
            path=path,
            attempt=attempt,
        )

    def event(self, key: EventKey, kind: type[E]) -> E:
        """The event with this key. Row groups that cannot contain it are not read."""
        names = ("event", "application", "sequence")
        filters: list[tuple[str, str, object]] = [(n, "==", getattr(key, n)) for n in names]
        rows = self._rows_in(key.path, filters)
        row = next((row for row in rows if key_of(row, key.path) == key), None)
        event = None if row is None else from_row(row)
        if not isinstance(event, kind):
            why = f"{key.path} does not have {key.event} {key.sequence}"
            raise self.contradiction_error(why)
        return event

    def newest_plan(self, key: EventKey) -> PlanEvent:
        """The plan with this key, which must be the key of the newest plan. Most questions begin
        with that plan, so it is read only once."""
        if self._newest is None or self._newest[0] != key:
            self._newest = (key, self.event(key, PlanEvent))
        return self._newest[1]

    def _rows_in(
        self,
        path: str,
        filters: list[tuple[str, str, object]] | None = None,
        columns: list[str] | None = None,
    ) -> list[dict[str, object]]:
        full = f"{self._root}/{path}"
        try:
            rows: list[dict[str, object]] = pq.read_table(
                full, filesystem=self._store, columns=columns, partitioning=None, filters=filters
            ).to_pylist()
        except (OSError, pa.ArrowException) as error:
            shown = masked_error(error)
            raise self._unreadable_error(f"could not read the ledger file {full}", shown) from shown
        return rows

    def events_in(self, paths: Iterable[str], kinds: Collection[str]) -> list[LedgerEvent]:
        """The events of these kinds from many files, which are read at once."""
        full = sorted(f"{self._root}/{path}" for path in paths)
        try:
            table = self._dataset(full).to_table(filter=pds.field("event").isin([*kinds]))
            rows: list[dict[str, object]] = table.to_pylist()
        except (OSError, pa.ArrowException) as error:
            shown = masked_error(error)
            raise self._unreadable_error(f"could not read the ledger {self.path}", shown) from shown
        return [from_row(row) for row in rows]

    def _unreadable_error(self, what: str, error: Exception) -> RangelandError:
        if not isinstance(error, FileNotFoundError):
            return StorageFailed(
                what,
                why=str(error),
                do="check that the table's store is up, then run again; if the file is damaged, "
                "restore the folder _rangeland from a backup",
            )
        return Conflict(
            f"a file of the ledger {self.path} is gone",
            why=f"its log names {error}",
            do="restore the folder _rangeland from a backup; or move it away and, if the table "
            "is as it should be, run `rangeland adopt JOB.yaml`, which counts its present rows "
            "as landed",
        )

    def contradiction_error(self, why: str) -> Bug:
        return Bug(f"the ledger {self.path} contradicts itself", why=why)


def _row_groups(rows: pds.Dataset) -> Iterator[pa.Table]:
    """The rows, as tables of bounded size in memory, however many rows there are."""
    batches: list[pa.RecordBatch] = []
    for batch in rows.to_batches(batch_readahead=2, fragment_readahead=4):
        batches.append(batch)
        if sum(b.nbytes for b in batches) > ROW_GROUP_BYTES:
            yield pa.Table.from_batches(batches)
            batches = []
    if batches:
        yield pa.Table.from_batches(batches)
