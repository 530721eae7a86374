"""``status``: compares the job's checkpoint with its logs and group, and shows its last
landings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING

from rangeland.cluster_access.backend_choice import open_backend
from rangeland.cluster_access.cluster_lookup import look_up_cluster
from rangeland.cluster_access.job_survey import survey_of
from rangeland.cluster_settings import ClusterSettings
from rangeland.connection.pool import ConnectionPool
from rangeland.delta.ledger.events import LossEvent, OutcomeEvent
from rangeland.delta.table_metadata import CommitMetadata
from rangeland.errors import Conflict, RangelandError, TableRefused
from rangeland.job import Job
from rangeland.job.connection_settings import request_for_topics
from rangeland.landing.drafts.held_partitions import find_hold
from rangeland.landing.drafts.unfinished_plans import plans_to_finish
from rangeland.landing.target.job_history import EnteredPlan
from rangeland.landing.target.landing_commits import Restored
from rangeland.landing.target.landing_target import LandingTarget, open_target
from rangeland.landing.target.row_removal import Removal, UnknownCommits, find_removal
from rangeland.landing.target.table_warnings import property_warnings
from rangeland.loss import Loss
from rangeland.model import Isolation, LogState, Partition, Survey
from rangeland.planning.absent_partitions import absent_partition_losses
from rangeland.planning.incarnation import LogMark, is_recreated
from rangeland.planning.job_position import JobPosition
from rangeland.progress_events import Progress
from rangeland.query_results import GroupStatus, PartitionStatus, RecentLanding, Status
from rangeland.survey.record_times import FirstRecord, first_times
from rangeland.survey.transaction_delays import LogEnds, log_ends

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RECENT = 5
LOSSES = 10


@dataclass(frozen=True, slots=True)
class LedgerAccount:
    """What a table and its ledger say about a job, without asking a broker. ``losses`` are all
    those of the job."""

    target: LandingTarget
    position: JobPosition
    unfinished_plans: Sequence[EnteredPlan]
    losses: Sequence[LossEvent]
    disagreement: RangelandError | None = None


@dataclass(frozen=True, slots=True)
class LogsNow:
    """The logs of a job, and its group, as they were just reported. ``absent``: partitions without
    a log."""

    partitions: tuple[PartitionStatus, ...]
    group: GroupStatus | None = None
    absent: tuple[Loss, ...] = ()


def status(
    job: Job, spark: SparkSession, progress: Progress, template: Job | None = None
) -> Status:
    """The job's checkpoint compared with the logs as they are now, and its last landings. A job
    that was made from a ``template`` has its offsets in the template's group."""
    account = read_account(job, spark, progress)
    logs = ask_logs(job, account, progress, template)
    target = account.target
    return Status(
        job=job.name,
        table=job.sink.table,
        table_version=target.table.version,
        sequence=account.position.sequence - 1,
        partitions=logs.partitions,
        unfinished_plans=plans_to_finish(job, account.unfinished_plans),
        recent=tuple(
            _recent_landing(outcome)
            for outcome in islice(target.ledger.view.outcomes(job.application), RECENT)
        ),
        group=logs.group,
        losses=tuple(account.losses[-LOSSES:]),
        warnings=(
            *property_warnings(target.table.snapshot),
            *(
                f"{loss.partition} is {loss.kind} and not listed: {loss.evidence}"
                for loss in logs.absent
            ),
            *disagreements(job, target, account.disagreement),
        ),
    )


def read_account(job: Job, spark: SparkSession, progress: Progress) -> LedgerAccount:
    """Reads table and ledger. If they disagree, the ledger's own account is used."""
    progress.step(f"reading the state of the table {job.sink.table}")
    target = open_target(spark, job)
    history = target.history
    disagreement: RangelandError | None = target.identity.disagreement_error()
    try:
        position = history.position(job.application)
        plans = history.unfinished_plans()
    except (Conflict, TableRefused) as error:
        # Only the ledger's own account of what has landed is left.
        position = history.last_known(job.application)
        plans = []
        disagreement = disagreement or error
    losses = [loss for loss in history.losses() if loss.job == job.name]
    return LedgerAccount(target, position, plans, losses, disagreement)


def ask_logs(
    job: Job, account: LedgerAccount, progress: Progress, template: Job | None = None
) -> LogsNow:
    """Asks brokers and the group's backend. Raises what a survey raises; an error of the group only
    appears in the result."""
    position = account.position
    progress.step(f"asking {job.source.where} for leaders and offsets")
    cluster = look_up_cluster(job)
    known = position.landed_topics(job.source.partitions)
    survey = survey_of(job, request_for_topics(job, known), cluster)
    cluster = cluster.with_versions_of(survey)
    group, offsets = _group(template or job, cluster, tuple(survey.logs), progress)
    owners = {p: m.member_id for m in group.members for p in m.partitions} if group else {}
    ends = log_ends(cluster, survey.logs)
    partitions = []
    for p, log in survey.logs.items():
        of_log = _partition_status(position, account.losses, log)
        of_log = _with_log_ends(of_log, ends.get(p), job.source.isolation, survey.taken_at_ms)
        partitions.append(replace(of_log, group_offset=offsets.get(p), owner=owners.get(p)))
    return LogsNow(
        _with_ages(cluster, partitions, survey),
        group,
        tuple(absent_partition_losses(job.request, survey, position)),
    )


def disagreements(
    job: Job, target: LandingTarget, disagreement: RangelandError | None
) -> list[str]:
    """The reasons why a run may refuse to land anything. Only reading the table shows which rows
    are missing from it."""
    if disagreement is not None:
        return [str(disagreement)]
    removal = find_removal(job.name, target.table, target.ledger)
    if removal is None:
        return []
    return [
        f"{_removal_text(removal)}: `rangeland verify JOB.yaml` shows whether any are missing; "
        "if so, runs end with 73"
    ]


def _removal_text(removal: Removal) -> str:
    match removal:
        case UnknownCommits():
            return (
                f"the job's last plan was made for version {removal.planned_at_version}, the "
                f"table's log begins at {removal.log_begins_at}, and commits in between may have "
                "removed rows that were landed"
            )
        case Restored(lost=()):
            return f"RESTORE at version {removal.version} may have removed rows that were landed"
        case _:
            operation = removal.operation if isinstance(removal, CommitMetadata) else "RESTORE"
            where = f"{operation} at version {removal.version}"
            return f"{where} removed or replaced rows that were landed"


def _partition_status(
    position: JobPosition, losses: Sequence[LossEvent], log: LogState
) -> PartitionStatus:
    """The status of a partition, from its log and what has landed of it."""
    mark: LogMark | None = position.checkpoint.get(log.partition)
    held = find_hold(losses, mark, log)
    is_other_log = mark is not None and is_recreated(mark, log)
    if is_other_log:
        mark = None  # The mark belongs to a deleted log: nothing of this log is landed.
    return PartitionStatus(
        partition=log.partition,
        checkpoint=None if mark is None else mark.until_offset,
        start=log.start_offset,
        end=log.end_offset,
        leader=str(log.leader.address),
        landed=tuple(position.covered.of(log.partition, log.leader.topic_id)),
        held=held,
        is_recreated=is_other_log,
    )


def _with_log_ends(
    status: PartitionStatus, ends: LogEnds | None, isolation: Isolation, now_ms: int
) -> PartitionStatus:
    """Adds the ends of the log for both isolation levels, all from one response, and the
    transaction between them."""
    if ends is None:
        return status
    transaction = ends.transaction
    began_at_ms = ends.began_at_ms
    if began_at_ms is None and transaction is not None:
        began_at_ms = transaction.last_write_ms
    reads_committed = isolation is Isolation.READ_COMMITTED
    return replace(
        status,
        end=ends.last_stable_offset if reads_committed else ends.high_watermark,
        high_watermark=ends.high_watermark,
        last_stable_offset=ends.last_stable_offset,
        open_transaction=transaction,
        open_for_ms=None if began_at_ms is None else max(0, now_ms - began_at_ms),
    )


def _group(
    job: Job, cluster: ClusterSettings, partitions: tuple[Partition, ...], progress: Progress
) -> tuple[GroupStatus | None, dict[Partition, int | None]]:
    """The job's group and its offsets. An error only appears in the result."""
    if job.group is None:
        return None, {}
    name = job.group.id
    progress.step(f"asking for the group {name}")
    try:
        backend = open_backend(job, cluster)
        try:
            view = backend.view(name)
            offsets = backend.offsets(name, partitions)
            return GroupStatus(name, backend.name, view.state, view.members), offsets
        finally:
            backend.close()
    except RangelandError as error:
        return GroupStatus(name, why=str(error)), {}


def _with_ages(
    cluster: ClusterSettings, partitions: list[PartitionStatus], survey: Survey
) -> tuple[PartitionStatus, ...]:
    """Adds the age of the first record that is not landed; one is fetched from each log."""
    first_records = {
        p.partition: FirstRecord(
            survey.logs[p.partition].leader,
            max(p.start, p.start if p.checkpoint is None else p.checkpoint),
            p.end,
        )
        for p in partitions
        if p.lag > p.held_back
    }
    # If everything readable is landed, the first record that is not belongs to the transaction.
    partitions = [
        p if p.partition in first_records else replace(p, lag_ms=p.open_for_ms) for p in partitions
    ]
    if not first_records:
        return tuple(partitions)
    with ConnectionPool(cluster) as brokers:
        times = first_times(brokers, first_records)
    now_ms = survey.taken_at_ms
    ages = {p: max(0, now_ms - time_ms) for p, time_ms in times.items()}
    return tuple(replace(p, lag_ms=ages.get(p.partition, p.lag_ms)) for p in partitions)


def _recent_landing(outcome: OutcomeEvent) -> RecentLanding:
    return RecentLanding(
        sequence=outcome.sequence,
        prepared_at_ms=outcome.written_at_ms,
        landed=sum(r.counts.landed for r in outcome.ranges),
        files=len(outcome.files),
        hash=outcome.plan_hash,
    )
