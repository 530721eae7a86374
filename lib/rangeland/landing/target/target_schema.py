"""Decides how the rows of a job fit into one snapshot of its table, without I/O."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from rangeland.delta.table_metadata import TableLayout, TableMetadata
from rangeland.delta.table_schema.arrow_schema import schema_json
from rangeland.delta.table_schema.column_mapping import map_columns
from rangeland.delta.table_schema.schema_compatibility import RowLayout, new_table, row_layout
from rangeland.delta.table_schema.schema_evolution import (
    Evolution,
    SchemaChange,
    as_written,
    follow,
)
from rangeland.delta.table_schema.table_constraints import TableConstraint, constraints_of
from rangeland.delta.transaction_log.table_snapshot import Snapshot
from rangeland.dialects.row_schema import rows_of
from rangeland.errors import Bug
from rangeland.job import Job


@dataclass(frozen=True, slots=True)
class TargetSchema:
    """The schema of a job's table, for rows of that job. ``snapshot`` is None if there is no table
    yet."""

    job: Job
    snapshot: Snapshot | None

    @property
    def _metadata(self) -> TableMetadata | None:
        """The metadata that rows have to fit; None if the table was just created here, for them."""
        if self.snapshot is None or self.snapshot.is_own:
            return None
        return self.snapshot.metadata

    def layout(self, row_schema: pa.Schema) -> TableLayout:
        """The layout in which these rows are written. Raises TableRefused if they do not fit."""
        if (metadata := self._metadata) is None:
            # A table that was created here fits, as a test proves.
            return new_table(row_schema, self.job.sink.partition_by).layout
        return self._row_layout(metadata, row_schema).layout

    def notes(self, row_schema: pa.Schema) -> tuple[str, ...]:
        """Warnings about how these rows fit."""
        if self.snapshot is None:
            return ()
        return self._row_layout(self.snapshot.metadata, row_schema).notes

    def _row_layout(self, metadata: TableMetadata, row_schema: pa.Schema) -> RowLayout:
        columns = self.job.log_columns
        sink = self.job.sink
        fixed = [columns.column_name(f.name) for f in rows_of(self.job.source.dialect)]
        evolved, written_rows = follow(metadata, row_schema, self.job.evolution, fixed)
        return row_layout(evolved, written_rows, sink.partition_by)

    def schema_to_merge(self, row_schema: pa.Schema) -> str:
        """The schema that the table takes on when such rows land, as Delta's JSON; empty if the
        table's schema stays the same. In a table with column mapping, it has the column names that
        are used in files."""
        if self.job.evolution is not Evolution.ADD:
            return ""
        schema_text = schema_json(row_schema)
        metadata = self._metadata
        return schema_text if metadata is None else map_columns(metadata, schema_text)

    def as_written(self, schema_text: str) -> str:
        """A schema of rows, with the column names that are used in the table's files."""
        if not schema_text or self.snapshot is None:
            return schema_text
        return as_written(self.snapshot.schema_json, schema_text)

    def schema_of_files(self, change: SchemaChange | None = None) -> str:
        """The schema for reading prepared files: the table's, after this change."""
        if change is not None and change.is_any:
            return change.schema_json
        if self.snapshot is None:
            name = self.job.sink.table
            raise Bug(f"rows were prepared for {name}, which has no table")
        return self.snapshot.schema_json

    def constraints(self) -> tuple[TableConstraint, ...]:
        """The table's constraints on its rows; none if it was just created here."""
        return () if (metadata := self._metadata) is None else constraints_of(metadata)
