"""Verifies, by reading the table itself, what has landed.

The ledger records which offsets landed and which of them have no row; the table shows which offsets
have rows. No broker is asked and nothing is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from rangeland.delta.ledger.covered_offsets import without_still_to_come
from rangeland.delta.ledger.events import LossEvent, OutcomeEvent, PlanEvent
from rangeland.grouping import group_by
from rangeland.job import Job
from rangeland.landing.audit.table_rows import table_rows
from rangeland.landing.target.landing_target import LandingTarget
from rangeland.model import Partition
from rangeland.planning.hole_location import LocatedHoles, locate_holes
from rangeland.planning.table_audit import (
    Audit,
    IntervalArrays,
    LandedRange,
    audit,
    ranges_in_bytes,
    ranges_in_force,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Landings = Sequence[tuple[PlanEvent, OutcomeEvent]]


@dataclass(frozen=True, slots=True)
class Verification:
    """The result of a verification. ``landed_ranges`` are the landed ranges in force, ``audit``
    compares them with the table, ``gone_files`` are files that the table names but its store no
    longer has. ``intervals``: the offsets that have rows, unless offsets are bytes."""

    landings: int = 0
    landed_ranges: tuple[LandedRange, ...] = ()
    audit: Audit = field(default_factory=Audit)
    gone_files: tuple[str, ...] = ()
    intervals: Mapping[Partition, IntervalArrays] = field(default_factory=dict)


def examine(spark: SparkSession, target: LandingTarget) -> Verification:
    """Compares the table with all its landings. Reads three columns of the whole table, in the
    version that was last read: rows that land in the meantime are in a later version."""
    landings = target.history.landings()
    landed_ranges = ranges_in_force(landed_ranges_of(landings, target.history.losses()))
    by_broker = any(landed_range.range.partition.broker for landed_range in landed_ranges)
    rows = table_rows(spark, target.table)
    in_bytes = ranges_in_bytes(landed_ranges)
    counted = rows.entries(in_bytes) if in_bytes else {}
    # If offsets are bytes in all logs, every entry would be an interval, which is useless.
    dense = not in_bytes or len(in_bytes) < len({p.range.partition for p in landed_ranges})
    intervals = rows.intervals(by_broker=by_broker) if dense else {}
    intervals = {p: of_partition for p, of_partition in intervals.items() if p not in in_bytes}
    return Verification(
        landings=len(landings),
        landed_ranges=tuple(landed_ranges),
        audit=audit(landed_ranges, intervals, counted),
        gone_files=tuple(f.path for f in target.table.gone_files()),
        intervals=intervals,
    )


def landed_ranges_of(landings: Landings, losses: Iterable[LossEvent] = ()) -> list[LandedRange]:
    """The ranges of all landings, in order. ``losses``: all losses in the ledger. A range whose
    rowless offsets were not recorded ends where its log ended: its rows could not be counted once a
    later landing had cut it."""
    of_plans = (event for event in losses if event.plan_hash)
    by_plan = group_by(of_plans, lambda event: event.plan_id)
    landed_ranges = []
    for _, outcome in landings:
        losses_of_plan = [event.loss for event in by_plan.get(outcome.plan_id, ())]
        for result in outcome.ranges:
            pieces = [result]
            if result.rowless is None:
                pieces = without_still_to_come([result], losses_of_plan)
            where = pieces[0].range if len(pieces) == 1 else result.range
            landed = result.counts.landed
            rowless = result.rowless
            landed_ranges.append(LandedRange(where, landed, rowless, result.offsets_are_bytes))
    return landed_ranges


def holes_of_job(
    spark: SparkSession, target: LandingTarget, job: Job, warn: Callable[[str], None]
) -> LocatedHoles:
    """The holes in the topics that a job reads."""
    verification = examine(spark, target)
    located = locate_holes(
        verification.landed_ranges, verification.audit.holes, verification.intervals
    )
    if located.shared:
        warn(
            f"{located.shared[0]} was landed from two topics of that name, one created after the "
            "other was deleted: it is unknown which topic's rows are missing, so they are left "
            "alone"
        )
    holes = [hole for hole in located.ranges if job.source.reads(hole.partition.topic)]
    if topics := sorted({h.partition.topic for h in located.ranges if h not in holes}):
        warn(f"offsets of {', '.join(topics)} are missing too, which this job does not read")
    return replace(located, ranges=tuple(holes))
