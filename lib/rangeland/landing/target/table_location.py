"""The location of the table that a job lands in: how the table is found, reached and created.

The table is created if it does not exist, but never in a folder with other files. ``target_table``
has its state.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from rangeland.delta.stores.store_access import StoreSettings
from rangeland.delta.stores.store_kinds import StoreCapabilities
from rangeland.delta.stores.store_probe import foreign_entries, try_store
from rangeland.delta.table_schema.schema_compatibility import new_table
from rangeland.delta.transaction_log.delta_kernel import DeltaKernel
from rangeland.delta.transaction_log.table_snapshot import Snapshot
from rangeland.errors import Bug, Conflict, TableRefused, UsageError
from rangeland.job import Job
from rangeland.spark.catalog_names import literal, quote_name
from rangeland.spark.spark_errors import catalog_error

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class TableLocation:
    """The location of a table that may not exist yet. ``path`` is its URI; None for a catalog table
    that does not exist yet. The table is accessed through ``delta``."""

    def __init__(self, spark: SparkSession, job: Job) -> None:
        if job.sink.is_per_topic:
            pattern = " and --set source.topic_pattern=" if job.source.topic_pattern else ""
            raise UsageError(
                f"{job.sink.table} stands for a separate table for each topic of the job "
                f"{job.name}",
                do="use a command that takes all of them, such as `rangeland run`, or "
                "`rangeland.run_jobs` in Python; or name one table, with --set sink.table=TABLE, "
                f"--set source.topics=[TOPIC]{pattern}",
            )
        self._spark = spark
        self._sink = job.sink
        self.delta = DeltaKernel(spark)
        self.name = job.sink.table
        self.path = self._locate()

    def _locate(self) -> str | None:
        if not self._sink.is_catalog_name:
            return self.delta.resolve(self.name)
        if not self._is_in_catalog():
            return None
        name = quote_name(self.name)
        detail: Any = self._spark.sql(f"DESCRIBE DETAIL {name}").select("location").first()
        return str(detail.location)

    def _is_in_catalog(self) -> bool:
        try:
            return bool(self._spark.catalog.tableExists(quote_name(self.name)))
        except Exception as error:  # Spark raises many classes of Python and Java errors here
            what = f"could not look for the table {self.name}"
            raise catalog_error(what, error) from error

    @property
    def uri(self) -> str:
        """The URI of a table that exists. Raises Bug if it does not."""
        if self.path is None:
            raise Bug(f"an outcome is about to land in {self.name}, which does not exist")
        return self.path

    def storage(self) -> StoreSettings:
        """The settings for access to the table's files."""
        return self.delta.storage(self.uri)

    def store(self) -> StoreCapabilities | None:
        """The guarantees of the table's store; None for a catalog table that does not exist yet."""
        return None if self.path is None else self.delta.store(self.path)

    def load(self) -> Snapshot | None:
        """The newest version of the table; None if there is no table."""
        return None if self.path is None else self.delta.load(self.path)

    def try_store(self) -> None:
        """Writes and removes a small file in each of the table's folders, to check that a run could
        write there. Skips a catalog table that does not exist yet."""
        if self.path is not None:
            try_store(self.delta.storage(self.path))

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

    def create(self, path: str, row_schema: pa.Schema) -> Snapshot:
        """Creates a table for these rows, or returns one that another driver has just created,
        which they may not fit."""
        definition = new_table(row_schema, self._sink.partition_by)
        return self.delta.create(path, definition.schema_json, definition.partition_columns)

    def _create_in_catalog(self, row_schema: pa.Schema) -> None:
        from pyspark.sql.functions import col
        from pyspark.sql.types import StructType

        definition = new_table(row_schema, self._sink.partition_by)
        schema = StructType.fromJson(json.loads(definition.schema_json))
        writer = (
            self._spark.createDataFrame([], schema).writeTo(quote_name(self.name)).using("delta")
        )
        if definition.partition_columns:
            writer = writer.partitionedBy(*map(col, definition.partition_columns))
        try:
            writer.create()
        except Exception as error:
            if not self._is_in_catalog():
                raise Conflict(
                    f"the table {self.name} could not be created",
                    why=str(error)[:300],
                    do="check that the catalog has the schema and lets this user create tables "
                    "there, then run again",
                ) from error
        self.path = self._locate()

    def register(self, suffix: str, path: str) -> None:
        """Registers the ledger or quarantine of a catalog table under a separate name."""
        if self._sink.is_catalog_name:
            self._spark.sql(
                f"CREATE TABLE IF NOT EXISTS {quote_name(self.name, suffix)} "
                f"USING DELTA LOCATION {literal(path)}"
            )
