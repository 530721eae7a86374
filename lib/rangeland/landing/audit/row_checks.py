"""Refuses to land in a table whose rows do not match its ledger.

``identity_check`` compares what table and ledger record about each other. This module looks at the
rows themselves, if something else may have removed or written some.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from rangeland.errors import Conflict, TableRefused
from rangeland.job import Job
from rangeland.landing.audit.verification import examine
from rangeland.landing.target.landing_target import LandingTarget
from rangeland.model import Range
from rangeland.progress_events import Progress
from rangeland.spark.catalog_names import literal
from rangeland.spark.offset_scan import has_rows, table_frame

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def check_rows_remain(
    spark: SparkSession, target: LandingTarget, job: Job, progress: Progress
) -> None:
    """Raises Conflict if the table was restored, or all its rows were replaced, and rows of the
    job's topics have been missing since: the checkpoint is then ahead of the table."""
    removal = target.history.last_removal()
    if removal is None:
        return
    progress.step(f"rows of {job.sink.table} were removed or replaced: reading its offsets")
    try:
        holes = examine(spark, target.table, target.history).audit.holes
    except TableRefused:  # its rows cannot be read, so the table's history decides
        raise target.history.removal_error(removal) from None
    if any(job.source.reads(hole.partition.topic) for hole in holes):
        raise target.history.removal_error(removal)


def check_rows_are_known(
    spark: SparkSession, target: LandingTarget, ranges: Iterable[Range]
) -> None:
    """Raises Conflict if the table has rows of topics that its ledger does not know: these offsets
    may be among them."""
    topics = target.identity.unknown_topics_in_table({r.partition.topic for r in ranges})
    if not topics:
        return
    why = f"its ledger has no landing of {', '.join(topics)}"
    try:
        columns = target.table.log_columns
        where = f"{columns.topic} IN ({', '.join(map(literal, topics))})"
        if not has_rows(spark, table_frame(spark, target.table.uri, columns), where):
            return
        if not target.identity.unknown_topics(topics, now=True):
            return  # another driver has just landed them: this plan will not be entered
        what = f"the table {target.table.name} has rows of {', '.join(topics)}"
    except TableRefused as error:
        what = f"the table {target.table.name} has rows that may be of {', '.join(topics)}"
        why += f", and {error.what}"
    raise Conflict(
        what,
        why=f"{why}: it is a copy or clone of another table, or something else wrote them; "
        "landing on top of them could land records twice",
        do="land in another table; or copy the ledger, the folder _rangeland, from where the rows "
        "came from; or count these rows as landed with `rangeland adopt JOB.yaml`",
        topics=topics,
    )
