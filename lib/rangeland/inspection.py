"""The commands that only look: where a job stands, and whether it could run.

Nothing here writes. ``check`` goes on after a finding that is not well, so that all that is
wrong is said at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from rangeland.dialects.contract import dialect_names
from rangeland.errors import Conflict, RangelandError
from rangeland.evidence import examine
from rangeland.evidence import find as find_offset
from rangeland.fetch.pool import Brokers
from rangeland.fetch.survey import Wanted, take_survey
from rangeland.job import Job
from rangeland.model import Partition
from rangeland.planning.bounds import Mark, recreated
from rangeland.results import (
    CheckResult,
    Finding,
    PartitionStatus,
    Progress,
    Status,
    VerifyResult,
)
from rangeland.run import Runner
from rangeland.settings import cluster_settings
from rangeland.target import Target

RECENT = 5


def status(job: Job, spark: Any, progress: Progress) -> Status:
    """The checkpoint of the job against the logs as they are now, and its last landings."""
    progress.step(f"looking at the table {job.sink.table}")
    target = Target(spark, job)
    standing = target.standing(job.application)
    groups = (job.group.id,) if job.group is not None else ()
    source = job.source
    progress.step(f"asking {', '.join(source.servers)} for leaders and offsets")
    wanted = Wanted(source.topics, source.topic_pattern, source.partitions, (), groups)
    with Brokers(cluster_settings(job)) as brokers:
        survey = take_survey(brokers, wanted)
    partitions = []
    for partition, log in survey.logs.items():
        mark: Mark | None = standing.checkpoint.get(partition)
        if mark is not None and recreated(mark, log):
            mark = None  # of a log that is gone: nothing of this one is landed
        partitions.append(
            PartitionStatus(
                partition=partition,
                checkpoint=None if mark is None else mark.until_offset,
                start=log.start_offset,
                end=log.end_offset,
                group_offset=survey.group_offsets.get((partition, groups[0])) if groups else None,
                leader=str(log.leader.address),
                landed=tuple(standing.landed.of(partition, log.leader.topic_id)),
            )
        )
    return Status(
        job=job.job,
        table=job.sink.table,
        table_version=target.version,
        sequence=standing.sequence - 1,
        partitions=tuple(partitions),
        live_plans=tuple(u.plan for u in target.unfinished()),
        recent=tuple(_landing(entry) for entry in target.history(job.application, RECENT)),
    )


def _landing(entry: Any) -> dict[str, Any]:
    return {
        "sequence": entry.sequence,
        "prepared_at_ms": entry.written_at_ms,
        "landed": sum(r.counts.landed for r in entry.ranges if r.counts is not None),
        "files": len(entry.files),
        "hash": entry.plan_hash,
    }


def verify(job: Job, spark: Any, progress: Progress) -> VerifyResult:
    """What the table has of all that was landed in it, by whichever job. Asks no broker."""
    started = time.monotonic()
    progress.step(f"looking at the table {job.sink.table}")
    target = Target(spark, job)
    progress.step(f"reading the offsets in {job.sink.table}")
    seen = examine(spark, target)
    return VerifyResult(
        job=job.job,
        table=job.sink.table,
        table_version=target.version,
        landings=seen.landings,
        pieces=seen.pieces,
        audit=seen.audit,
        missing_files=seen.missing_files,
        seconds=time.monotonic() - started,
    )


def find(job: Job, spark: Any, partition: Partition, offset: int, progress: Progress) -> Finding:
    """Which landing an offset came by, and in which file its row is."""
    progress.step(f"looking at the table {job.sink.table}")
    return find_offset(spark, Target(spark, job), partition, offset)


def check(job: Job, open_spark: Callable[[], Any], progress: Progress) -> CheckResult:
    """Connects to all that a run needs. Each finding is (what, is it well, what was seen)."""
    findings: list[tuple[str, bool, str]] = [("job file", True, f"job {job.job} is well formed")]

    errors: list[RangelandError] = []

    def look(what: str, at: Callable[[], str]) -> bool:
        progress.step(f"checking {what}")
        try:
            findings.append((what, True, at()))
        except RangelandError as error:
            findings.append((what, False, str(error)))
            errors.append(error)
            return False
        return True

    look("dialect", lambda: _dialect(job))
    answered = look("brokers", lambda: _brokers(job))
    opened: list[Any] = []

    def start_spark() -> str:
        opened.append(open_spark())
        return f"Spark {opened[0].version} with Delta"

    if look("spark", start_spark):
        look("table", lambda: _table(job, opened[0], progress))
        if answered:
            look("plan", lambda: _plan(job, opened[0], progress))
    first = errors[0] if errors else None
    return CheckResult(
        job.job,
        tuple(findings),
        0 if first is None else first.exit_code,
        None if first is None else type(first).__name__,
    )


def _dialect(job: Job) -> str:
    if job.source.dialect not in dialect_names():
        raise Conflict(f"{job.source.dialect} is not available, only {', '.join(dialect_names())}")
    return job.source.dialect


def _brokers(job: Job) -> str:
    source = job.source
    with Brokers(cluster_settings(job)) as brokers:
        wanted = Wanted(source.topics, source.topic_pattern, source.partitions)
        survey = take_survey(brokers, wanted)
    leaders = {str(log.leader.address) for log in survey.logs.values()}
    records = sum(log.end_offset - log.start_offset for log in survey.logs.values())
    return f"{len(survey.logs)} partitions on {len(leaders)} leaders, {records:,} offsets"


def _table(job: Job, spark: Any, progress: Progress) -> str:
    runner = Runner(job, spark, progress)
    notes = runner.target.notes(runner.rows)
    if runner.target.facts is None:
        runner.target.layout(runner.rows)
        runner.target.refuse_strangers()
        return " ".join([f"{job.sink.table} is not there yet and would be created.", *notes])
    runner.target.layout(runner.rows)
    runner.refuse_restored()
    return " ".join([f"{job.sink.table} is at version {runner.target.version}, and fits.", *notes])


def _plan(job: Job, spark: Any, progress: Progress) -> str:
    found, _ = Runner(job, spark, progress).draft()
    if found.is_empty:
        return "there is nothing to land now"
    plan = found.plan
    return f"a run would land {plan.width:,} offsets of {len(plan.ranges)} ranges"
