"""A model of Delta Kernel: the log of each table in memory.

``SimulatedKernel`` is the product's ``DeltaKernel`` with the calls to Java replaced; what that
class itself decides stays the product's own. Commits are blind appends as Kernel makes them: a
commit on an older version succeeds, unless one of those in between changed the table's metadata or
has the same transaction or a later one of the same application.

In one way it differs from Kernel: a version that was loaded knows its files and transactions, also
once its log is gone. Kernel reads them from the log that is at the path when it is asked.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from rangeland.delta.java_bridge import java_errors
from rangeland.delta.stores.store_access import StoreSettings
from rangeland.delta.stores.store_kinds import StoreCapabilities, StoreKind
from rangeland.delta.stores.table_path import TablePath
from rangeland.delta.table_metadata import (
    AddedFile,
    CommitMetadata,
    TableMetadata,
)
from rangeland.delta.transaction_log.delta_kernel import DeltaKernel
from rangeland.delta.transaction_log.log_actions import added_file
from rangeland.delta.transaction_log.table_snapshot import CommitRequest, Committed, Snapshot
from rangeland.errors import Conflict, StorageFailed
from tests.simulation.world import Violation, World


@dataclass(frozen=True)
class Version:
    """A table at one version."""

    number: int
    table_id: str
    schema_json: str
    partition_columns: tuple[str, ...]
    configuration: Mapping[str, str]
    files: Mapping[str, AddedFile] = field(default_factory=dict)
    transactions: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Commit:
    """``changes``: it changed the table's metadata."""

    metadata: CommitMetadata
    changes: bool = False
    removed: frozenset[str] = frozenset()


class DeltaLog:
    """The log of one table."""

    def __init__(self, first: Version, time_ms: int) -> None:
        self.versions = [first]
        self.commits = [Commit(CommitMetadata(0, time_ms, "CREATE TABLE", {}), True)]

    @property
    def newest(self) -> Version:
        return self.versions[-1]

    @property
    def landed(self) -> dict[str, int]:
        """The last sequence of each application, whether or not a checkpoint has dropped it."""
        return {
            application: sequence
            for commit in self.commits
            for application, sequence in commit.metadata.transactions.items()
        }

    def append(self, version: Version, commit: Commit) -> None:
        self.versions.append(version)
        self.commits.append(commit)

    def forget_transactions(self) -> None:
        """A checkpoint drops transactions that are older than the table's property allows."""
        self.versions[-1] = replace(self.newest, transactions={})


class Tables:
    """All tables, by the key of their path."""

    def __init__(self, world: World, *, needs_lock: bool = False) -> None:
        self.world = world
        self.logs: dict[str, DeltaLog] = {}
        self.needs_lock = needs_lock
        """Of two commits at the same time both may believe that they won."""
        self._locked: set[str] = set()
        self.excused: set[str] = set()
        """Landed files that something else has taken out of the table."""

    def newest(self, key: str) -> Version | None:
        return self.logs[key].newest if key in self.logs else None

    def landed(self, key: str) -> dict[str, int]:
        return self.logs[key].landed if key in self.logs else {}

    def is_locked(self, key: str) -> bool:
        return key in self._locked

    @contextmanager
    def locked(self, key: str) -> Iterator[None]:
        """The operating system releases the lock of a process that dies."""
        while key in self._locked:
            self.world.wait_for_lock()
        self._locked.add(key)
        try:
            yield
        finally:
            self._locked.discard(key)
            self.world.lock_released()

    def change(
        self,
        key: str,
        *,
        removed: Collection[str],
        added: Sequence[AddedFile],
        made: CommitMetadata,
        like: Version | None = None,
    ) -> None:
        """A commit of Spark's, after which the table has the schema and properties of ``like``.
        ``excused`` and ``foreign`` remember what the ledger does not."""
        log = self.logs[key]
        now, gone = log.newest, frozenset(removed)
        files = {path: file for path, file in now.files.items() if path not in gone}
        transactions = {**now.transactions, **made.transactions}
        files |= {file.path: file for file in added}
        self.excused |= gone
        self.excused -= {file.path for file in added}
        is_changed = like is not None  # RESTORE writes metadata and protocol, even the same ones
        like = like or now
        version = replace(
            now,
            number=now.number + 1,
            files=files,
            transactions=transactions,
            schema_json=like.schema_json,
            configuration=like.configuration,
        )
        log.append(version, Commit(made, is_changed, gone))

    def restore(self, key: str, number: int) -> None:
        """Spark's RESTORE to a version: rows, schema and properties go back, transactions stay."""
        log = self.logs[key]
        then, now = log.versions[number], log.newest
        gone = [path for path in now.files if path not in then.files]
        back = [file for path, file in then.files.items() if path not in now.files]
        parameters = {"version": str(number)}
        made = CommitMetadata(
            now.number + 1, self.world.clock_ms(), "RESTORE", {}, number, parameters
        )
        self.change(key, removed=gone, added=back, made=made, like=then)


@dataclass(frozen=True)
class _Optional:
    value: int | None

    def isPresent(self) -> bool:
        return self.value is not None

    def get(self) -> int | None:
        return self.value


@dataclass(frozen=True)
class JavaSnapshot:
    """The calls that ``Snapshot`` makes to Java."""

    version: Version

    def getMetadata(self) -> JavaSnapshot:
        return self

    def getId(self) -> str:
        return self.version.table_id

    def getSchemaString(self) -> str:
        return self.version.schema_json

    def getConfiguration(self) -> Mapping[str, str]:
        return self.version.configuration

    def getLatestTransactionVersion(self, engine: object, application: str) -> _Optional:
        return _Optional(self.version.transactions.get(application))


class _NoMaintenance:
    def wait_for(self, path: str) -> None: ...

    def wait_for_maintenance(self) -> tuple[str, ...]:
        return ()


class SimulatedKernel(DeltaKernel):
    """See the module docstring."""

    def __init__(self, spark: Any, engine_info: str = "rangeland") -> None:
        self._world: World = spark.world
        self._tables: Tables = spark.tables
        self._maintenance = _NoMaintenance()  # type: ignore[assignment]
        self.engine = None

    def resolve(self, path: str) -> str:
        return str(TablePath.parse(path))

    def store(self, path: str) -> StoreCapabilities:
        return StoreCapabilities(StoreKind.PUT_IF_ABSENT, "")

    def storage(self, path: str) -> StoreSettings:
        return StoreSettings(self.resolve(path))

    def _refused(self, tag: str, what: str) -> str | None:
        found = self._world.point(tag)
        if found == "refused":
            raise StorageFailed(what, why="the store refuses")
        return found

    def _load(self, path: str, *, blind: bool) -> Snapshot:
        self._refused("delta.load", f"could not read the Delta log of {path}")
        newest = self._tables.newest(TablePath.parse(path).key)
        if newest is None:
            raise java_errors.NoTable("there is no Delta log")
        return self._snapshot(path, newest)

    def _snapshot(self, path: str, version: Version, *, is_own: bool = False) -> Snapshot:
        return Snapshot(path, version.number, self, JavaSnapshot(version), is_own)

    def metadata_of(self, java: JavaSnapshot) -> TableMetadata:
        version = java.version
        return TableMetadata(
            path="",
            version=version.number,
            schema_json=version.schema_json,
            partition_columns=version.partition_columns,
            configuration=version.configuration,
        )

    def files_of(self, snapshot: Snapshot) -> Iterator[AddedFile]:
        self._refused("delta.files", f"could not list the files of {snapshot.path}")
        yield from snapshot._java.version.files.values()

    def _commits(self, path: str, since: int) -> list[CommitMetadata]:
        self._refused("delta.history", f"could not read the history of {path}")
        log = self._tables.logs.get(TablePath.parse(path).key)
        if log is None:
            raise java_errors.NoTable("there is no Delta log")
        return [c.metadata for c in log.commits if c.metadata.version >= since]

    # --- writing ------------------------------------------------------------------------

    def _create(
        self, uri: str, schema: str, partition_columns: Sequence[str], conf: Mapping[str, str]
    ) -> Snapshot | None:
        found = self._refused("delta.create", f"could not create the table {uri}")
        key = TablePath.parse(uri).key
        if key in self._tables.logs:
            raise java_errors.TableExists("there is a Delta log already")
        version = Version(0, str(self._world.new_id()), schema, tuple(partition_columns), conf)
        self._tables.logs[key] = DeltaLog(version, self._world.clock_ms())
        self._world.log(f"created {key}")
        if found == "lost":
            raise StorageFailed(f"could not create the table {uri}", why="the response was lost")
        return self._snapshot(uri, version, is_own=True)

    def _commit(self, snapshot: Snapshot, request: CommitRequest, text: str) -> Committed:
        found = self._refused("delta.commit", f"could not commit to {snapshot.path}")
        key = TablePath.parse(snapshot.path).key
        log = self._tables.logs.get(key)
        is_other = log is not None and log.newest.table_id != snapshot.table_id
        if is_other and "/_rangeland/" not in key:  # Kernel would write a version that has no past
            raise Violation("displaced", f"a commit to {key} breaks the log of another table")
        if log is None or is_other:
            raise StorageFailed(f"could not commit to {snapshot.path}", why="its log is gone")
        if self._tables.needs_lock:
            self._take_time(key, log)
        self._check(log, snapshot, request)
        actions = [json.loads(line) for line in text.splitlines() if line]
        adds = [added_file({"deletionVector": None, **a["add"]}) for a in actions if "add" in a]
        gone = frozenset(a["remove"]["path"] for a in actions if "remove" in a)
        self._check_removed(log, snapshot, gone)
        application = request.application
        sequence = request.sequence
        txns = [action["txn"] for action in actions if "txn" in action]
        made_here = {t["appId"]: t["version"] for t in txns} | {application: sequence}
        now = log.newest
        files = {path: file for path, file in now.files.items() if path not in gone}
        version = replace(
            now,
            number=now.number + 1,
            configuration={**now.configuration, **request.properties},
            schema_json=request.schema_json or now.schema_json,
            files=files | {file.path: file for file in adds},
            transactions={**now.transactions, **made_here},
        )
        made = CommitMetadata(version.number, self._world.clock_ms(), "WRITE", made_here)
        # Kernel writes no metadata for properties that are set already, as far as it has loaded.
        is_set = request.properties.items() <= snapshot._java.version.configuration.items()
        log.append(version, Commit(made, bool(request.schema_json) or not is_set, gone))
        self._world.log(f"committed {application} {sequence} to {key}: {len(adds)} files")
        if found == "lost":
            raise StorageFailed(f"could not commit to {snapshot.path}", why="the response was lost")
        if found == "lost-then-tried-again":  # it finds its own commit at the second try
            self._check(log, snapshot, request)
        last = version.number == snapshot.version + 1
        own = self._snapshot(snapshot.path, version, is_own=True) if last else None
        return Committed(version.number, own)

    def _take_time(self, key: str, log: DeltaLog) -> None:
        """Another of our writers must not commit while this one does. Spark's own writers may:
        they look at the log again."""
        seen = log.newest.number
        self._world.point("delta.write")
        if any(c.metadata.transactions for c in log.commits if c.metadata.version > seen):
            raise Violation("lock", f"two writers have made version {seen + 1} of {key}")

    def _check(self, log: DeltaLog, snapshot: Snapshot, request: CommitRequest) -> None:
        """What Kernel checks of the snapshot, and then of each commit since, oldest first."""
        since = [c for c in log.commits if c.metadata.version > snapshot.version]
        if since and request.expected_version is not None:
            raise Conflict(f"could not commit to {snapshot.path}", why="the table has moved on")
        application, sequence = request.application, request.sequence
        known = snapshot.transaction_version(application)
        if known is not None and known >= sequence:
            raise java_errors.StaleTransaction(f"{application} {sequence}")
        for commit in since:
            if commit.changes:
                raise Conflict(
                    f"could not commit to {snapshot.path}", why="the metadata was changed"
                )
            if commit.metadata.transactions.get(application, -1) >= sequence:
                raise java_errors.StaleTransaction(f"{application} {sequence}")

    def _check_removed(self, log: DeltaLog, snapshot: Snapshot, gone: frozenset[str]) -> None:
        since = [c for c in log.commits if c.metadata.version > snapshot.version]
        if any(gone & commit.removed for commit in since):
            raise Conflict(
                f"could not commit to {snapshot.path}", why="the same files were removed"
            )
