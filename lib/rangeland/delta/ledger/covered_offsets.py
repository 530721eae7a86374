"""Computes which offsets are covered, by interval arithmetic. Pure.

The coverage rule is built on this: an offset lands once, whichever kind of plan lands it. All
offsets in an outcome's ranges are covered, including control records and accepted losses, except
where the log ended before them: records written there later have not landed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from rangeland.delta.ledger.events import CoveredInterval, CoveredIntervals
from rangeland.loss import Loss
from rangeland.model import Partition
from rangeland.planning.intervals import Interval, merge, subtract
from rangeland.planning.slice_receipt import RangeResult

_Offsets = list[Interval]


def with_ranges(
    covered: CoveredIntervals, ranges: Iterable[RangeResult]
) -> dict[Partition, tuple[CoveredInterval, ...]]:
    """``covered`` with these ranges merged in."""
    added: dict[Partition, list[CoveredInterval]] = {}
    for result in ranges:
        r = result.range
        added.setdefault(r.partition, []).append(
            CoveredInterval(r.from_offset, r.until_offset, r.topic_id)
        )
    touched = {
        p: merge_covered([*covered.get(p, ()), *intervals]) for p, intervals in added.items()
    }
    return {**covered, **touched}


def without_ranges(
    covered: CoveredIntervals, ranges: Iterable[RangeResult]
) -> dict[Partition, tuple[CoveredInterval, ...]]:
    """``covered`` without these ranges."""
    by_log: dict[tuple[Partition, str | None], _Offsets] = {}
    for r in (result.range for result in ranges):
        by_log.setdefault((r.partition, r.topic_id), []).append(r.interval)
    return {
        partition: tuple(
            CoveredInterval(start, end, one.topic_id)
            for one in intervals
            for start, end in subtract(
                (one.from_offset, one.until_offset), by_log.get((partition, one.topic_id), [])
            )
        )
        for partition, intervals in covered.items()
    }


def without_still_to_come(
    ranges: Iterable[RangeResult], losses: Iterable[Loss]
) -> list[RangeResult]:
    """The ranges of an outcome without its losses after the end of a log."""
    ends = [loss for loss in losses if loss.kind.traits.is_still_to_come]
    return [
        replace(result, range=replace(result.range, from_offset=start, until_offset=end))
        for result in ranges
        for start, end in subtract(
            result.range.interval,
            [loss.interval for loss in ends if loss.partition == result.range.partition],
        )
    ]


def merge_covered(intervals: Iterable[CoveredInterval]) -> tuple[CoveredInterval, ...]:
    """The intervals, merged per topic id and sorted by id and offset."""
    by_id: dict[str | None, _Offsets] = {}
    for interval in intervals:
        by_id.setdefault(interval.topic_id, []).append(
            (interval.from_offset, interval.until_offset)
        )
    return tuple(
        CoveredInterval(start, end, topic_id)
        for topic_id in sorted(by_id, key=lambda t: t or "")
        for start, end in merge(by_id[topic_id])
    )
