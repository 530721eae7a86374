"""Replaces the rows of a range in one commit made by Spark's Delta writer.

The prepared files are read like the table's own and written with ``replaceWhere``: rows of other
ranges in the same files stay, and Delta refuses the commit if another writer has changed the
replaced rows meanwhile. Because of the transaction id, a second attempt does nothing. Delta's
writer does not say whether it did nothing, so this is looked up in the table's log.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from rangeland.decode.columns import PLAIN_COLUMNS, LogColumns
from rangeland.delta.java_bridge.java_errors import java_chain, translate
from rangeland.delta.stores.table_path import TablePath
from rangeland.delta.table_schema.column_mapping import shown_schema, stored_schema
from rangeland.error_answers import PlanStage, at_stage
from rangeland.errors import Bug, EngineFailed, RangelandError, StorageFailed, TableRefused
from rangeland.model import DataFile, Range
from rangeland.planning.plan import PlanId
from rangeland.planning.table_audit import ReplacedRange
from rangeland.spark.catalog_names import literal, quoted_path
from rangeland.spark.session_copy import requiring_all_files
from rangeland.spark.spark_errors import MAX_LINE, first_line
from rangeland.untrusted import parse_json

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)
RECENT_COMMITS = 20
"""How many of the newest commits are searched for one that has just been made."""
USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"
_OF_OUR_FILES = {
    "__globPaths__": "false",  # [, {, * and ? in a path are not patterns
    "datetimeRebaseMode": "CORRECTED",  # files of Rangeland 0.1 do not say so
}
_OLD_DATES = "READ_ANCIENT_DATETIME"
"""The name under which Spark before 4.0 refuses old dates in files that do not state their
calendar."""
CONFLICTS = ("Concurrent", "ProtocolChanged", "MetadataChanged")
"""The prefixes of the names of Delta's exceptions about other writers
(``DeltaConcurrentExceptions``)."""


def keys_of(frame: Any, by_broker: bool, columns: LogColumns = PLAIN_COLUMNS) -> list[str]:
    """The columns that identify an offset, in the table's spelling."""
    keys = [columns.topic, columns.partition, columns.offset]
    keys += [columns.broker] if by_broker else []
    return [name for name in frame.columns if name.lower() in keys]


def condition(frame: Any, ranges: Sequence[Range], columns: LogColumns = PLAIN_COLUMNS) -> str:
    """The SQL condition for the rows of the ranges."""
    quoted = {name.lower(): f"`{name}`" for name in keys_of(frame, True, columns)}
    topic = quoted[columns.topic]
    number = quoted[columns.partition]
    offset = quoted[columns.offset]
    conditions = []
    for r in ranges:
        condition = (
            f"{topic} = {literal(r.partition.topic)} AND {number} = {r.partition.number} "
            f"AND {offset} >= {r.from_offset} AND {offset} < {r.until_offset}"
        )
        if r.partition.broker:
            condition += f" AND {quoted[columns.broker]} = {literal(r.partition.broker)}"
        conditions.append(f"({condition})")
    return " OR ".join(conditions)


def prepared_frame(
    spark: SparkSession, path: str, files: Sequence[DataFile], schema_json: str
) -> Any:
    """The rows of uncommitted files, with the columns of this schema: the one that the table has,
    or will have. Raises StorageFailed if a file is already gone. Reading them fails if one is
    missing or damaged, and writing them fails if one of the table's own files is, even in a session
    that ignores such files."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import StructType

    schema = StructType.fromJson(parse_json(shown_schema(schema_json)))
    stored = StructType.fromJson(parse_json(stored_schema(schema_json)))
    groups: dict[tuple[tuple[str, str | None], ...], list[str]] = {}
    for file in files:
        values = tuple(sorted(file.partition_values.items()))
        groups.setdefault(values, []).append(str(TablePath.parse(path).child(file.path)))
    with reading_prepared_files(path):
        session = requiring_all_files(spark)
        union = session.read.schema(schema).parquet()
        for values, paths in groups.items():
            partition_values = dict(values)
            in_files = StructType([c for c in stored.fields if c.name not in partition_values])
            reader = session.read.schema(in_files).options(**_OF_OUR_FILES)
            rows = reader.parquet(*paths)
            columns = [
                (
                    f.lit(partition_values[c.name])
                    if c.name in partition_values
                    else f.col(f"`{c.name}`")
                )
                .cast(field.dataType)
                .alias(field.name)
                for c, field in zip(stored.fields, schema.fields, strict=True)
            ]
            union = union.unionByName(rows.select(*columns))
        return union


@contextmanager
def reading_prepared_files(path: str) -> Iterator[None]:
    """Raises StorageFailed if Spark cannot read prepared files, for example because their folder
    has been removed. Nothing is committed in that case."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import AnalysisException, PySparkException

    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        if isinstance(error, AnalysisException) and error.getErrorClass() != "PATH_NOT_FOUND":
            raise  # the query itself is wrong
        raise _spark_error(f"could not read the new rows for {path}", _causes(error)) from error


def compare(
    old: Any, new: Any, columns: LogColumns = PLAIN_COLUMNS, *, by_broker: bool = False
) -> ReplacedRange:
    """Compares the rows before and after a replacement, offset by offset. The new rows may have
    more columns; an offset with several rows counts as unchanged only if all of them are. Raises
    EngineFailed if Spark cannot compare or read the rows."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        old = _with_columns_of(new, old)
        return ReplacedRange(**comparison(old, new, by_broker, columns).first().asDict())
    except (PySparkException, Py4JJavaError) as error:
        # For example, a column whose type has no order, or a file that is gone.
        failure = EngineFailed(
            "could not compare new rows with old",
            why=first_line(error),
            do="compare the table with its earlier version in Spark to see what was replaced",
        )
        raise failure.with_answers(data=RangelandError.data) from error


def _with_columns_of(new: Any, old: Any) -> Any:
    """The old rows, plus the columns that the new rows add, which are null there."""
    if old.dtypes == new.dtypes:
        return old
    return new.limit(0).unionByName(old, allowMissingColumns=True)


def comparison(old: Any, new: Any, by_broker: bool, columns: LogColumns = PLAIN_COLUMNS) -> Any:
    """A frame with one row, which contains the counts for ``compare``."""
    from pyspark.sql import functions as f

    keys = keys_of(old, by_broker, columns)
    # Variants have neither an order nor equality; their text, with its keys sorted, has both.
    values = [
        f.to_json(f.col(f"`{name}`")) if kind == "variant" else f.col(f"`{name}`")
        for name, kind in old.dtypes
        if name not in keys
    ]

    def gather(frame: Any, name: str) -> Any:
        rows = f.sort_array(f.collect_list(f.struct(*values)))
        return frame.groupBy(*keys).agg(rows.alias(name))

    joined = gather(old, "before").join(gather(new, "after"), keys, "full_outer")
    before, after = f.col("before"), f.col("after")
    kinds = {
        "same": before.isNotNull() & after.isNotNull() & (before == after),
        "added": before.isNull(),
        "changed": before.isNotNull() & after.isNotNull() & (before != after),
        "missing": after.isNull(),
    }
    counts = [f.count(f.when(kind, 1)).alias(name) for name, kind in kinds.items()]
    return joined.agg(*counts)


@dataclass(frozen=True, slots=True)
class RowsChanged:
    """Another writer, such as OPTIMIZE, committed while rows were being replaced, or another driver
    has made this same replacement. This call replaced nothing, and can be repeated at once.
    ``why``: the reason, in Delta's own words if there is a conflict."""

    path: str
    why: str


def replace_rows(
    new: Any, path: str, where: str, plan_id: PlanId, *, evolves: bool = False
) -> RowsChanged | None:
    """Commits ``new``, a ``prepared_frame``, in place of the rows that satisfy ``where``, unless
    another writer has changed those rows or has committed this plan. ``evolves``: the table's
    schema follows that of the new rows."""
    spark = new.sparkSession
    # The session may add a text of its own to all commits.
    mark = " ".join(
        filter(None, [spark.conf.get(USER_METADATA, None), f"rangeland {uuid.uuid4()}"])
    )
    try:
        (
            new.write.format("delta")
            .mode("overwrite")
            .options(**({"mergeSchema": "true"} if evolves else {}))
            .option("replaceWhere", where)
            .option("txnAppId", plan_id.application)
            .option("txnVersion", plan_id.sequence)
            .option("userMetadata", mark)
            .save(path)
        )
    except Exception as error:
        chain = _causes(error)
        if chain[0][0].rpartition(".")[2].startswith(CONFLICTS):
            return RowsChanged(path, _reason(chain))
        with at_stage(PlanStage.UNCONFIRMED):
            raise _spark_error(f"could not replace rows of {path}", chain) from error
    fields = {"table": path, "application": plan_id.application, "sequence": plan_id.sequence}
    if not _is_in_log(spark, path, mark):
        logger.info("Found no commit of this driver in the newest of the table", extra=fields)
        return RowsChanged(path, f"none of its newest commits is this driver's for {plan_id}")
    logger.info("Replaced rows", extra=fields)
    return None


def _is_in_log(spark: SparkSession, path: str, mark: str) -> bool:
    """Whether one of the table's newest commits has this mark."""
    history = f"DESCRIBE HISTORY delta.{quoted_path(path)} LIMIT {RECENT_COMMITS}"
    try:
        return any(row.userMetadata == mark for row in spark.sql(history).collect())
    except Exception as error:  # Spark raises many classes of Python and Java errors here
        with at_stage(PlanStage.UNCONFIRMED):
            what = f"could not determine whether rows of {path} were replaced"
            raise _spark_error(what, _causes(error)) from error


def names_file(error: RangelandError, path: str) -> bool:
    """Whether an error, or the Spark exception from which it was made, names this file."""
    cause = error.__cause__
    chain = _causes(cause) if isinstance(cause, Exception) else ()
    name = path.rpartition("/")[2]
    texts = [error.what, error.why, *(message for _, message in chain)]
    return any(name in text or quote(name) in text for text in texts)


def _causes(error: Exception) -> Sequence[tuple[str, str]]:
    # Once the package ``delta`` is imported, a class of the same name takes its place.
    return java_chain(error) or [(type(error).__name__, str(error))]


def _reason(chain: Sequence[tuple[str, str]]) -> str:
    name, message = chain[0]
    return (message.strip() or name).splitlines()[0][:MAX_LINE]


def _spark_error(what: str, chain: Sequence[tuple[str, str]]) -> RangelandError:
    if any(_OLD_DATES in message for _, message in chain):
        return TableRefused(
            what,
            why=_reason(chain[-1:]),
            do="set spark.sql.parquet.datetimeRebaseModeInRead to CORRECTED, unless Spark 2 or "
            "an old Hive has written to the table, then run again",
        )
    failure = translate(what, chain)
    if isinstance(failure, RangelandError) and not isinstance(failure, Bug):
        return failure
    # Spark has failed in a way that can be retried.
    do = "run again; if it fails again, read Spark's log"
    return StorageFailed(what, why=_reason(chain), do=do)
