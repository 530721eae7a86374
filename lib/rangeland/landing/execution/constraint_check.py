"""Checks prepared rows against the table's constraints before they are committed.

Rows are checked before their outcome is prepared: if they are refused, the next run, which may have
another transform, reads the plan again. An outcome that was prepared without this check, or before
the table had its constraints, is checked before the commit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rangeland.delta.table_schema.table_constraints import TableConstraint, violation_error
from rangeland.errors import TableRefused
from rangeland.landing.target.target_table import TargetTable
from rangeland.model import DataFile
from rangeland.spark.constraint_query import first_violation
from rangeland.spark.replace_where import prepared_frame

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class ConstraintCheck:
    """Checks rows of one table. Files that have passed are not read twice."""

    def __init__(self, spark: SparkSession, table: TargetTable) -> None:
        self._spark = spark
        self._table = table
        self._passed: set[tuple[str, tuple[TableConstraint, ...]]] = set()

    @property
    def are_any(self) -> bool:
        return bool(self._table.schema.constraints())

    def violation_error(self, files: Sequence[DataFile], schema_json: str) -> TableRefused | None:
        """The error for the first row that the table's constraints do not allow, if there is one.
        ``schema_json``: the schema of the files, if the table may have to follow it. Files that do
        not fit the table are not read, since they will not be committed either."""
        constraints = self._table.schema.constraints()
        unchecked = [file for file in files if (file.path, constraints) not in self._passed]
        if not constraints or not unchecked:
            return None
        table = self._table
        change = table.change_by(schema_json)
        if change.misfits:
            return None
        path = table.location.uri
        schema = self._table.schema.schema_of_files(change)
        rows = prepared_frame(self._spark, path, unchecked, schema)
        violation = first_violation(rows, constraints, table.log_columns)
        if violation is None:
            self._passed |= {(file.path, constraints) for file in unchecked}
            return None
        return violation_error(violation.constraint, table.name, violation.place)
