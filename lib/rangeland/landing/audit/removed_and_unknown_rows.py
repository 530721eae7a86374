"""Refuses to land in a table whose rows do not match its ledger.

``identity_check`` compares what table and ledger record about each other. This module looks at the
rows themselves, if something other than a landing may have removed or written some.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING

from rangeland.delta.ledger.ledger_table import Ledger
from rangeland.delta.parquet_files.file_statistics import may_hold
from rangeland.delta.table_metadata import CommitMetadata
from rangeland.delta.table_schema.column_mapping import stored_column
from rangeland.errors import Conflict, TableRefused
from rangeland.job import Job
from rangeland.landing.audit.verification import examine
from rangeland.landing.target.landing_commits import Restored
from rangeland.landing.target.landing_target import LandingTarget
from rangeland.landing.target.row_removal import Removal, UnknownCommits, find_removal
from rangeland.model import Range
from rangeland.progress_events import Progress
from rangeland.spark.catalog_names import literal
from rangeland.spark.offset_scan import has_rows, table_frame

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_AHEAD = "the checkpoint is ahead of the data, and landing on top would leave a hole"
_LAND_AGAIN = (
    "land them again with `rangeland backfill JOB.yaml --missing`; or, if what is still missing is "
    "not wanted or cannot be landed again, run `rangeland adopt JOB.yaml`"
)


def check_rows_remain(
    spark: SparkSession,
    target: LandingTarget,
    job: Job,
    progress: Progress,
    warn: Callable[[str], None],
) -> None:
    """Raises Conflict if the table may have been restored, or all its rows replaced, and rows of
    the job's topics are missing. The checkpoint is then ahead of the table."""
    table = job.sink.table
    removal = find_removal(job.name, target.table, target.ledger)
    if removal is None:
        return
    progress.step(f"rows of {table} may have been removed: reading its offsets")
    unknown: str | None = None
    try:
        audit = examine(spark, target).audit
    except TableRefused as error:
        unknown = str(error)
    else:
        if any(job.source.reads(hole.partition.topic) for hole in audit.holes):
            raise removal_error(table, removal)
        unproved = [r for r in audit.unproved if job.source.reads(r.partition.topic)]
        if unproved:
            unknown = f"the ledger does not know how many rows {unproved[0]} has"
    if unknown is None:
        return
    if not isinstance(removal, UnknownCommits):  # the table's history decides
        raise removal_error(table, removal)
    warn(f"it is unknown whether {table} still has all rows that were landed: {unknown}")


def removal_error(table: str, removal: Removal) -> Conflict:
    """The error for the rows that are missing after this removal."""
    match removal:
        case Restored():
            return _restored_error(table, removal)
        case CommitMetadata():
            return _replaced_error(table, removal)
        case UnknownCommits():
            return _unknown_commits_error(table, removal)


def _restored_error(table: str, removal: Restored) -> Conflict:
    where = "an earlier time" if removal.restored_to is None else f"version {removal.restored_to}"
    if removal.lost:
        why = f"rows of these landings are gone: {', '.join(map(str, removal.lost))}"
    else:
        why = "its log does not say which landings that undid, and landed rows may be gone"
    return Conflict(
        f"the table {table} was restored to {where}",
        why=f"{why}; {_AHEAD}",
        do=f"restore the table to version {removal.version - 1}; or {_LAND_AGAIN}",
        restored_to=removal.restored_to,
        at_version=removal.version,
    )


def _replaced_error(table: str, removal: CommitMetadata) -> Conflict:
    return Conflict(
        f"all rows of the table {table} were replaced at version {removal.version}",
        why=f"{removal.operation} removed rows that were landed; {_AHEAD}",
        do=f"restore the table to version {removal.version - 1}; or {_LAND_AGAIN}",
        at_version=removal.version,
    )


def _unknown_commits_error(table: str, removal: UnknownCommits) -> Conflict:
    return Conflict(
        f"the table {table} lacks rows that were landed, and its log no longer shows why",
        why=f"the job's last plan was made for version {removal.planned_at_version}, and the log "
        f"begins at {removal.log_begins_at}: the table may have been restored or overwritten in "
        f"between; then {_AHEAD}",
        do=_LAND_AGAIN,
        planned_at_version=removal.planned_at_version,
        log_begins_at=removal.log_begins_at,
    )


def check_rows_are_known(
    spark: SparkSession, target: LandingTarget, ranges: Iterable[Range]
) -> None:
    """Raises Conflict if the table has rows of topics that its ledger does not know: these offsets
    may be among them."""
    topics = _unknown_topics_in_table(target, {r.partition.topic for r in ranges})
    if not topics:
        return
    why = f"its ledger has no landing of {', '.join(topics)}"
    try:
        columns = target.table.log_columns
        where = f"{columns.topic} IN ({', '.join(map(literal, topics))})"
        if not has_rows(table_frame(spark, target.table.location.uri, columns), where):
            return
        if not _unknown_topics(target.ledger.load_current(), topics):
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


def _unknown_topics_in_table(target: LandingTarget, topics: Collection[str]) -> list[str]:
    """The topics that are unknown to the ledger, but may have rows in the table according to the
    statistics of its files."""
    new = _unknown_topics(target.ledger.opened, topics)
    snapshot = target.table.snapshot
    if not new or snapshot is None:
        return []
    files = list(snapshot.files())
    column = stored_column(snapshot.schema_json, target.table.log_columns.topic)
    return [topic for topic in new if any(may_hold(f, column, topic) for f in files)]


def _unknown_topics(ledger: Ledger | None, topics: Collection[str]) -> list[str]:
    """The topics without a landing in the ledger."""
    coverage = {} if ledger is None else ledger.view.coverage()
    return sorted(set(topics) - {partition.topic for partition in coverage})
