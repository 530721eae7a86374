"""Loads and creates Delta tables, and commits to them, through Delta Kernel.

Delta for Spark commits only replacements of rows (``spark/replace_where``), and creates the tables
of catalogs.

This runs in the driver and calls Delta Kernel over py4j; ``delta_kernel_loader`` loads it. Nothing
here decides about rows, ranges or plans.

A py4j call costs 0.1 to 1 ms, so nothing is sent or fetched object by object: file actions go in as
one text of JSON lines, which Delta Kernel's own handler parses, and lists of files come out as
Parquet files, which its own handler writes and pyarrow reads. Commits are made under the lock of
``local_table_lock``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from rangeland.clock import wall_ms
from rangeland.delta.java_bridge import java_errors
from rangeland.delta.java_bridge.delta_kernel_loader import load_delta_kernel
from rangeland.delta.java_bridge.hadoop_configuration import HadoopConf
from rangeland.delta.java_bridge.java_errors import translate_java_errors
from rangeland.delta.java_bridge.java_folder import folder_for_java
from rangeland.delta.stores.local_table_lock import lock_table
from rangeland.delta.stores.store_access import StoreSettings
from rangeland.delta.stores.store_kinds import StoreCapabilities
from rangeland.delta.table_metadata import AddedFile, CommitMetadata, TableMetadata
from rangeland.delta.table_schema.column_mapping import HIGHEST_ID_PROPERTY, highest_id
from rangeland.delta.table_schema.table_constraints import constraints_of
from rangeland.delta.transaction_log.log_actions import (
    add_lines,
    added_file,
    remove_lines,
    transaction_lines,
)
from rangeland.delta.transaction_log.log_maintenance import LogMaintenance
from rangeland.delta.transaction_log.table_history import read_commits
from rangeland.delta.transaction_log.table_snapshot import (
    AlreadyCommitted,
    CommitRequest,
    Committed,
    NotReady,
    Snapshot,
)
from rangeland.errors import Conflict, RangelandError, StorageFailed, TableRefused
from rangeland.jvm.spark_jvm import elements_of, jvm_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ENGINE = "rangeland"
CHANGE_FEED_PROPERTY = "delta.enableChangeDataFeed"
logger = logging.getLogger(__name__)


def _always() -> bool:
    return True


class DeltaKernel:
    """Delta Kernel in the JVM of a Spark session. ``engine_info`` names the writer in every
    commit."""

    def __init__(self, spark: SparkSession, engine_info: str = ENGINE) -> None:
        self._engine_info = engine_info
        self._maintenance = LogMaintenance()
        with translate_java_errors("could not start Delta Kernel"):
            jvm = jvm_of(spark)
            self._gateway = jvm.gateway
            self._jvm = jvm.classes
            self._facade = load_delta_kernel(jvm)
            self._conf = HadoopConf(jvm, self._facade)
            self.engine = self._facade.engine(self._conf.java)
            self._write = self._facade.write()

    # --- reading ------------------------------------------------------------------------

    def resolve(self, path: str) -> str:
        """The full URI of a path, resolved by Spark's default file system."""
        with translate_java_errors(f"could not resolve {path}"):
            return str(self._facade.resolvePath(self.engine, path))

    def store(self, path: str) -> StoreCapabilities:
        """The guarantees that the table's store gives to concurrent drivers; see
        ``store_kinds``."""
        uri = self.resolve(path)
        with translate_java_errors(f"could not read the configuration for {path}"):
            return self._conf.store(uri)

    def storage(self, path: str) -> StoreSettings:
        """The settings to reach the store of a path as this session's Hadoop does; see
        ``store_access``."""
        uri = self.resolve(path)
        with translate_java_errors(f"could not read the configuration for {path}"):
            return self._conf.storage(uri)

    def load(self, path: str) -> Snapshot | None:
        """The newest version of the table; None if there is no table."""
        try:
            with translate_java_errors(f"could not read the Delta log of {path}"):
                return self._load(path, blind=True)
        except java_errors.NoTable:
            return None

    def _load(self, path: str, *, blind: bool) -> Snapshot:
        """The newest version of the table. Raises NoTable if there is none. ``blind``: commits on
        this snapshot are marked as blind appends."""
        java = self._facade.snapshot(self.engine, path, blind)
        if java is None:
            raise java_errors.NoTable
        return Snapshot(str(java.getPath()), int(java.getVersion()), self, java)

    def metadata_of(self, java: Any) -> TableMetadata:
        """See ``Snapshot.metadata``."""
        metadata = java.getMetadata()
        protocol = java.getProtocol()
        features = elements_of(protocol.getImplicitlyAndExplicitlySupportedFeatures())
        configuration = elements_of(metadata.getConfiguration().entrySet())
        return TableMetadata(
            path=str(java.getPath()),
            version=int(java.getVersion()),
            schema_json=str(metadata.getSchemaString()),
            partition_columns=tuple(map(str, elements_of(java.getPartitionColumnNames()))),
            configuration={entry.getKey(): entry.getValue() for entry in configuration},
            features=frozenset(feature.featureName() for feature in features),
            table_id=str(metadata.getId()),
        )

    def files_of(self, snapshot: Snapshot) -> Iterator[AddedFile]:
        """See ``Snapshot.files``."""
        with folder_for_java("rangeland-files-") as folder:
            with translate_java_errors(f"could not list the files of {snapshot.path}"):
                self._facade.writeFiles(self.engine, snapshot._java, f"file://{folder}")
            for path in sorted(Path(folder).glob("*.parquet")):
                with pq.ParquetFile(path) as parquet:
                    for batch in parquet.iter_batches(columns=["add"]):
                        yield from map(added_file, batch.column(0).to_pylist())

    def commits(self, path: str, since: int = 0) -> list[CommitMetadata]:
        """The entries of the log from version ``since`` on, oldest first, except those that
        retention has removed from the log."""
        what = f"could not read the history of {path}"
        try:
            with translate_java_errors(what):
                return self._commits(path, since)
        except java_errors.NoTable:
            raise _no_table_error(what) from None

    def _commits(self, path: str, since: int) -> list[CommitMetadata]:
        return read_commits(self._facade, self.engine, path, since)

    # --- writing ------------------------------------------------------------------------

    def create(
        self,
        path: str,
        schema_json: str,
        partition_columns: Sequence[str] = (),
        configuration: Mapping[str, str] | None = None,
    ) -> Snapshot:
        """A new, empty table, or the existing one if another writer came first: then
        ``schema_compatibility`` decides whether rows fit it."""
        uri = self.resolve(path)
        snapshot = None
        try:
            with lock_table(uri), translate_java_errors(f"could not create the table {path}"):
                snapshot = self._create(uri, schema_json, partition_columns, configuration or {})
            logger.info("Created a table", extra={"table": uri})
        except java_errors.TableExists:
            pass
        except Conflict:  # a race on a store without our lock: the other writer's table will do
            snapshot = self.load(uri)
            if snapshot is None:
                raise
        snapshot = snapshot or self.load(uri)
        if snapshot is None:
            raise StorageFailed(
                f"could not create the table {path}",
                why="its log cannot be found afterwards",
                do="check that nothing else removes that folder, then run again",
            )
        return snapshot

    def _create(
        self, uri: str, schema: str, partition_columns: Sequence[str], conf: Mapping[str, str]
    ) -> Snapshot | None:
        builder = self._facade.newTable(uri, schema, self._engine_info)
        builder = builder.withTableProperties(self._java_map(conf))
        if partition_columns:
            columns = self._jvm.java.util.ArrayList()
            for name in partition_columns:
                columns.add(name)
            builder = builder.withDataLayoutSpec(self._facade.partitionedBy(columns))
        transaction = builder.build(self.engine)
        result = transaction.commit(self.engine, self._facade.noActions())
        self._maintenance.start(uri, lambda: self._run_hooks(uri, result))
        return self._left_by(result)

    def _java_map(self, values: Mapping[str, str]) -> Any:
        java_map = self._jvm.java.util.HashMap()
        for key, value in values.items():
            java_map.put(key, value)
        return java_map

    def commit(
        self, table: str | Snapshot, request: CommitRequest, is_ready: Callable[[], bool] = _always
    ) -> Committed | AlreadyCommitted | NotReady:
        """Makes one commit, unless the table already has its transaction. ``is_ready`` is called
        first, while the table is locked, so no writer that honours the lock can commit in between.
        Passing a Snapshot, which may be old, saves loading one."""
        snapshot = self._snapshot_of(table)
        where = snapshot.path
        application = request.application
        sequence = request.sequence
        _check_version_is_expected(snapshot, request)
        newest = snapshot.transaction_version(application)
        fields = {"table": where, "application": application, "sequence": sequence}
        if newest is not None and newest >= sequence:
            logger.info("Found that this transaction had been committed before", extra=fields)
            return AlreadyCommitted(snapshot.version, newest)
        actions = _actions(snapshot, request)
        try:
            with lock_table(where):
                if not is_ready():
                    return NotReady()
                with translate_java_errors(f"could not commit to {where}"):
                    if request.removed:  # only a commit that removes nothing is a blind append
                        snapshot = self._load(where, blind=False)
                        _check_version_is_expected(snapshot, request)
                    done = self._commit(snapshot, request, actions)
            counts = {"files": len(request.files), "removed": len(request.removed)}
            logger.info(
                "Committed a transaction", extra=fields | counts | {"version": done.version}
            )
            return done
        except java_errors.StaleTransaction:
            logger.info("Found this transaction committed by another driver", extra=fields)
            latest = self._snapshot_of(where)
            committed = latest.transaction_version(application)
            return AlreadyCommitted(latest.version, sequence if committed is None else committed)

    def _snapshot_of(self, table: str | Snapshot) -> Snapshot:
        if isinstance(table, Snapshot):
            return table
        snapshot = self.load(table)
        if snapshot is None:
            raise _no_table_error(f"could not commit to {table}")
        return snapshot

    def _commit(self, snapshot: Snapshot, request: CommitRequest, text: str) -> Committed:
        """Commits through Delta Kernel and starts the maintenance. ``text`` contains the lines of
        all actions except those of the transaction itself."""
        if not snapshot.is_own:
            # The maintenance that a commit needs depends on what the previous commit's has done.
            self._maintenance.wait_for(snapshot.path)
        checked = tuple(request.checked)
        if checked and constraints_of(snapshot.metadata) == checked:
            java = self._facade.transactionOfCheckedRows(
                self.engine,
                snapshot._java,
                self._engine_info,
                request.application,
                request.sequence,
                self._java_map(request.properties),
                request.expected_version is None,
            )
        else:
            builder = snapshot._java.buildUpdateTableTransaction(self._engine_info, self._write)
            builder = builder.withTransactionId(request.application, request.sequence)
            if request.properties:
                properties = self._java_map(request.properties)
                builder = builder.withTablePropertiesAdded(properties)
            if request.expected_version is not None:
                builder = builder.withMaxRetries(0)
            java = builder.build(self.engine)
        if request.schema_json:
            numbered = highest_id(request.schema_json)
            follow = {HIGHEST_ID_PROPERTY: str(numbered)} if numbered else {}
            new = self._facade.schema(request.schema_json)
            _set_schema(self._gateway, java, new, self._java_map(follow))
        actions = self._facade.actions(self.engine, text) if text else self._facade.noActions()
        result = java.commit(self.engine, actions)
        self._maintenance.start(snapshot.path, lambda: self._run_hooks(snapshot.path, result))
        return Committed(int(result.getVersion()), self._left_by(result))

    def _left_by(self, result: Any) -> Snapshot | None:
        """The version that a commit has made, without loading it."""
        snapshot = result.getPostCommitSnapshot()
        if not snapshot.isPresent():
            return None
        java = snapshot.get()
        return Snapshot(str(java.getPath()), int(java.getVersion()), self, java, True)

    def wait_for_maintenance(self) -> tuple[str, ...]:
        """Waits for the maintenance after all commits so far; returns a warning for each that
        failed."""
        return self._maintenance.wait_for_maintenance()

    def _run_hooks(self, table: str, result: Any) -> list[str]:
        warnings: list[str] = []
        for hook in elements_of(result.getPostCommitHooks()):
            kind = str(hook.getType().toString())
            try:
                with translate_java_errors(
                    f"could not do the maintenance of {table} after a commit ({kind})"
                ):
                    hook.threadSafeInvoke(self.engine)
            except (RangelandError, java_errors.NoTable, java_errors.StaleTransaction) as error:
                warnings.append(str(error))
        return warnings


def _set_schema(gateway: Any, transaction: Any, schema: Any, properties: Any) -> None:
    """Gives a new transaction another schema, a StructType of Delta Kernel, and the properties that
    follow from it, a Java map.

    Delta Kernel itself changes the schema only of tables with column mapping, which older readers
    cannot read. Delta's protocol allows it for all tables: added columns are null in files that
    lack them. So the method by which a transaction takes on changed metadata is called by
    reflection; from then on the commit, the detection of conflicts, the checksum and the resulting
    snapshot all use that metadata.
    """
    jvm = gateway.jvm
    kind = transaction.getClass()
    current = kind.getDeclaredField("metadata")
    current.setAccessible(True)
    metadata = current.get(transaction)
    signature = gateway.new_array(jvm.java.lang.Class, 1)
    signature[0] = metadata.getClass()
    update = kind.getDeclaredMethod("updateMetadata", signature)
    update.setAccessible(True)
    arguments = gateway.new_array(jvm.java.lang.Object, 1)
    arguments[0] = metadata.withNewSchema(schema).withMergedConfiguration(properties)
    update.invoke(transaction, arguments)


def _no_table_error(what: str) -> TableRefused:
    return TableRefused(
        what, why="there is no Delta table", do="check that nobody has moved or dropped it"
    )


def _actions(snapshot: Snapshot, request: CommitRequest) -> str:
    """The lines of a commit that adds and removes these files, apart from its own transaction."""
    now_ms = wall_ms()
    is_change = not request.moves_rows
    added = add_lines(request.files, is_change=is_change)
    # In a table with a change data feed, Delta Kernel refuses to add and remove rows in one commit.
    if request.removed and snapshot.property(CHANGE_FEED_PROPERTY) == "true":
        is_change = False
    removed = remove_lines(request.removed, now_ms, is_change=is_change)
    return "\n".join(
        filter(None, [added, removed, transaction_lines(request.more_transactions, now_ms)])
    )


def _check_version_is_expected(snapshot: Snapshot, request: CommitRequest) -> None:
    expected = request.expected_version
    if expected not in (None, snapshot.version):
        raise Conflict(
            f"could not commit to {snapshot.path}",
            why=f"the table is no longer at version {expected}",
            do="look at its history, then run again",
            expected_version=expected,
        )
