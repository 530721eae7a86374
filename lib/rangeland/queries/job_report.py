"""``report``: everything that a page about a job shows, from its table, its ledger and its logs."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from operator import itemgetter
from typing import TYPE_CHECKING

from rangeland.clock import wall_ms
from rangeland.delta.ledger.events import LossEvent, OutcomeEvent, PlanEvent
from rangeland.delta.table_metadata import CommitMetadata
from rangeland.dialects.dialect import load_dialect
from rangeland.errors import RangelandError
from rangeland.job import Job
from rangeland.job.job_text import JobText, values_without_secrets
from rangeland.job.value_parsers import without_secrets
from rangeland.landing.audit.verification import Landings
from rangeland.landing.drafts.held_partitions import last_hold
from rangeland.landing.drafts.unfinished_plans import plans_to_finish
from rangeland.landing.target.landing_target import LandingTarget
from rangeland.landing.target.ledger_history import plan_of
from rangeland.landing.target.table_warnings import property_warnings
from rangeland.loss import Action, Loss, LossKind
from rangeland.model import Counts, Partition, Range
from rangeland.planning.coverage import GrowingCoverage
from rangeland.planning.incarnation import LogMark, may_be_same
from rangeland.planning.listed_partitions import is_read
from rangeland.planning.plan import PlanId
from rangeland.planning.plan_kind import PlanKind
from rangeland.progress_events import Progress
from rangeland.queries.job_status import (
    LedgerAccount,
    LogsNow,
    ask_logs,
    disagreements,
    read_account,
)
from rangeland.queries.verify_and_find import verify
from rangeland.query_results import GroupStatus
from rangeland.report_results import JobReport, ReportedLanding, ReportedLoss, ReportedPartition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOKED_UP = 60
"""For how many of the newest landings the table's log is asked for their commits."""


def report(
    job: Job, text: JobText, spark: SparkSession, progress: Progress, *, verifies: bool = False
) -> JobReport:
    """Reads the whole ledger. If the logs cannot be asked, the rest is reported all the same.
    ``verifies``: also compares the rows of the table with the ledger, as ``verify`` does."""
    account = read_account(job, spark, progress)
    target = account.target

    def reads(partition: Partition) -> bool:
        listed = job.source.partitions.get(partition.topic)
        return job.source.reads(partition.topic) and is_read(partition, listed)

    logs, log_error = _logs_if_reached(job, account, progress)
    landings = [] if target.ledger.opened is None else target.history.landings()
    return JobReport(
        job=job.name,
        job_file=os.path.basename(text.name),
        table=job.sink.table,
        made_at_ms=wall_ms(),
        table_uri=_shown_uri(target),
        table_version=target.table.version,
        partitions=reported_partitions(job, account, logs),
        log_error="" if log_error is None else str(log_error),
        landings=_with_commits(target, [x for x in landings if x[0].job == job.name]),
        losses=reported_losses(account.losses, landings, account.position.checkpoint, reads),
        unfinished_plans=plans_to_finish(job, account.unfinished_plans),
        group=logs.group,
        warnings=(
            *property_warnings(target.table.snapshot),
            *disagreements(job, target, account.disagreement),
        ),
        settings=values_without_secrets(text),
        verification=verify(job, spark, progress) if verifies else None,
        offsets_are_bytes=load_dialect(job.source.dialect).capabilities.offsets_are_bytes,
    )


def _logs_if_reached(
    job: Job, account: LedgerAccount, progress: Progress
) -> tuple[LogsNow, RangelandError | None]:
    try:
        return ask_logs(job, account, progress), None
    except RangelandError as error:
        group = None
        if job.group is not None:
            group = GroupStatus(job.group.id, why="its logs could not be asked, nor was it")
        return LogsNow((), group), error


def _shown_uri(target: LandingTarget) -> str | None:
    """The URI of the table, if it has one that contains no key."""
    path = target.table.location.path
    with suppress(ValueError):
        return None if path is None else without_secrets(path)
    return None


def reported_partitions(
    job: Job, account: LedgerAccount, logs: LogsNow
) -> tuple[ReportedPartition, ...]:
    """All partitions that have a log or were landed, by name."""
    position = account.position
    by_name = {log.partition: log for log in logs.partitions}
    absent = {loss.partition: f"{loss.kind}: {loss.evidence}" for loss in logs.absent}
    known = position.landed_partitions(job.source.partitions)
    partitions = []
    for partition in sorted({*by_name, *absent, *known}):
        log = by_name.get(partition)
        if log is not None:
            of_log = ReportedPartition(partition, log.checkpoint, log.landed, log, log.held)
            partitions.append(of_log)
            continue
        mark = position.checkpoint.get(partition)
        partitions.append(
            ReportedPartition(
                partition,
                None if mark is None else mark.until_offset,
                tuple(position.covered.of(partition, None if mark is None else mark.topic_id)),
                held=last_hold(account.losses, partition, mark),
                absent=absent.get(partition, ""),
            )
        )
    return tuple(partitions)


# --- landings ------------------------------------------------------------------------------


def _with_commits(target: LandingTarget, landings: Landings) -> tuple[ReportedLanding, ...]:
    """The landings in the order in which their plans were entered, the newest with their
    commits."""
    reported = []
    first_new = len(landings) - LOOKED_UP
    commits = _commits_of(target, [plan for plan, _ in landings[max(0, first_new) :]])
    for at, (plan, outcome) in enumerate(landings):
        kind = PlanKind.of_application(plan.job, plan.application)
        if outcome.is_given_up(kind) or outcome.was_ended(kind):
            continue
        landing = reported_landing(plan, outcome, kind)
        if at >= first_new:
            commit = commits.get(plan.plan_id)
            landing = replace(landing, is_adoption=plan_of(plan).is_adoption)
            if commit is not None:
                landing = replace(
                    landing, table_version=commit.version, committed_at_ms=commit.committed_at_ms
                )
        reported.append(landing)
    return tuple(reported)


def reported_landing(plan: PlanEvent, outcome: OutcomeEvent, kind: PlanKind) -> ReportedLanding:
    return ReportedLanding(
        sequence=plan.sequence,
        kind=kind,
        prepared_at_ms=outcome.written_at_ms,
        counts=Counts.sum(one.counts for one in outcome.ranges),
        ranges=tuple(one.range for one in outcome.ranges),
        files=len(outcome.files),
        size_bytes=sum(file.size_bytes for file in outcome.data_files),
        hash=outcome.plan_hash,
    )


def _commits_of(
    target: LandingTarget, plans: Sequence[PlanEvent]
) -> Mapping[PlanId, CommitMetadata]:
    """The commits that landed these plans, as far as the table's log still has them."""
    location = target.table.location
    if not plans or location.path is None:
        return {}
    since = min(plan.table_version or 0 for plan in plans)
    try:
        commits = location.delta.commits(location.path, since)
    except RangelandError:
        return {}  # They only add versions and times, which are then unknown.
    return {
        PlanId(application, sequence): commit
        for commit in commits
        for application, sequence in commit.transactions.items()
    }


# --- losses ----------------------------------------------------------------------------------


def reported_losses(
    losses: Sequence[LossEvent],
    landings: Landings,
    checkpoint: Mapping[Partition, LogMark],
    reads: Callable[[Partition], bool],
) -> tuple[ReportedLoss, ...]:
    """The losses, each with the part that no later landing of any job includes. ``losses`` and
    ``landings`` are all those of the job and of the table, in order; ``reads`` says whether the
    job reads a partition."""
    remaining = remaining_parts(losses, landings)
    undecided = undecided_failures(losses, landings)
    reported = []
    for event in losses:
        partition = event.loss.partition
        is_whole_log = event.loss.kind.traits.is_whole_log
        parts = () if is_whole_log else remaining[event]
        ends_runs = (
            event in undecided
            and (is_whole_log or bool(parts))
            and reads(partition)
            and _is_at(checkpoint.get(partition), event.loss)
        )
        reported.append(ReportedLoss(event, parts, ends_runs))
    return tuple(reported)


def remaining_parts(
    losses: Sequence[LossEvent], landings: Landings
) -> dict[LossEvent, tuple[Range, ...]]:
    """The part of each loss that no later landing includes. Later than a loss with a plan are the
    landings of plans that were entered after that; later than any other loss are those that were
    prepared after the loss was written."""
    places = {plan.plan_id: at for at, (plan, _) in enumerate(landings)}
    with_plan, without_plan = [], []
    for event in losses:
        if event.plan_hash and event.plan_id in places:
            with_plan.append((places[event.plan_id], event))
        else:
            without_plan.append((event.written_at_ms, event))
    outcomes = [outcome for _, outcome in landings]
    by_time = [(outcome.written_at_ms, outcome) for outcome in outcomes]
    return {
        **_remaining_after(with_plan, list(enumerate(outcomes))),
        **_remaining_after(without_plan, by_time),
    }


def _remaining_after(
    losses: Sequence[tuple[int, LossEvent]], landings: Sequence[tuple[int, OutcomeEvent]]
) -> dict[LossEvent, tuple[Range, ...]]:
    """The part of each loss that is in no landing with a higher number than the loss has. Goes
    through the landings once, from the highest number down."""
    lossy = {event.loss.partition for _, event in losses}
    earlier = sorted(landings, key=itemgetter(0))
    later = GrowingCoverage()
    remaining = {}
    for place, event in sorted(losses, key=itemgetter(0), reverse=True):
        while earlier and earlier[-1][0] > place:
            for result in earlier.pop()[1].ranges:
                if result.range.partition in lossy:
                    later.add(result.range)
        remaining[event] = tuple(later.uncovered_parts(_lost_range(event)))
    return remaining


def _lost_range(event: LossEvent) -> Range:
    """The range of a loss. A loss without offsets stands for the first of them."""
    lost = event.loss.range
    return lost if lost.width else replace(lost, until_offset=lost.from_offset + 1)


def undecided_failures(losses: Sequence[LossEvent], landings: Landings) -> set[LossEvent]:
    """The losses that ended a run and after which the ledger shows no decision: no run has skipped
    or held anything of their partition since, nor landed it. Losses of plans ended no run: such
    plans were given up."""
    decided: dict[tuple[str, Partition], int] = {}
    for at, event in enumerate(losses):
        if event.loss.action in (Action.SKIP, Action.HOLD):
            decided[event.application, event.loss.partition] = at
    landed_at_ms: dict[tuple[str, Partition], int] = {}
    for _, outcome in landings:
        for result in outcome.ranges:
            key = outcome.application, result.range.partition
            landed_at_ms[key] = max(landed_at_ms.get(key, 0), outcome.written_at_ms)
    undecided = set()
    for at, event in enumerate(losses):
        key = event.application, event.loss.partition
        kind = PlanKind.of_application(event.job, event.application)
        is_of_run = kind.traits.moves_checkpoint and not event.plan_hash
        is_last = decided.get(key, -1) < at and landed_at_ms.get(key, -1) <= event.written_at_ms
        if event.loss.action is Action.FAIL and is_of_run and is_last:
            undecided.add(event)
    return undecided


def _is_at(mark: LogMark | None, loss: Loss) -> bool:
    """Whether the checkpoint, if there is one, is still before a loss. A loss of a recreated topic
    has the id of the new log, in which no run has a checkpoint yet."""
    if mark is None:
        return True
    if mark.until_offset > loss.from_offset:
        return False
    if loss.kind is LossKind.RECREATED:
        return loss.topic_id is None or mark.topic_id != loss.topic_id
    return may_be_same(mark.topic_id, loss.topic_id)
