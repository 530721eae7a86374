"""Evaluates a table's constraints on rows that are not committed yet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rangeland.decode.columns import LogColumns
from rangeland.delta.table_schema.table_constraints import RecordPlace, TableConstraint
from rangeland.errors import EngineFailed, RangelandError, TableRefused
from rangeland.spark.spark_errors import first_line

_WHICH = "_constraint_number"


@dataclass(frozen=True, slots=True)
class ConstraintViolation:
    """The first row for which a constraint is not true."""

    constraint: TableConstraint
    place: RecordPlace


def first_violation(
    frame: Any, constraints: Sequence[TableConstraint], columns: LogColumns
) -> ConstraintViolation | None:
    """The first row, by topic, partition and offset, for which a constraint is not true."""
    from pyspark import errors
    from pyspark.sql import functions as f

    texts = ", ".join(one.text for one in constraints)
    spelled = {name.lower(): name for name in frame.columns}
    wanted = (columns.topic, columns.partition, columns.broker, columns.offset)
    keys = [spelled[name] for name in wanted if name in spelled]
    try:
        failed = [
            f.when(~f.coalesce(f.expr(f"({one.condition})"), f.lit(False)), f.lit(number))
            for number, one in enumerate(constraints)
        ]
        which = f.coalesce(*failed).alias(_WHICH)
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
    ) as error:  # of a row: it would be the same again
        raise TableRefused(
            "the table's constraints fail on new rows",
            why=f"{texts}: {first_line(error)}; nothing was committed",
            do="leave such records out or correct them in a transform, or change the table's "
            "constraint, then run again",
        ) from error
    except errors.PySparkException as error:
        failed_query = EngineFailed("could not check new rows", why=first_line(error))
        raise failed_query.with_answers(data=RangelandError.data) from error
    if row is None:
        return None
    found = {name: row[spelled[name]] for name in wanted if name in spelled}
    return ConstraintViolation(constraints[row[_WHICH]], RecordPlace.of(found, columns))
