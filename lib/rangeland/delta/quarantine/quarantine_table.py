"""The quarantine: a plain Delta table of bytes that could not be decoded, next to the ledger.

Executors write such bytes to files of this table that nobody can see yet. The outcome names the
files. They are committed under the outcome's own transaction id, just before the commit to the
table; the commit may be repeated any number of times. So the quarantine has everything that counts
as quarantined, exactly once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from rangeland.delta.ledger.events import OutcomeEvent
from rangeland.delta.quarantine.quarantine_writer import SCHEMA, prefix_of
from rangeland.delta.stores.store_access import StoreSettings
from rangeland.delta.stores.store_errors import masked_error
from rangeland.delta.stores.table_path import TablePath
from rangeland.delta.table_metadata import AddedFile
from rangeland.delta.table_schema.arrow_schema import schema_json
from rangeland.delta.table_schema.schema_evolution import evolve_schema
from rangeland.delta.transaction_log.delta_kernel import DeltaKernel
from rangeland.delta.transaction_log.table_commit import gone_files, missing_files
from rangeland.delta.transaction_log.table_snapshot import CommitRequest
from rangeland.errors import StorageFailed
from rangeland.loss import DamagedBytes, QuarantinedBytes, UndecodableRecords
from rangeland.model import Partition, Range
from rangeland.planning.plan import PlanId

FOLDER = "_rangeland/quarantine"
IsWanted = Callable[[PlanId, Range], bool]
"""Decides whether the bytes that a plan has quarantined for a range are wanted."""
_PLACE = ["topic", "partition", "broker", "topic_id", "from_offset", "until_offset"]
_PLACE += ["application", "sequence"]


@dataclass(frozen=True, slots=True)
class QuarantinedBatch:
    """The bytes of a range of offsets that an outcome counts as quarantined."""

    range: Range
    application: str
    sequence: int
    reason: str
    leader: str
    size_bytes: int
    quarantined_bytes: QuarantinedBytes
    quarantined_at_ms: int = 0

    @property
    def plan_id(self) -> PlanId:
        return PlanId(self.application, self.sequence)


class Quarantine:
    """The quarantine of the table at ``table_path``."""

    def __init__(self, delta: DeltaKernel, table_path: str) -> None:
        self._delta = delta
        self.path = str(TablePath.parse(delta.resolve(table_path)).child(FOLDER))

    def storage(self) -> StoreSettings:
        return self._delta.storage(self.path)

    def gone_files(self, outcome: OutcomeEvent) -> tuple[str, ...]:
        """The paths of an outcome's quarantine files that are gone."""
        return gone_files(self.storage(), outcome.quarantine_files)

    def gone_named_files(self) -> tuple[str, ...]:
        """The paths of files that the quarantine names and that do not exist."""
        snapshot = self._delta.load(self.path)
        return () if snapshot is None else missing_files(self.storage(), list(snapshot.files()))

    def commit(self, outcome: OutcomeEvent) -> None:
        """Commits an outcome's quarantine files, once; creates the table if it does not exist. The
        files of a later attempt replace those of an earlier one."""
        snapshot = self._delta.load(self.path)
        if snapshot is None and not outcome.quarantine_files:
            return
        snapshot = snapshot or self._delta.create(self.path, schema_json(SCHEMA))
        files = {file.path for file in outcome.quarantine_files}
        start = prefix_of(outcome.plan_hash)
        stale = []
        if outcome.attempt:
            of_plan = (f for f in snapshot.files() if f.path.startswith(start))
            stale = [f for f in of_plan if f.path not in files]
        if not outcome.quarantine_files and not stale:
            return
        # A quarantine that an earlier version created lacks the newest columns.
        change = evolve_schema(snapshot.schema_json, schema_json(SCHEMA))
        new_schema = change.schema_json if change.is_any else ""
        name = f"{outcome.application}/{outcome.sequence}"
        attempt = outcome.attempt + 1
        request = CommitRequest(
            name, attempt, outcome.quarantine_files, removed=stale, schema_json=new_schema
        )
        self._delta.commit(snapshot, request)

    def batches(self, is_wanted: IsWanted) -> Iterator[QuarantinedBatch]:
        """The wanted batches, one file at a time: the bytes in other files are not read. Those in
        files that are gone are left out. Empty if there is no quarantine."""
        snapshot = self._delta.load(self.path)
        if snapshot is None:
            return
        store, root = self.storage().open()
        for file in sorted(snapshot.files(), key=lambda f: f.path):
            full = f"{root}/{file.path}"
            try:
                places = map(_place, _read(store, full, _PLACE))
                rows = [number for number, place in enumerate(places) if is_wanted(*place)]
                batches = [_batch(row) for row in _read(store, full, None, rows)] if rows else []
            except FileNotFoundError as error:
                if not self._is_gone(store, full, file):
                    raise _unreadable_error(full, error) from error
                continue
            yield from batches

    def _is_gone(self, store: pafs.FileSystem, full: str, file: AddedFile) -> bool:
        """Whether the store lists no such file, and the quarantine still names it: OPTIMIZE and
        VACUUM may have replaced and removed it since the quarantine was looked at."""
        try:
            (info,) = store.get_file_info([full])
        except (OSError, pa.ArrowException):
            return False
        if info.type != pafs.FileType.NotFound:
            return False
        newest = self._delta.load(self.path)
        return newest is not None and any(f.path == file.path for f in newest.files())


def _read(
    store: pafs.FileSystem, full: str, columns: list[str] | None, rows: list[int] | None = None
) -> list[dict[str, object]]:
    """The rows of a file. Raises FileNotFoundError if there is none, which may not be for good."""
    try:
        table = pq.read_table(
            full,
            columns=columns,
            filesystem=store,
            partitioning=None,
            coerce_int96_timestamp_unit="us",  # Spark writes these if somebody runs OPTIMIZE
        )
        return _rows(table if rows is None else table.take(rows))
    except FileNotFoundError as error:
        raise masked_error(error) from None
    except (OSError, pa.ArrowException) as error:
        shown = masked_error(error)
        raise _unreadable_error(full, shown) from shown


def _unreadable_error(full: str, error: Exception) -> StorageFailed:
    return StorageFailed(
        f"could not read the quarantine {full}",
        why=str(error),
        do="check that the table's store is up, then run again; if the file is damaged, "
        "restore it from a backup",
    )


def _rows(table: pa.Table) -> list[dict[str, object]]:
    """The rows of the quarantine. Intact records stay in Arrow, because Python has no times after
    9999."""
    name = "undecodable"
    if name not in table.column_names:
        rows: list[dict[str, object]] = table.to_pylist()
        return rows
    rows = table.drop_columns([name]).to_pylist()
    records = table.column(name).cast(SCHEMA.field(name).type)
    return [{**row, name: records[i].values} for i, row in enumerate(rows)]


def _place(row: dict[str, object]) -> tuple[PlanId, Range]:
    partition = Partition(str(row["topic"]), int(str(row["partition"])), str(row["broker"] or ""))
    first, until = (int(str(row[name])) for name in ("from_offset", "until_offset"))
    topic_id = None if row["topic_id"] is None else str(row["topic_id"])
    where = Range(partition, first, until, topic_id)
    return PlanId(str(row["application"]), int(str(row["sequence"]))), where


def _content(row: dict[str, object], reason: str) -> QuarantinedBytes:
    undecodable = row.get("undecodable")
    if isinstance(undecodable, pa.StructArray):
        rows = pa.RecordBatch.from_struct_array(undecodable)
        return UndecodableRecords(rows, reason)
    aborted: list[dict[str, int]] = row["aborted"] or []  # type: ignore[assignment]
    records: bytes = row["records"] or b""  # type: ignore[assignment]
    transactions = tuple((a["producer_id"], a["first_offset"]) for a in aborted)
    return DamagedBytes(records, transactions, reason)


def _batch(row: dict[str, object]) -> QuarantinedBatch:
    plan_id, where = _place(row)
    reason = str(row["reason"] or "")
    kept = _content(row, reason)
    return QuarantinedBatch(
        range=where,
        application=plan_id.application,
        sequence=plan_id.sequence,
        reason=reason,
        leader=str(row["leader"] or ""),
        size_bytes=kept.size_bytes,
        quarantined_bytes=kept,
        quarantined_at_ms=round(row["kept_at"].timestamp() * 1000),  # type: ignore[attr-defined]
    )
