"""Ranges that the checkpoint passes over because a job names a later beginning.

A run with an explicit beginning moves the checkpoint there, even if it lands nothing. The offsets
between the old checkpoint and the new beginning are *passed over*: no later run lands them, since
runs continue from the checkpoint. The job asked for this, so they are not a hole; a warning reports
them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rangeland.grouping import by_partition
from rangeland.model import FromCheckpoint, LogState, Partition, Range
from rangeland.planning.bound_resolution import RangeRequest
from rangeland.planning.incarnation import LogMark, may_be_same
from rangeland.planning.intervals import Interval, subtract
from rangeland.planning.job_position import JobPosition
from rangeland.planning.plan import Plan
from rangeland.wording import count_noun


def new_beginnings(
    request: RangeRequest,
    ranges: Iterable[Range],
    logs: Mapping[Partition, LogState],
    checkpoint: Mapping[Partition, LogMark],
) -> list[Range]:
    """The new beginnings of partitions for which the request names one, as empty ranges. A
    checkpoint never moves back, nor past the end of its log."""
    return [
        Range(r.partition, r.from_offset, r.from_offset, r.topic_id)
        for r in ranges
        if not isinstance(request.from_bounds.of(r.partition), FromCheckpoint)
        and _is_ahead(r, logs[r.partition], checkpoint.get(r.partition))
    ]


def _is_ahead(r: Range, log: LogState, mark: LogMark | None) -> bool:
    if r.from_offset > log.end_offset:
        return False
    if mark is None:  # the log has nothing before its start
        return r.from_offset > log.start_offset
    return may_be_same(mark.topic_id, r.topic_id) and r.from_offset > mark.until_offset


def ranges_passed_over(plan: Plan, position: JobPosition) -> tuple[Range, ...]:
    """The offsets that a plan's checkpoint passes over, and that no plan lands."""
    passed_over = []
    planned = by_partition(plan.ranges)
    for partition, mark in sorted(position.checkpoint.items()):
        new = plan.checkpoint.get(partition, mark)
        if not may_be_same(mark.topic_id, new.topic_id) or new.until_offset <= mark.until_offset:
            continue
        covered = [r.interval for r in planned.get(partition, ())]
        covered += position.covered.of(partition, new.topic_id)
        passed_over += [
            Range(partition, start, end, new.topic_id)
            for start, end in subtract((mark.until_offset, new.until_offset), covered)
        ]
    return tuple(passed_over)


def passed_over_intervals(
    landed: Sequence[Interval], checkpoint: int | None
) -> tuple[Interval, ...]:
    """The offsets that earlier runs passed over between the first landed offset and the
    checkpoint."""
    if checkpoint is None or not landed:
        return ()
    first = landed[0][0]
    return tuple(subtract((first, max(first, checkpoint)), landed))


def passed_over_warnings(ranges: Sequence[Range]) -> list[str]:
    """One warning for each range that is passed over, before the plan is entered."""
    return [
        f"{r} is passed over: the run begins after it, the checkpoint moves past it, and no "
        f"later run lands these {count_noun(r.width, 'offset')}. A backfill does: "
        f"{backfill_command(r)}"
        for r in ranges
    ]


def backfill_command(passed_over: Range) -> str:
    """The command that lands a range that was passed over."""
    p = passed_over.partition
    name = f"{p.broker}-{p.number}" if p.broker else f"{p.number}"
    options = (
        f"""--{word} '{{"{p.topic}": {{"{name}": {offset}}}}}'"""
        for word, offset in zip(("from", "until"), passed_over.interval, strict=True)
    )
    return f"rangeland backfill JOB.yaml {' '.join(options)}"
