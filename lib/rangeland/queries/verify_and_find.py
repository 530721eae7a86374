"""``verify`` and ``find``: compare the table with its ledger. No broker is asked."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from rangeland.errors import Conflict
from rangeland.job import Job
from rangeland.landing.audit.offset_lookup import find_offset
from rangeland.landing.audit.verification import Verification, examine
from rangeland.landing.target.job_history import JobHistory
from rangeland.landing.target.landing_target import LandingTarget, open_target
from rangeland.model import Partition, Range
from rangeland.planning.passed_over_ranges import passed_over_intervals
from rangeland.progress_events import Progress
from rangeland.query_results import Finding, FindState, VerifyResult

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def verify(job: Job, spark: SparkSession, progress: Progress) -> VerifyResult:
    """Compares the table with everything that jobs have landed in it. Asks no broker."""
    began_at = time.monotonic()
    progress.step(f"reading the state of the table {job.sink.table}")
    target = open_target(spark, job)
    verification = Verification()
    if not _is_untouched(target):
        progress.step(f"reading the offsets in {job.sink.table}")
        target.ledger.refresh_as_one()
        verification = examine(spark, target)
    return VerifyResult(
        job=job.name,
        table=job.sink.table,
        table_version=target.table.version,
        landings=verification.landings,
        landed_ranges=verification.landed_ranges,
        audit=verification.audit,
        gone_files=verification.gone_files,
        seconds=time.monotonic() - began_at,
        passed_over=_passed_over(target.history, job),
    )


def _is_untouched(target: LandingTarget) -> bool:
    """Whether nothing can have landed here yet: there is no table, and the ledger is empty or
    missing; or there is no ledger, and the table has never been written to."""
    table = target.table
    ledger = target.ledger
    if table.snapshot is None:
        return ledger.view.newest() is None
    return ledger.opened is None and table.version == 0 and not any(table.snapshot.files())


def _passed_over(history: JobHistory, job: Job) -> tuple[Range, ...]:
    """The ranges that runs of the job will never land, according to their checkpoint and the
    ledger; none if the checkpoint is unknown."""
    try:
        position = history.position(job.application)
    except Conflict:
        return ()
    return tuple(
        Range(partition, start, end, mark.topic_id)
        for partition, mark in sorted(position.checkpoint.items())
        for start, end in passed_over_intervals(
            position.covered.of(partition, mark.topic_id), mark.until_offset
        )
    )


def find(
    job: Job, spark: SparkSession, partition: Partition, offset: int, progress: Progress
) -> Finding:
    """Finds the landing that an offset came from, and the file that has its row."""
    progress.step(f"reading the state of the table {job.sink.table}")
    target = open_target(spark, job)
    if _is_untouched(target):
        return Finding(partition, offset, FindState.NOT_LANDED, why="nothing has landed in it yet")
    return find_offset(spark, target, partition, offset)
