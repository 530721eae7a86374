"""The table that a job lands in, as of its last snapshot: its state, and which of its files exist.
``table_location`` says where it is, and creates it.

The ledger shows what has landed in it: see ``job_history``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from rangeland.decode.columns import LogColumns
from rangeland.delta.table_metadata import AddedFile
from rangeland.delta.table_schema.schema_evolution import SchemaChange
from rangeland.delta.transaction_log import table_commit
from rangeland.delta.transaction_log.table_snapshot import Snapshot
from rangeland.job import Job
from rangeland.landing.target.table_location import TableLocation
from rangeland.landing.target.target_schema import TargetSchema
from rangeland.model import DataFile


class TargetTable:
    """The table as of the last snapshot."""

    def __init__(self, location: TableLocation, job: Job) -> None:
        self._job = job
        self.location = location
        self.name = location.name
        self.snapshot: Snapshot | None = None
        """The last snapshot of the table; None if there is no table yet."""

    def refresh(self) -> None:
        """Loads a new snapshot of the table, without reading the ledger again."""
        self.snapshot = self.location.load()

    def refresh_same_table(self) -> None:
        """Loads a new snapshot of the same table. Raises Conflict if another table is there now."""
        self.check_same_table()
        self.refresh()

    def check_same_table(self) -> None:
        """Raises Conflict if there is now a different table than in the last snapshot."""
        if self.snapshot is not None:
            table_commit.check_same_table(self.location.delta, self.snapshot)

    @property
    def schema(self) -> TargetSchema:
        """The table's schema as of the last snapshot, for rows of the job."""
        return TargetSchema(self._job, self.snapshot)

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

    def open_or_create(self, path: str, row_schema: pa.Schema) -> None:
        """Creates the table, unless the last snapshot shows that it exists."""
        if self.snapshot is not None:
            return
        created = self.location.create(path, row_schema)
        # If another driver created it, check that it fits before a plan is entered.
        TargetSchema(self._job, created).layout(row_schema)
        self.snapshot = created

    # --- its contents -----------------------------------------------------------------

    def transaction_version(self, application: str) -> int:
        """The last sequence of an application in the table's transactions, 0 for none."""
        if self.snapshot is None:
            return 0
        return self.snapshot.transaction_version(application) or 0

    def has_files(self) -> bool:
        return self.snapshot is not None and next(self.snapshot.files(), None) is not None

    def has_one_of(self, files: Iterable[DataFile]) -> bool:
        """Whether the table has at least one of these files."""
        paths = {file.path for file in files}
        if not paths or self.snapshot is None:
            return False
        return any(file.path in paths for file in self.snapshot.files())

    def gone_files(self) -> list[AddedFile]:
        """The files that the table names but its store no longer has. Files that a shallow clone
        shares with another table are not checked."""
        if self.snapshot is None:
            return []
        own = [f for f in self.snapshot.files() if ":/" not in f.path]
        paths = set(table_commit.gone_files(self.location.storage(), own))
        return [f for f in own if f.path in paths]

    def change_by(self, schema_json: str, files: Sequence[DataFile] = ()) -> SchemaChange:
        """The change that files with this schema, which may be empty, make to the table's current
        schema. ``files``: the files that are checked for fitting the table."""
        location = self.location
        snapshot = location.delta.load(location.uri) if schema_json or files else None
        if snapshot is None:
            return SchemaChange()
        return table_commit.change_of(location.delta, snapshot, schema_json, files)

    def gone_prepared_files(self, files: Sequence[DataFile]) -> tuple[str, ...]:
        """The paths of prepared files that are gone."""
        return table_commit.gone_files(self.location.storage(), files)
