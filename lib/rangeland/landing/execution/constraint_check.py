"""Checks prepared rows against the table's constraints before they are committed.

Rows are checked before their outcome is prepared: if they are refused, the next run, which may have
another transform, reads the plan again. An outcome that was prepared without this check, or before
the table had its constraints, is checked before the commit.
"""

from __future__ import annotations

from collections.abc import Sequence

from rangeland.delta.table_schema.table_constraints import TableConstraint, violation_error
from rangeland.errors import TableRefused
from rangeland.landing.landing_context import LandingContext
from rangeland.model import DataFile
from rangeland.spark.constraint_query import first_violation
from rangeland.spark.replace_where import prepared_frame


class ConstraintCheck:
    """Checks rows of one table. Files that have passed are not read twice."""

    def __init__(self, context: LandingContext) -> None:
        self._context = context
        self._passed: set[tuple[str, tuple[TableConstraint, ...]]] = set()

    @property
    def are_any(self) -> bool:
        return bool(self._context.target.table.schema.constraints())

    def violation_error(self, files: Sequence[DataFile], schema_json: str) -> TableRefused | None:
        """The error for the first row that the table's constraints do not allow, if there is one.
        ``schema_json``: the schema of the files, if the table may have to adopt it. Files that do
        not fit the table are not read, since they will not be committed either."""
        table = self._context.target.table
        constraints = table.schema.constraints()
        unchecked = [file for file in files if (file.path, constraints) not in self._passed]
        if not constraints or not unchecked:
            return None
        change = table.change_by(schema_json, unchecked)
        if change.misfits:
            return None
        schema = table.schema.schema_of_files(change)
        rows = prepared_frame(self._context.spark, table.location.uri, unchecked, schema)
        violation = first_violation(rows, constraints, table.log_columns)
        if violation is None:
            self._passed |= {(file.path, constraints) for file in unchecked}
            return None
        constraint, place = violation
        return violation_error(constraint, table.name, place)
