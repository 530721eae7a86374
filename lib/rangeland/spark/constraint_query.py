"""Evaluates a table's constraints on rows that are not committed yet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rangeland.decode.columns import LogColumns
from rangeland.delta.java_bridge.java_errors import java_chain
from rangeland.delta.table_schema.table_constraints import RecordPlace, TableConstraint
from rangeland.errors import EngineFailed, RangelandError, TableRefused
from rangeland.spark.spark_errors import MAX_LINE, first_line

_WHICH = "_constraint_number"
_CAUSED_BY_ROWS = {
    "SparkArithmeticException",
    "SparkArrayIndexOutOfBoundsException",
    "SparkDateTimeException",
    "SparkNumberFormatException",
    "SparkUpgradeException",
}
"""Spark's own exceptions for a value that an expression cannot take. Spark 3.5 raises them only as
causes of an aborted job."""


def first_violation(
    frame: Any, constraints: Sequence[TableConstraint], columns: LogColumns
) -> tuple[TableConstraint, RecordPlace] | None:
    """The first row, by topic, partition and offset, for which a constraint is not true, with that
    constraint."""
    from py4j.protocol import Py4JJavaError
    from pyspark import errors
    from pyspark.sql import functions as f

    texts = ", ".join(constraint.text for constraint in constraints)
    spellings = {name.lower(): name for name in frame.columns}
    place_columns = (columns.topic, columns.partition, columns.broker, columns.offset)
    keys = [spellings[name] for name in place_columns if name in spellings]
    try:
        violated_numbers = [
            f.when(~f.coalesce(f.expr(f"({constraint.condition})"), f.lit(False)), f.lit(number))
            for number, constraint in enumerate(constraints)
        ]
        which = f.coalesce(*violated_numbers).alias(_WHICH)
        rows = frame.select(*keys, which).where(f.col(_WHICH).isNotNull())
        row = rows.orderBy(*keys).first() if keys else rows.first()
    except errors.AnalysisException as error:
        raise TableRefused(
            "the table's constraints cannot be evaluated",
            why=f"{texts}: {first_line(error)}",
            do="correct or drop the constraint, or give the session the functions that it calls",
        ) from error
    except (
        errors.ArithmeticException,
        errors.ArrayIndexOutOfBoundsException,
        errors.DateTimeException,
        errors.NumberFormatException,
        errors.SparkUpgradeException,
    ) as error:
        raise _row_error(texts, first_line(error)) from error
    except (errors.PySparkException, Py4JJavaError) as error:  # for example, a file that is gone
        for name, message in java_chain(error):
            if name.rpartition(".")[2] in _CAUSED_BY_ROWS:
                raise _row_error(texts, (message.splitlines() or [name])[0][:MAX_LINE]) from error
        failure = EngineFailed(
            "could not check new rows",
            why=first_line(error),
            do="run again; if it fails again, read Spark's log",
        )
        raise failure.with_answers(data=RangelandError.data) from error
    if row is None:
        return None
    values = {name: row[spellings[name]] for name in place_columns if name in spellings}
    return constraints[row[_WHICH]], RecordPlace.of(values, columns)


def _row_error(constraints: str, reason: str) -> TableRefused:
    """The error for a row on which constraints fail: they would fail on it again."""
    return TableRefused(
        "the table's constraints fail on new rows",
        why=f"{constraints}: {reason}; nothing was committed",
        do="leave such records out or correct them in a transform, or change the table's "
        "constraint, then run again",
    )
