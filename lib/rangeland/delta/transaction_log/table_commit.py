"""Commits a prepared outcome to the table, exactly once.

``commit_once`` may be called any number of times, by any number of drivers, for the same outcome:
the table's transaction version lets only one commit succeed. Missing files are a result, not an
error, since the caller can write them again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from rangeland.delta.stores.store_access import StoreSettings
from rangeland.delta.stores.store_errors import as_own_errors
from rangeland.delta.table_metadata import AddedFile
from rangeland.delta.table_schema.column_mapping import (
    HIGHEST_ID_PROPERTY,
    MODE_PROPERTY,
    lacked_field,
)
from rangeland.delta.table_schema.schema_evolution import (
    Misfit,
    SchemaChange,
    allows_widening,
    evolve_schema,
)
from rangeland.delta.transaction_log.delta_kernel import DeltaKernel
from rangeland.delta.transaction_log.table_snapshot import (
    AlreadyCommitted,
    CommitRequest,
    Committed,
    NotReady,
    Snapshot,
)
from rangeland.error_answers import PlanStage, at_stage
from rangeland.errors import Conflict, RangelandError, StorageFailed, TableRefused
from rangeland.model import DataFile

READERS = 8
"""How many files are read at the same time."""


@dataclass(frozen=True, slots=True)
class CommittedOutcome:
    """The outcome is in the table. ``version`` is the version that its commit made, or None if that
    is unknown; ``is_new`` is False if it was committed before this call."""

    version: int | None
    is_new: bool
    added: tuple[str, ...] = ()
    """The columns that this commit has added."""


@dataclass(frozen=True, slots=True)
class FilesGone:
    """Prepared files that are gone or whose size has changed: nothing was committed."""

    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FilesUnfit:
    """The table's columns have other types, numbers or stored names than the prepared files,
    because another commit has changed them: nothing was committed. The plan is read again with the
    job's present schema; if those rows do not fit either, it waits for a corrected job file."""

    misfit: Misfit


@dataclass(frozen=True, slots=True)
class RowsRefused:
    """The table's constraints rule out a row of the prepared files: nothing was committed."""

    refusal: TableRefused


NotCommitted = FilesGone | FilesUnfit | RowsRefused


@dataclass(frozen=True, slots=True)
class TableMoved:
    """Another writer has made a commit after the version that the request expects: nothing was
    committed."""

    path: str
    why: str


def commit_once(
    delta: DeltaKernel, table: str | Snapshot, request: CommitRequest
) -> CommittedOutcome | NotCommitted | TableMoved:
    """Commits exactly once. The request's ``schema_json`` is the schema of its files; the same
    commit changes the table's schema to match. If files are removed, a concurrent commit is a
    Conflict, or TableMoved if the request expects a version. If an earlier call made the commit,
    its version is not searched for."""
    snapshot = _require_table(delta, table)
    change = change_of(delta, snapshot, request.schema_json, request.files)
    if change.misfits and not _has(snapshot, request):
        return FilesUnfit(change.misfits[0])
    new = replace(
        request,
        properties=_to_set(snapshot, request.properties),
        schema_json=change.schema_json if change.is_any else "",
        expected_version=_expected_version(snapshot, request),
    )
    try:
        done = _commit(delta, snapshot, new)
    except (Conflict, TableRefused) as error:
        # A commit whose response was lost may conflict with itself, or be denied when it is sent
        # again. What Delta Kernel objects to may be true of this snapshot only, and no longer of
        # the table.
        with at_stage(PlanStage.UNCONFIRMED):
            latest = delta.load(snapshot.path)
        if latest is None or latest.table_id != snapshot.table_id:
            raise
        if _has(latest, request):
            return commit_once(delta, latest, replace(request, expected_version=None))
        may_try_again = _may_try_again(latest, snapshot, request)
        if not (may_try_again or _has_moved(latest, request, error)):
            raise
        if request.expected_version is not None:
            return TableMoved(snapshot.path, error.why)
        return commit_once(delta, latest, request)
    match done:
        case FilesGone():
            return done
        case Committed(version=version):
            return CommittedOutcome(version, is_new=True, added=tuple(change.added))
        case AlreadyCommitted():
            # Delta Kernel reads the log that is at the path now, which may be another table's.
            with at_stage(PlanStage.UNCONFIRMED):
                check_same_table(delta, snapshot)
            return CommittedOutcome(None, is_new=False)


def _commit(
    delta: DeltaKernel, snapshot: Snapshot, request: CommitRequest
) -> Committed | AlreadyCommitted | FilesGone:
    """One commit, if all files exist and the table is still the same. Both are checked under the
    table's lock: waiting for the lock may take as long as a VACUUM."""
    storage = delta.storage(snapshot.path)
    missing = list[str]()

    def is_whole() -> bool:
        check_same_table(delta, snapshot)
        missing.extend(gone_files(storage, request.files))
        return not missing

    with at_stage(PlanStage.COMMITTING):
        done = delta.commit(snapshot, request, is_whole)
    return FilesGone(tuple(missing)) if isinstance(done, NotReady) else done


def _require_table(delta: DeltaKernel, table: str | Snapshot) -> Snapshot:
    snapshot = delta.load(table) if isinstance(table, str) else table
    if snapshot is None:
        raise TableRefused(
            f"could not land in {table}",
            why="it is not a Delta table",
            do="check that nobody has moved or dropped it, then run again",
        )
    return snapshot


def _has(snapshot: Snapshot, request: CommitRequest) -> bool:
    return (snapshot.transaction_version(request.application) or 0) >= request.sequence


def _expected_version(snapshot: Snapshot, request: CommitRequest) -> int | None:
    """The version that the commit has to follow, if following any other would do harm."""
    if request.expected_version is not None:
        return request.expected_version
    return snapshot.version if request.removed else None


def _has_moved(latest: Snapshot, request: CommitRequest, error: RangelandError) -> bool:
    """Whether a conflict is with a commit made after the version that the request expects."""
    expected = request.expected_version
    return isinstance(error, Conflict) and expected not in (None, latest.version)


def _may_try_again(latest: Snapshot, snapshot: Snapshot, request: CommitRequest) -> bool:
    """Whether this landing can be tried again on the table that a conflicting commit has left. Of
    two first landings in a table, one sets the properties and the other tries again; the same goes
    for a schema that another commit has changed, if the files still fit it."""
    unset = _to_set(snapshot, request.properties)
    may_evolve = bool(request.schema_json) and not request.removed
    is_set = bool(unset) and not _to_set(latest, unset)
    is_evolved = may_evolve and latest.schema_json != snapshot.schema_json
    return is_set or is_evolved


def change_of(
    delta: DeltaKernel, snapshot: Snapshot, schema_json: str, files: Sequence[DataFile]
) -> SchemaChange:
    """The change that prepared files with this schema make to the table's. If the schema is empty,
    the table's schema stays as it is, but must contain the columns of the files."""
    if not schema_json:
        return SchemaChange(misfits=_lacked_columns(delta, snapshot, files))
    return _change_by_schema(snapshot, schema_json)


def _lacked_columns(
    delta: DeltaKernel, snapshot: Snapshot, files: Sequence[DataFile]
) -> list[Misfit]:
    """The columns that are in the files but no longer in the table: they were dropped, perhaps
    replaced by others of the same name, and would be null in these rows. This is possible only in
    tables that have, or once had, column mapping. The files themselves are read, since drivers that
    share a plan may have seen different columns."""
    if not files or snapshot.property(MODE_PROPERTY) is None:
        return []
    store, root = delta.storage(snapshot.path).open()
    with ThreadPoolExecutor(READERS) as pool:
        schemas = pool.map(lambda file: _schema_in(store, f"{root}/{file.path}"), files)
        distinct = dict.fromkeys(schema for schema in schemas if schema is not None)
    lacked = (lacked_field(snapshot.schema_json, schema) for schema in distinct)
    return [Misfit(f.name, str(f.type), str(f.type)) for f in lacked if f is not None]


def _schema_in(store: pafs.FileSystem, path: str) -> pa.Schema | None:
    """The schema of a Parquet file; None if the file is gone, which is detected under the table's
    lock."""
    try:
        with (
            as_own_errors(path),
            suppress(FileNotFoundError),
            store.open_input_file(path) as source,
        ):
            return pq.read_schema(source)
        return None
    except pa.ArrowInvalid as error:
        raise StorageFailed(
            f"could not read the prepared file {path}",
            why=str(error),
            do="find out what has changed it, then remove it and run again: it is read again",
        ) from error


def _change_by_schema(snapshot: Snapshot, schema_json: str) -> SchemaChange:
    table = snapshot.schema_json
    highest = int(snapshot.property(HIGHEST_ID_PROPERTY) or 0)
    change = evolve_schema(table, schema_json, are_written=True, highest_id=highest)
    if not change.misfits:
        return change
    metadata = snapshot.metadata  # takes dozens of calls to the JVM
    if not allows_widening(metadata):
        return change
    partitions = metadata.partition_columns
    return evolve_schema(table, schema_json, widens=True, keeping=partitions, highest_id=highest)


def check_same_table(delta: DeltaKernel, snapshot: Snapshot) -> None:
    """Raises Conflict if another table is now at that path: reading may take hours, and a commit to
    another table would break its log, or land rows that its ledger does not know about."""
    latest = delta.load(snapshot.path)
    if latest is None or latest.table_id != snapshot.table_id:
        raise Conflict(
            f"could not land in {snapshot.path}",
            why="the table was dropped, or dropped and created again, since this run began",
            do="find out who did it, then run again to see what to do",
        )


def _to_set(snapshot: Snapshot, properties: Mapping[str, str]) -> dict[str, str]:
    """The properties that the table does not have yet: a change of metadata makes concurrent
    writers fail, so it is made only once."""
    return {name: value for name, value in properties.items() if snapshot.property(name) != value}


def gone_files(table: StoreSettings, files: Sequence[DataFile | AddedFile]) -> tuple[str, ...]:
    """The paths, relative to the table, of files that are missing or whose size has changed."""
    return tuple(
        file.path
        for file, info in zip(files, _infos(table, files), strict=True)
        if info.type != pafs.FileType.File or info.size != file.size_bytes
    )


def missing_files(table: StoreSettings, files: Sequence[DataFile | AddedFile]) -> tuple[str, ...]:
    """The paths, relative to the table, of files that are not there at all."""
    return tuple(
        file.path
        for file, info in zip(files, _infos(table, files), strict=True)
        if info.type == pafs.FileType.NotFound
    )


def _infos(table: StoreSettings, files: Sequence[DataFile | AddedFile]) -> Sequence[pafs.FileInfo]:
    store, root = table.open()
    with as_own_errors(root):
        infos: Sequence[pafs.FileInfo] = store.get_file_info([f"{root}/{f.path}" for f in files])
    return infos
