"""Finds the landing that an offset came from, and the row that it has in the table.

The ledger says what became of the offset, the table which file has its row. No broker is asked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rangeland.delta.ledger.events import EventRange, PlanEvent
from rangeland.delta.transaction_log.table_commit import landing_commit
from rangeland.errors import UsageError
from rangeland.landing.landing_target import LandingTarget
from rangeland.landing.table_rows import TableRows, table_rows
from rangeland.landing.verification import Landings
from rangeland.loss import Action, Loss
from rangeland.model import Partition
from rangeland.planning.table_audit import LandedRange
from rangeland.results import Finding, FindState

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LEFT_OUT = {Action.QUARANTINE: FindState.QUARANTINED, Action.SKIP: FindState.LOST}


def find_offset(
    spark: SparkSession, target: LandingTarget, partition: Partition, offset: int
) -> Finding:
    """Finds the landing that an offset came from, and its row. Raises UsageError where several
    brokers have that partition."""
    landed = target.history.landings()
    partition = _landed_partition(landed, partition)
    landings = [
        (plan, outcome)
        for plan, outcome in landed
        if any(event_range.range.has(partition, offset) for event_range in outcome.ranges)
    ]
    rows = table_rows(spark, target.table)
    files = rows.files_with(partition, offset)
    if not landings:
        state = FindState.UNKNOWN_ROW if files else FindState.NOT_LANDED
        why = "" if files else _why_not(landed, partition, offset)
        return Finding(partition, offset, state, tuple(files), why=why)
    plan, outcome = landings[-1]
    event_range = next(e for e in outcome.ranges if e.range.has(partition, offset))
    why = ""
    if files:
        state = FindState.LANDED
    elif (loss := _loss_of(target, plan, partition, offset)) is not None:
        state, why = _LEFT_OUT[loss.action], f"{loss.kind}, {loss.evidence}"
    elif any(start <= offset < end for start, end in event_range.gaps or ()):
        state = FindState.NO_ROW
    elif event_range.in_bytes:
        state = FindState.NO_ROW if _is_whole(rows, event_range) else FindState.NO_ROW_OR_HOLE
    else:
        whole = (
            event_range.counts is not None and event_range.counts.landed == event_range.range.width
        )
        state = (
            FindState.HOLE if whole or event_range.gaps is not None else FindState.NO_ROW_OR_HOLE
        )
    commit = landing_commit(
        target.table.delta,
        target.table.uri,
        plan.plan_id,
        plan.table_version or 0,
    )
    return Finding(
        partition,
        offset,
        state,
        tuple(files),
        job=plan.job,
        application=plan.application,
        sequence=plan.sequence,
        table_version=None if commit is None else commit.version,
        leader=event_range.leader,
        landed_at_ms=outcome.written_at_ms if commit is None else commit.committed_at_ms,
        range=event_range.range,
        earlier=tuple(p.plan_id for p, _ in landings[:-1]),
        why=why,
    )


def _loss_of(
    target: LandingTarget, plan: PlanEvent, partition: Partition, offset: int
) -> Loss | None:
    """What a plan has skipped or quarantined at an offset."""
    losses = (event.loss for event in target.history.losses(plan.plan_id))
    return next(
        (loss for loss in losses if loss.action in _LEFT_OUT and loss.range.has(partition, offset)),
        None,
    )


def _landed_partition(landings: Landings, partition: Partition) -> Partition:
    """The landed partition that is meant: a partition without a broker may be that of any."""
    ranges = (event_range.range for _, outcome in landings for event_range in outcome.ranges)
    same = {r.partition for r in ranges if r.partition.of_any_broker == partition}
    if len(same) > 1:
        raise UsageError(
            f"{partition} is a partition of each of {len(same)} brokers",
            why=f"these have landed: {', '.join(map(str, sorted(same)))}",
            do="name the broker, as in 1-0, or with --broker",
        )
    return same.pop() if same else partition


def _why_not(landings: Landings, partition: Partition, offset: int) -> str:
    """The position of an offset that was never landed, relative to those that were."""
    ranges = [e.range for _, o in landings for e in o.ranges if e.range.partition == partition]
    if not ranges:
        return f"nothing of {partition} has landed in it"
    first, until = min(r.from_offset for r in ranges), max(r.until_offset for r in ranges)
    if first <= offset < until:
        return f"it lies between offsets of {partition} that have landed"
    return f"it has offsets {first} to {until - 1} of {partition}"


def _is_whole(rows: TableRows, event_range: EventRange) -> bool:
    """True if the table has all rows of a range whose offsets are bytes."""
    if event_range.counts is None:
        return False
    landed_range = LandedRange(event_range.range, event_range.counts.landed, in_bytes=True)
    counted = rows.entries({event_range.range.partition: [landed_range]})
    return counted[event_range.range.partition].rows[0] >= event_range.counts.landed
