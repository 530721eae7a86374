"""Limits how much one run lands, fairly across partitions.

Each partition gets the same share; what a small partition does not need is shared by the others. So
a hot partition never starves the rest, and a run below its limit lands everything. Ranges are
shortened at their end; the next run continues from there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter

from rangeland.errors import JobFileError
from rangeland.grouping import by_partition
from rangeland.model import LogState, Partition, Range


@dataclass(frozen=True, slots=True)
class Limits:
    """How much one run may land at most; None means no limit. ``max_bytes`` counts bytes as the
    broker stores them."""

    max_records: int | None = None
    max_bytes: int | None = None


def share_out(total: int, demands: Sequence[int], turn: int = 0) -> list[int]:
    """Shares that sum to ``min(total, sum(demands))``, none above its demand, as equal as the
    demands allow. A remainder goes to those that follow one another from ``turn`` on, in a circle.
    """
    shares = [0] * len(demands)
    available = max(0, total)
    unserved = sorted((i for i, x in enumerate(demands) if x > 0), key=demands.__getitem__)
    while unserved:
        fair, remainder = divmod(available, len(unserved))
        smallest = unserved[0]
        if demands[smallest] > fair:
            start = turn % len(unserved)
            in_turn = sorted(unserved)[start:] + sorted(unserved)[:start]
            for index, i in enumerate(in_turn):
                shares[i] = fair + (1 if index < remainder else 0)
            break
        shares[smallest] = demands[smallest]
        available -= demands[smallest]
        unserved.pop(0)
    return shares


def apply_limits(
    ranges: Sequence[Range],
    limits: Limits,
    logs: Mapping[Partition, LogState] | None = None,
    turn: int = 0,
) -> list[Range]:
    """The same ranges, shortened to their partition's share. If a log can be cut only at borders, a
    range ends at the last border within its share, or at the first border. ``turn``: a number that
    increases with each run, so that all partitions get a turn even if the limit is less than one
    record for each.

    A partition with several ranges spends its share on them in order, and nothing after a cut is
    planned, so that a checkpoint never passes what is left for a later run. Estimated bytes shrink
    in proportion; empty ranges are kept unchanged."""
    groups = [sorted(group) for group in by_partition(ranges).values()]
    # A limit by bytes takes at least one record: a larger one would otherwise never be landed.
    for limit, size_of, least in (
        (limits.max_records, attrgetter("width"), 0),
        (limits.max_bytes, attrgetter("estimated_bytes"), 1),
    ):
        if limit is not None:
            shares = share_out(limit, [sum(map(size_of, group)) for group in groups], turn)
            both = zip(groups, shares, strict=True)
            groups = [_spend(group, share, size_of, least) for group, share in both]
    if logs is not None:
        _check_record_limit_applies(ranges, limits, logs)
        groups = [_at_borders(group, ranges, logs) for group in groups]
    return sorted(r for group in groups for r in group)


def _check_record_limit_applies(
    ranges: Sequence[Range], limits: Limits, logs: Mapping[Partition, LogState]
) -> None:
    by_bytes = [r for r in ranges if (log := logs.get(r.partition)) and log.borders is not None]
    if limits.max_records is not None and by_bytes:
        raise JobFileError(
            "limits.max_records cannot be applied",
            why=f"the offsets of {by_bytes[0].partition} are bytes: how many records lie between "
            "two of them is not known before they are read",
            do="use limits.max_bytes",
        )


def _at_borders(
    group: list[Range], requested: Sequence[Range], logs: Mapping[Partition, LogState]
) -> list[Range]:
    """The ranges of one partition; the last one, if shortened, ends where the log can be cut."""
    log = logs.get(group[0].partition) if group else None
    if log is None or log.borders is None or group[-1] in requested:
        return group
    last = group[-1]
    start = last.partition, last.from_offset
    whole = next(r for r in requested if (r.partition, r.from_offset) == start)
    borders_inside = [b for b in log.borders if last.from_offset < b <= last.until_offset]
    borders_beyond = [b for b in log.borders if b > last.until_offset]
    end = borders_inside[-1] if borders_inside else last.from_offset
    if not borders_inside and len(group) == 1:
        # At least one segment is taken: a larger one would otherwise never be landed.
        end = min(borders_beyond[0], whole.until_offset) if borders_beyond else whole.until_offset
    return [*group[:-1], truncate(whole, end - last.from_offset)]


def _spend(
    group: list[Range], share: int, size_of: Callable[[Range], int], least: int
) -> list[Range]:
    """The ranges of one partition up to its share, with at least ``least`` records."""
    ranges: list[Range] = []
    for r in group:
        size = size_of(r)
        if size > share:
            return [*ranges, truncate(r, max(0 if ranges else least, r.width * share // size))]
        ranges.append(r)
        share -= size
    return ranges


def truncate(r: Range, records: int) -> Range:
    """The first ``records`` offsets of a range."""
    if records >= r.width:
        return r
    return replace(
        r,
        until_offset=r.from_offset + records,
        estimated_bytes=r.estimated_bytes * records // r.width,
    )
