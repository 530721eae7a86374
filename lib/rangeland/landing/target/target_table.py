"""The table that a job lands in: where it is, whether it exists, and which of its files are there.

It is created here if it does not exist, but never in a folder with other files. The ledger shows
what has landed in it: see ``job_history``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from rangeland.decode.columns import LogColumns
from rangeland.delta.ledger.events import OutcomeEvent
from rangeland.delta.stores.store_access import StoreSettings
from rangeland.delta.stores.store_kinds import StoreKind
from rangeland.delta.stores.store_probe import foreign_entries, try_store
from rangeland.delta.table_metadata import AddedFile, CommitMetadata, TableMetadata
from rangeland.delta.table_schema.schema_compatibility import new_table
from rangeland.delta.table_schema.schema_evolution import SchemaChange
from rangeland.delta.transaction_log import table_commit
from rangeland.delta.transaction_log.delta_kernel import DeltaKernel
from rangeland.delta.transaction_log.table_snapshot import Snapshot
from rangeland.errors import Bug, Conflict, TableRefused, UsageError
from rangeland.job import Job
from rangeland.landing.target.target_schema import TargetSchema
from rangeland.model import DataFile
from rangeland.planning.plan import PlanId
from rangeland.spark.catalog_names import literal, quote_name

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RETENTION_PROPERTY = "delta.setTransactionRetentionDuration"


class TargetTable:
    """The table as of the last snapshot."""

    def __init__(self, spark: SparkSession, job: Job) -> None:
        if job.sink.is_per_topic:
            raise UsageError(
                f"{job.sink.table} stands for one table for each topic of the job {job.name}",
                do="use a command that takes all of them, such as `rangeland run`, or "
                "`rangeland.run_jobs` in Python; or name one table, with --set sink.table=TABLE "
                "and --set source.topics=[TOPIC]",
            )
        self._spark = spark
        self._job = job
        self.delta = DeltaKernel(spark)
        self.name = job.sink.table
        self.snapshot: Snapshot | None = None
        """The table as it was last looked at; None if there is none yet."""
        self.path = self._locate()

    def _locate(self) -> str | None:
        """The table's URI; None for a catalog table that does not exist yet."""
        if not self._job.sink.is_catalog_name:
            return self.delta.resolve(self.name)
        name = quote_name(self.name)
        if not self._spark.catalog.tableExists(name):
            return None
        detail: Any = self._spark.sql(f"DESCRIBE DETAIL {name}").select("location").first()
        return str(detail.location)

    def refresh(self) -> None:
        """Loads a new snapshot of the table, and leaves the ledger as it was read."""
        self.snapshot = self.delta.load(self.path) if self.path else None

    def refresh_same_table(self) -> None:
        """Loads a new snapshot of the same table. Raises Conflict if another table is there now."""
        self.check_same_table()
        self.refresh()

    def check_same_table(self) -> None:
        """Raises Conflict if another table is there now than the one that was last looked at."""
        if self.snapshot is not None:
            table_commit.check_same_table(self.delta, self.snapshot)

    @property
    def schema(self) -> TargetSchema:
        """The table's schema as of the last snapshot, for rows of the job."""
        return TargetSchema(self._job, self.snapshot)

    @property
    def metadata(self) -> TableMetadata | None:
        """The table's metadata; None if there is no table yet."""
        return None if self.snapshot is None else self.snapshot.metadata

    @property
    def table_id(self) -> str | None:
        """Delta's own id of the table; None if there is no table yet."""
        return None if self.snapshot is None else self.snapshot.table_id

    @property
    def version(self) -> int | None:
        return None if self.snapshot is None else self.snapshot.version

    @property
    def log_columns(self) -> LogColumns:
        """The names of the log's own columns in this table."""
        return self._job.log_columns

    # --- warnings ----------------------------------------------------------------------

    def warnings(self) -> tuple[str, ...]:
        """Warnings about where the table is, and about its properties."""
        store = None if self.path is None else self.delta.store(self.path)
        concurrent = store.note if store and store.kind is not StoreKind.LOCAL else ""
        return (*filter(None, [concurrent]), *self.property_warnings())

    def property_warnings(self) -> tuple[str, ...]:
        """Warnings about table properties that will cause problems later."""
        retention = self.snapshot.property(RETENTION_PROPERTY) if self.snapshot else None
        if retention is None:
            return ()
        return (
            f"the table's property {RETENTION_PROPERTY} is {retention}: Delta then forgets what "
            "has landed, and runs have to search for it; unset it with ALTER TABLE ... UNSET "
            f"TBLPROPERTIES ('{RETENTION_PROPERTY}')",
        )

    def store_warning(self, *, replaces: bool) -> str:
        """The warning about a store that is safe for only one driver, until a log store is chosen.
        If the plan ``replaces`` rows, the warning about any store: Spark's own writer commits
        then."""
        store = None if self.path is None else self.delta.store(self.path)
        if store is None or store.kind is StoreKind.LOCAL:
            return ""
        undecided = store.kind is StoreKind.SINGLE_DRIVER and not store.log_store
        return store.note if undecided or replaces else ""

    # --- creating it ---------------------------------------------------------------------

    def check_folder_is_free(self) -> None:
        """Raises TableRefused, before anything is written, for a folder with other files."""
        if self.path is None:
            return
        if foreign := foreign_entries(self.delta.storage(self.path)):
            raise TableRefused(
                f"the folder {self.name} is not a Delta table and is not empty",
                why=f"it holds {', '.join(foreign[:3])}",
                do="name a new folder in sink.table, or make a Delta table of this one first",
            )

    def locate_or_create(self, row_schema: pa.Schema) -> str:
        """The table's URI, after creating a catalog table that does not exist yet."""
        if self.path is None:
            self._create_in_catalog(row_schema)
        if self.path is None:
            raise Bug(f"the table {self.name} was created and has no location")
        return self.path

    def open_or_create(self, path: str, row_schema: pa.Schema) -> None:
        """Creates the table, unless the last snapshot shows that it exists."""
        if self.snapshot is not None:
            return
        definition = new_table(row_schema, self._job.sink.partition_by)
        created = self.delta.create(path, definition.schema_json, definition.partition_columns)
        # If another driver created it, check that it fits before a plan is entered.
        TargetSchema(self._job, created).layout(row_schema)
        self.snapshot = created

    def wait_for_maintenance(self) -> tuple[str, ...]:
        """See ``DeltaKernel.wait_for_maintenance``."""
        return self.delta.wait_for_maintenance()

    def _create_in_catalog(self, row_schema: pa.Schema) -> None:
        from pyspark.sql.types import StructType

        definition = new_table(row_schema, self._job.sink.partition_by)
        schema = StructType.fromJson(json.loads(definition.schema_json))
        writer = (
            self._spark.createDataFrame([], schema).writeTo(quote_name(self.name)).using("delta")
        )
        if definition.partition_columns:
            writer = writer.partitionedBy(*[_column(name) for name in definition.partition_columns])
        try:
            writer.create()
        except Exception as error:
            if not self._spark.catalog.tableExists(quote_name(self.name)):
                raise Conflict(
                    f"the table {self.name} could not be created",
                    why=str(error)[:300],
                    do="check that the catalog has the schema and lets this user create tables "
                    "there, then run again",
                ) from error
        self.path = self._locate()

    def register(self, suffix: str, path: str) -> None:
        """Registers the ledger or quarantine of a catalog table under a separate name."""
        if self._job.sink.is_catalog_name:
            self._spark.sql(
                f"CREATE TABLE IF NOT EXISTS {quote_name(self.name, suffix)} "
                f"USING DELTA LOCATION {literal(path)}"
            )

    # --- its contents -----------------------------------------------------------------

    def transaction_version(self, application: str) -> int:
        """The last sequence of an application in the table's transactions, 0 for none."""
        if self.snapshot is None:
            return 0
        return self.snapshot.transaction_version(application) or 0

    def commits(self, since: int) -> Sequence[CommitMetadata]:
        """The commits from a version on that the table's log still has, the latest included."""
        return self.delta.commits(self.uri, since)

    def landing_commit(
        self, plan_id: PlanId, planned_at_version: int | None
    ) -> CommitMetadata | None:
        """See ``table_commit.landing_commit``. ``planned_at_version`` is a table version from
        before the landing; None if the table did not exist yet."""
        return table_commit.landing_commit(self.delta, self.uri, plan_id, planned_at_version or 0)

    def landed_at(self, plan_id: PlanId, planned_at_version: int | None) -> int | None:
        """See ``table_commit.landed_at``."""
        return table_commit.landed_at(self.delta, self.uri, plan_id, planned_at_version or 0)

    def has_files(self) -> bool:
        return self.snapshot is not None and next(self.snapshot.files(), None) is not None

    def has_one_of(self, files: Iterable[DataFile]) -> bool:
        """Whether the table has at least one of these files."""
        paths = {file.path for file in files}
        if not paths or self.snapshot is None:
            return False
        return any(file.path in paths for file in self.snapshot.files())

    def gone_files(self) -> list[AddedFile]:
        """The files that the table names and its store no longer has. Files that a shallow clone
        shares with another table are not checked."""
        if self.snapshot is None:
            return []
        own = [f for f in self.snapshot.files() if ":/" not in f.path]
        paths = set(table_commit.gone_files(self.storage(), own))
        return [f for f in own if f.path in paths]

    def change_by(self, schema_json: str) -> SchemaChange:
        """The change that files with this schema, which may be empty, make to the table's current
        schema."""
        snapshot = self.delta.load(self.uri) if schema_json else None
        return SchemaChange() if snapshot is None else table_commit.change_of(snapshot, schema_json)

    def storage(self) -> StoreSettings:
        """The settings for access to the table's files."""
        return self.delta.storage(self.uri)

    def try_store(self) -> None:
        """Writes and removes a small file in each of the table's folders, to check that a run could
        write there. Skips a catalog table that does not exist yet."""
        if self.path is not None:
            try_store(self.delta.storage(self.path))

    def gone_prepared_files(self, outcome: OutcomeEvent) -> tuple[str, ...]:
        """The paths of prepared files that are gone."""
        return table_commit.gone_files(self.storage(), outcome.data_files)

    @property
    def uri(self) -> str:
        """The URI of a table that exists. Raises Bug where there is none."""
        if self.path is None:
            raise Bug(f"an outcome is about to land in {self.name}, which does not exist")
        return self.path


def _column(name: str) -> Any:
    from pyspark.sql.functions import col

    return col(name)
