"""The ranges that a plan will land, with estimates of their bytes and the losses inside them.
Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from rangeland.grouping import by_partition
from rangeland.loss import Loss
from rangeland.model import LogState, Range
from rangeland.planning.intervals import overlap, subtract
from rangeland.planning.slices import share_of

ASSUMED_RECORD_BYTES = 1024
MAX_ESTIMATED_BYTES = 1 << 50
"""More than any broker stores: a larger estimate is meaningless."""


@dataclass(frozen=True, slots=True)
class PlannedRanges:
    """The ranges of a plan, and the losses inside them, which are part of its proof."""

    ranges: tuple[Range, ...]
    losses: tuple[Loss, ...]

    @staticmethod
    def of(ranges: Iterable[Range], losses: Iterable[Loss]) -> PlannedRanges:
        """These ranges, with the parts of the losses that are inside them."""
        planned = tuple(ranges)
        return PlannedRanges(planned, tuple(losses_inside(planned, losses)))

    @property
    def readable(self) -> list[Range]:
        """The parts of the ranges that are not lost."""
        return without_losses(self.ranges, self.losses)


def losses_inside(ranges: Iterable[Range], losses: Iterable[Loss]) -> list[Loss]:
    """The parts of the losses that are inside the ranges, without actions: a plan skips all of its
    losses."""
    lost = by_partition(losses)
    return [
        Loss(loss.partition, start, end, loss.kind, loss.evidence, loss.is_sure, loss.topic_id)
        for r in ranges
        for loss in lost.get(r.partition, ())
        for start, end in overlap(r.interval, [loss.interval])
    ]


def without_losses(ranges: Iterable[Range], losses: Iterable[Loss]) -> list[Range]:
    """The readable parts of the ranges."""
    lost = by_partition(losses)
    return [
        Range(r.partition, start, end, r.topic_id, share_of(r, start, end))
        for r in ranges
        for start, end in subtract(r.interval, [x.interval for x in lost.get(r.partition, ())])
    ]


def with_estimate(r: Range, log: LogState) -> Range:
    """The range with ``estimated_bytes``: its share of the size of its log. If the size is unknown
    (an old broker, no permission), each record is assumed to take ``ASSUMED_RECORD_BYTES``. No
    proof depends on this: it only decides where slices are cut."""
    log_width = log.end_offset - log.start_offset
    if log.size_bytes is None or log_width <= 0:
        estimate = r.width * ASSUMED_RECORD_BYTES
    else:
        estimate = log.size_bytes * r.width // log_width
    return replace(r, estimated_bytes=max(0, min(estimate, MAX_ESTIMATED_BYTES)))
