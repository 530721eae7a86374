"""The read-only commands: status, verify, find and check.

Nothing here writes, except for a small file that ``check`` deletes again. ``check`` continues after
a problem, so that all problems are reported at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from rangeland.connection.cluster_settings import ClusterSettings
from rangeland.connection.pool import ConnectionPool
from rangeland.dialects.dialect import dialect_names
from rangeland.errors import Conflict, RangelandError
from rangeland.groups.backend_choice import open_backend
from rangeland.groups.job_survey import survey_of
from rangeland.job import Job
from rangeland.job.source_settings import cluster_settings, exposed
from rangeland.landing.held_partitions import held_now
from rangeland.landing.target_state import LandingTarget
from rangeland.landing.verification import examine
from rangeland.landing.verification import find as find_offset
from rangeland.model import Isolation, LogState, Partition, Range, Survey
from rangeland.planning.checkpoint_move import never_landed
from rangeland.planning.incarnation import LogMark, recreated
from rangeland.planning.plan_builder import JobPosition
from rangeland.planning.table_audit import Audit
from rangeland.progress import Progress
from rangeland.results import (
    CheckResult,
    Finding,
    GroupStatus,
    PartitionStatus,
    Status,
    VerifyResult,
)
from rangeland.run import Runner
from rangeland.survey.cluster_survey import SurveyRequest
from rangeland.survey.record_ages import FirstRecord, first_times
from rangeland.survey.stable_offsets import LogEnds, log_ends
from rangeland.wording import counted

RECENT = 5
LOSSES = 10


def status(job: Job, spark: Any, progress: Progress) -> Status:
    """The job's checkpoint compared with the logs as they are now, and its last landings."""
    progress.step(f"reading the state of the table {job.sink.table}")
    target = LandingTarget(spark, job)
    disagreement = target.identity.disagreement()
    try:
        standing = target.history.standing(job.application)
    except Conflict as error:
        raise disagreement or error from error
    source = job.source
    progress.step(f"asking {source.where} for leaders and offsets")
    known = standing.topics
    wanted = SurveyRequest(source.topics, source.topic_pattern, source.partitions, known=known)
    cluster = cluster_settings(job)
    survey = survey_of(job, wanted, settings=cluster)
    cluster = cluster.knowing(survey)
    group, offsets = _group(job, cluster, tuple(survey.logs), progress)
    owners = {p: m.member_id for m in group.members for p in m.partitions} if group else {}
    losses = [loss for loss in target.history.losses() if loss.job == job.job]
    ends = log_ends(cluster, survey.logs)
    partitions = []
    for partition, log in survey.logs.items():
        mark: LogMark | None = standing.checkpoint.get(partition)
        if mark is not None and recreated(mark, log):
            mark = None  # It belongs to a deleted log: nothing of this one is landed.
        partitions.append(
            PartitionStatus(
                partition=partition,
                checkpoint=None if mark is None else mark.until_offset,
                start=log.start_offset,
                end=_end(job.source.isolation, ends.get(partition), log),
                group_offset=offsets.get(partition),
                leader=str(log.leader.address),
                landed=tuple(standing.landed.of(partition, log.leader.topic_id)),
                owner=owners.get(partition),
                held=held_now(losses, standing.checkpoint.get(partition), log),
                **_readable(ends.get(partition), survey.taken_at_ms),
            )
        )
    return Status(
        job=job.job,
        table=job.sink.table,
        table_version=target.table.version,
        sequence=standing.sequence - 1,
        partitions=_with_ages(cluster, partitions, survey),
        live_plans=tuple(u.plan for u in target.history.unfinished()),
        recent=tuple(
            _landing(entry) for entry in target.history.newest_outcomes(job.application, RECENT)
        ),
        group=group,
        losses=tuple(losses[-LOSSES:]),
        warnings=(*target.table.warnings(), *([] if disagreement is None else [str(disagreement)])),
    )


def _end(isolation: Isolation, ends: LogEnds | None, log: LogState) -> int:
    """The end of the log from the same answer as its other ends."""
    if ends is None:
        return log.end_offset
    is_committed = isolation is Isolation.READ_COMMITTED
    return ends.last_stable_offset if is_committed else ends.high_watermark


def _readable(ends: LogEnds | None, now_ms: int) -> dict[str, Any]:
    if ends is None:
        return {}
    found = ends.transaction
    began_at_ms = ends.began_at_ms
    if began_at_ms is None and found is not None:
        began_at_ms = found.last_write_ms
    return {
        "high_watermark": ends.high_watermark,
        "last_stable_offset": ends.last_stable_offset,
        "open_transaction": found,
        "open_for_ms": None if began_at_ms is None else max(0, now_ms - began_at_ms),
    }


def _group(
    job: Job, cluster: ClusterSettings, partitions: tuple[Partition, ...], progress: Progress
) -> tuple[GroupStatus | None, dict[Partition, int | None]]:
    """The job's group and its offsets. An error only appears in the answer."""
    if job.group is None:
        return None, {}
    name = job.group.id
    progress.step(f"asking for the group {name}")
    try:
        home = open_backend(job, cluster)
        try:
            view, offsets = home.view(name), home.offsets(name, partitions)
            return GroupStatus(name, home.name, view.state, view.members), offsets
        finally:
            home.close()
    except RangelandError as error:
        return GroupStatus(name, why=str(error)), {}


def _with_ages(
    cluster: ClusterSettings, partitions: list[PartitionStatus], survey: Survey
) -> tuple[PartitionStatus, ...]:
    """Adds the age of the first record that is not landed; one is fetched from each log."""
    wanted = {
        p.partition: FirstRecord(
            survey.logs[p.partition].leader,
            max(p.start, p.start if p.checkpoint is None else p.checkpoint),
            p.end,
        )
        for p in partitions
        if p.lag > p.held_back
    }
    # If everything readable is landed, the first record that is not is the transaction's own.
    partitions = [
        p if p.partition in wanted else replace(p, lag_ms=p.open_for_ms) for p in partitions
    ]
    if not wanted:
        return tuple(partitions)
    with ConnectionPool(cluster) as brokers:
        times = first_times(brokers, wanted)
    now_ms = survey.taken_at_ms
    ages = {p: max(0, now_ms - time_ms) for p, time_ms in times.items()}
    return tuple(replace(p, lag_ms=ages.get(p.partition, p.lag_ms)) for p in partitions)


def _landing(entry: Any) -> dict[str, Any]:
    return {
        "sequence": entry.sequence,
        "prepared_at_ms": entry.written_at_ms,
        "landed": sum(r.counts.landed for r in entry.ranges if r.counts is not None),
        "files": len(entry.files),
        "hash": entry.plan_hash,
    }


def verify(job: Job, spark: Any, progress: Progress) -> VerifyResult:
    """What the table has of all that any job has landed in it. Asks no broker."""
    started = time.monotonic()
    progress.step(f"reading the state of the table {job.sink.table}")
    target = LandingTarget(spark, job)
    if target.history.is_untouched:
        spent = time.monotonic() - started
        nothing = (job.job, job.sink.table, target.table.version, 0, (), Audit(), ())
        return VerifyResult(*nothing, seconds=spent)
    progress.step(f"reading the offsets in {job.sink.table}")
    seen = examine(spark, target)
    return VerifyResult(
        job=job.job,
        table=job.sink.table,
        table_version=target.table.version,
        landings=seen.landings,
        pieces=seen.pieces,
        audit=seen.audit,
        missing_files=seen.missing_files,
        seconds=time.monotonic() - started,
        passed_over=_passed_over(target.history.standing(job.application)),
    )


def _passed_over(standing: JobPosition) -> tuple[Range, ...]:
    """What runs of the job will never land, by their checkpoint and the ledger."""
    return tuple(
        Range(partition, start, end, mark.topic_id)
        for partition, mark in sorted(standing.checkpoint.items())
        for start, end in never_landed(
            standing.landed.of(partition, mark.topic_id), mark.until_offset
        )
    )


def find(job: Job, spark: Any, partition: Partition, offset: int, progress: Progress) -> Finding:
    """Which landing brought an offset, and which file has its row."""
    progress.step(f"reading the state of the table {job.sink.table}")
    target = LandingTarget(spark, job)
    if target.history.is_untouched:
        return Finding(partition, offset, "not-landed", why="nothing has landed in it yet")
    return find_offset(spark, target, partition, offset)


def check(job: Job, open_spark: Callable[[], Any], progress: Progress) -> CheckResult:
    """Tries everything a run needs. A finding is (what, whether it is well, what was found)."""
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

    findings += [("security", True, f"warning: {text}") for text in exposed(job)]
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
    # The plan can tell whether a missing topic has vanished or never existed.
    known = frozenset(source.topics)
    wanted = SurveyRequest(source.topics, source.topic_pattern, source.partitions, known=known)
    survey = survey_of(job, wanted)
    gone = sorted(known - {partition.topic for partition in survey.logs})
    leaders = {str(log.leader.address) for log in survey.logs.values()}
    records = sum(log.end_offset - log.start_offset for log in survey.logs.values())
    seen = (
        f"{counted(len(survey.logs), 'partition')} on {counted(len(leaders), 'leader')}, "
        f"{counted(records, 'offset')}"
    )
    return f"{seen}; missing: {', '.join(gone)}" if gone else seen


def _table(job: Job, spark: Any, progress: Progress) -> str:
    runner = Runner(job, spark, progress)
    notes = runner.target.table.notes(runner.rows)
    if runner.target.table.metadata is None:
        runner.target.table.layout(runner.rows)
        runner.target.table.refuse_strangers()
        runner.target.table.try_store()
        return " ".join([f"{job.sink.table} does not exist yet, and can be created.", *notes])
    runner.target.table.layout(runner.rows)
    runner.target.table.try_store()
    runner.refuse_disagreement()
    at = f"{job.sink.table} is at version {runner.target.table.version}"
    return " ".join([f"{at}, accepts these rows, and can be written.", *notes])


def _plan(job: Job, spark: Any, progress: Progress) -> str:
    runner = Runner(job, spark, progress)
    found, _ = runner.draft()
    runner.refuse_unknown_rows(found)
    if found.is_empty:
        return "there is nothing to land now"
    plan = found.plan
    ranges = counted(len(plan.ranges), "range")
    return f"a run would land {counted(plan.width, 'offset')} of {ranges}"
