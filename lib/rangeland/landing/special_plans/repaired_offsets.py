"""Determines the offsets at which a repair has rows.

Only there may its commit remove rows that have come back to the table. Anywhere else, such as at
offsets that the log has lost, the row that came back may be the only copy. Pure.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from rangeland.delta.ledger.events import OutcomeEvent
from rangeland.errors import Conflict
from rangeland.grouping import by_partition, group_by
from rangeland.loss import Loss
from rangeland.model import Partition, Range
from rangeland.planning.intervals import Interval, merge, overlap, subtract
from rangeland.planning.slice_receipt import RangeResult
from rangeland.planning.table_audit import LandedRange, offsets_with_rows

MAX_RANGES = 1_000
"""The maximum number of ranges in one condition: Spark parses and plans each of them."""


def are_rows_unrecorded(outcome: OutcomeEvent) -> bool:
    """Whether the ledger does not say at which offsets an outcome has rows, so that its files have
    to be read: its rowless offsets were too many, or a transform left out rows."""
    return any(map(_is_unrecorded, outcome.ranges))


def ranges_with_rows(
    outcome: OutcomeEvent,
    losses: Iterable[Loss] = (),
    in_files: Mapping[Partition, Sequence[Interval]] | None = None,
) -> list[Range]:
    """The offsets at which an outcome has rows. ``losses`` are the outcome's losses: if offsets are
    bytes, nothing else shows where rows are missing. ``in_files``: the offsets of the rows in its
    files, if they are unrecorded."""
    lost = by_partition(losses)
    ranges = []
    for result in outcome.ranges:
        partition = result.range.partition
        losses_there = [loss.interval for loss in lost.get(partition, ())]
        found = (in_files or {}).get(partition, ())
        for start, end in _intervals_with_rows(result, losses_there, found):
            ranges.append(replace(result.range, from_offset=start, until_offset=end))
    return ranges


def _intervals_with_rows(
    result: RangeResult, lost: Sequence[Interval], in_files: Sequence[Interval]
) -> list[Interval]:
    whole = result.range.interval
    if result.rowless is not None:
        return subtract(whole, result.rowless)
    if _is_unrecorded(result):
        return overlap(whole, in_files)
    return subtract(whole, lost) if _may_have_rows(result) else []


def _is_unrecorded(result: RangeResult) -> bool:
    is_recorded = result.rowless is not None or result.offsets_are_bytes
    return not is_recorded and _may_have_rows(result)


def _may_have_rows(result: RangeResult) -> bool:
    return result.counts.landed > 0


def joined_ranges(
    ranges: Iterable[Range], landed_ranges: Iterable[LandedRange], losses: Iterable[Loss]
) -> list[Range]:
    """The same ranges, joined across offsets that were landed but never had a row in the table,
    such as the marker of a transaction. ``landed_ranges`` and ``losses`` are all those of the
    ledger: ranges are not joined across offsets that are lost, or may still be landed from
    quarantine."""
    landed = group_by(landed_ranges, lambda landed_range: landed_range.range.partition)
    lost = by_partition(losses)
    joined = []
    for partition, parts in by_partition(ranges).items():
        known = landed.get(partition, [])
        own = [part.interval for part in parts]
        rowless = [interval for one in known for interval in one.rowless or ()]
        whole = (min(start for start, _ in own), max(end for _, end in own))
        kept_apart = merge(
            [
                *subtract(whole, [*own, *rowless]),
                *(interval for one in known for interval in offsets_with_rows(one)),
                *(loss.interval for loss in lost.get(partition, ())),
            ]
        )
        bridges = [gap for gap in subtract(whole, own) if not _overlaps(gap, kept_apart)]
        for start, end in merge([*own, *bridges]):
            joined.append(replace(parts[0], from_offset=start, until_offset=end))
    return joined


def _overlaps(interval: Interval, others: Sequence[Interval]) -> bool:
    """Whether one of the others, which are merged, has offsets of the interval."""
    start, end = interval
    index = bisect_left(others, end, key=lambda other: other[0])
    return index > 0 and others[index - 1][1] > start


def check_can_be_replaced(outcome: OutcomeEvent, ranges: Sequence[Range]) -> None:
    """Raises Conflict if rows that a repair lands have come back, and the repair has rows in more
    ranges than one condition may list. A condition with fewer, wider ranges would remove rows that
    the repair does not have."""
    if len(ranges) <= MAX_RANGES:
        return
    raise Conflict(
        f"rows of {ranges[0]} have come back before {outcome.plan_id} was finished",
        why=f"its rows are in {len(ranges)} separate ranges of offsets, and no more than "
        f"{MAX_RANGES} can be replaced in one commit",
        do="restore the table to the version before they came back, then run again",
    )
