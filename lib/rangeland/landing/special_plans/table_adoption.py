"""Records in the ledger an operator's decision that the table is right.

If table and ledger disagree, nothing lands until an operator has decided (see ``identity_check``).
Adopting means going on with this table. Whatever the ledger calls landed stays landed, and rows of
the job's topics that the ledger does not know count as landed from now on. The decision is a plan
of the job's own sequence that reads nothing, entered together with its outcome: if this driver dies
before the table has it, the next run commits it like any prepared outcome. It ends a plan of that
sequence that another driver is still reading: once a later plan is in the table, that plan's rows
could not be committed, and later runs plan its offsets again. It also ends a plan whose prepared
files are gone. Rows that are in the ledger and not in the table are holes, which
``backfill --missing`` lands again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rangeland.clock import wall_ms
from rangeland.delta.transaction_log.table_commit import CommittedOutcome
from rangeland.dialects.dialect import load_dialect
from rangeland.errors import Bug, Conflict
from rangeland.job import Job
from rangeland.landing.landing_context import LandingContext
from rangeland.landing.target.job_history import EnteredPlan
from rangeland.landing.target.landing_commits import landed_at
from rangeland.model import Partition, Range
from rangeland.planning.coverage import Coverage, uncovered_parts
from rangeland.planning.incarnation import LogMark
from rangeland.planning.plan import Plan, advance
from rangeland.planning.table_audit import IntervalArrays
from rangeland.results import AdoptResult
from rangeland.spark.offset_scan import intervals_in, table_frame


def adopt_table(context: LandingContext, gone: Sequence[EnteredPlan] = ()) -> AdoptResult:
    """Accepts the table as it is now, with all its rows, as the job's own. ``gone``: plans of the
    job's sequence that are not in the table and whose prepared files are gone, which it ends."""
    job = context.job
    target = context.target
    step = context.progress.step
    table = target.table
    history = target.history
    writer = target.writer
    step(f"looking at the table {job.sink.table}")
    target.ledger.refresh()  # it may have been read long ago
    outcomes = [entered.outcome for entered in gone if entered.outcome is not None]
    last = history.last_known(job.application, outcomes)
    ranges: list[Range] = []
    if table.version is not None:
        step(f"reading the offsets in {job.sink.table}")
        ranges = _unknown_ranges(context, last.covered)
    ended = [entered.plan for entered in gone] + history.plans_without_outcome(job.application)
    checkpoint = {**_begins(ended), **last.checkpoint}
    plan = _plan(job, ranges, checkpoint, last.sequence)
    writer.open_or_create(context.row_schema)
    # Later runs finish these, except for those of the job's own sequence, which the adoption ends.
    # Plans of which nobody knows whether they have landed, which may be the reason for adopting,
    # count as landed.
    outcome = writer.enter_adoption(plan, history.known_unfinished_plans(), outcomes)
    if outcome is None:
        raise Conflict(
            f"the table {job.sink.table} was not adopted",
            why="another driver wrote to its ledger at the same time",
            do="stop the runs of this table, then adopt it again",
        )
    landed = writer.commit_outcome(outcome)
    if not isinstance(landed, CommittedOutcome):
        raise Bug(f"the adoption {plan.id} was not committed, although it has no files: {landed}")
    location = table.location
    version = landed.version
    if version is None:
        version = landed_at(location.delta, location.uri, plan.id, table.version or 0)
    location.delta.wait_for_maintenance()
    return AdoptResult(job.name, job.sink.table, plan.sequence, version, tuple(ranges))


def _begins(ended: Sequence[Plan]) -> dict[Partition, LogMark]:
    """The beginnings of the partitions of these plans: the lowest offset of their ranges, or the
    mark in the first plan's checkpoint if there was nothing to land. A job that has landed nothing
    else of a partition continues there, and not where its job file now begins."""
    plans = sorted(ended, key=lambda p: p.sequence, reverse=True)
    marks = {p: mark for plan in plans for p, mark in plan.checkpoint.items()}
    ranges = [r for plan in plans for r in plan.ranges]
    ranges.sort(key=lambda r: r.from_offset, reverse=True)
    return marks | {r.partition: LogMark(r.from_offset, r.topic_id) for r in ranges}


def check_can_be_read(plan: Plan) -> None:
    """Raises Conflict for an adoption that has no outcome, and cannot get one, since it reads
    nothing: earlier versions entered the two one after the other. Only an operator can say whether
    the table is still right; another adoption then replaces this one."""
    if plan.is_adoption:
        raise Conflict(
            f"the adoption {plan.id} is in the ledger and was not finished",
            why=f"its driver died; whether {plan.ranges[0]} is still in the table as it was then "
            "is unknown",
            do="run `rangeland adopt JOB.yaml` again, which counts the table's present rows as "
            "landed",
        )


def _unknown_ranges(context: LandingContext, covered: Coverage) -> list[Range]:
    """Offsets of the job's topics that have rows in the table but are unknown to the ledger. The
    table is read in the version that was read with the ledger: what lands meanwhile is in later
    versions of both."""
    job = context.job
    spark = context.spark
    table = context.target.table
    capabilities = load_dialect(job.source.dialect).capabilities
    frame = table_frame(spark, table.location.uri, table.log_columns, version=table.version)
    by_broker = capabilities.numbered_per_broker
    by_partition = intervals_in(frame, table.log_columns, by_broker=by_broker)
    ranges = [
        r
        for partition, intervals in sorted(by_partition.items())
        if job.source.reads(partition.topic)
        for r in _ranges(partition, intervals)
    ]
    unknown = uncovered_parts(ranges, covered)
    if unknown and capabilities.offsets_are_bytes:
        raise Conflict(
            f"rows of {unknown[0].partition} in {job.sink.table} cannot count as landed",
            why="offsets of this dialect are bytes, so rows do not say where an entry ends",
            do="land in another table",
        )
    return unknown


def _ranges(partition: Partition, intervals: IntervalArrays) -> list[Range]:
    """Ranges of the intervals, merged where these touch or overlap: an offset may have several
    rows."""
    joined: list[Range] = []
    for first, until in sorted(zip(*(side.tolist() for side in intervals), strict=True)):
        if joined and first <= joined[-1].until_offset:
            first, until = joined[-1].from_offset, max(until, joined.pop().until_offset)
        joined.append(Range(partition, first, until))
    return joined


def _plan(
    job: Job, ranges: list[Range], checkpoint: Mapping[Partition, LogMark], sequence: int
) -> Plan:
    return Plan(
        job=job.name,
        application=job.application,
        sequence=sequence,
        dialect=job.source.dialect,
        isolation=job.source.isolation,
        tags=job.source.tags,
        ranges=tuple(ranges),
        slices=(),
        checkpoint=advance(checkpoint, tuple(ranges)),
        made_at_ms=wall_ms(),
    )
