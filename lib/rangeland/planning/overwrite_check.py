"""Finds landed offsets at which other records were written after an election.

For offsets landed by runs, the checkpoint's leader epoch shows this. Backfills also land offsets
after the checkpoint, so their plans record the leader epoch in which they were made. If a range
overlaps offsets that backfills have landed, leaders are asked where the records of that epoch end.
Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rangeland.loss import Loss
from rangeland.model import Partition, Survey
from rangeland.planning.coverage import Coverage
from rangeland.planning.incarnation import LogMark, is_recreated, truncation_loss
from rangeland.planning.intervals import overlap
from rangeland.planning.read_options import LandedRead


def in_earlier_epochs(landed: Sequence[LandedRead], survey: Survey) -> list[list[LandedRead]]:
    """The ranges that were landed in leader epochs before the present ones, by epoch."""
    by_epoch: dict[int, list[LandedRead]] = {}
    for read in landed:
        log = survey.logs.get(read.range.partition)
        epoch = None if read.mark is None else read.mark.epoch
        if log is None or epoch is None or log.leader.epoch is None:
            continue
        if epoch < log.leader.epoch:
            by_epoch.setdefault(epoch, []).append(read)
    return [by_epoch[epoch] for epoch in sorted(by_epoch)]


def marks_of_landed(landed: Sequence[LandedRead]) -> dict[Partition, LogMark]:
    """The marks up to which ranges of one leader epoch were landed."""
    marks: dict[Partition, LogMark] = {}
    for read in landed:
        mark = read.mark
        earlier = marks.get(read.range.partition)
        if mark is not None and (earlier is None or earlier.until_offset < mark.until_offset):
            marks[read.range.partition] = mark
    return marks


def find_overwritten(
    landed: Sequence[LandedRead], survey: Survey, coverage: Coverage
) -> list[Loss]:
    """The landed offsets after the end of the one leader epoch in which all of these landed."""
    losses = []
    for partition, mark in sorted(marks_of_landed(landed).items()):
        log = survey.logs.get(partition)
        if log is None or log.leader.is_replica or is_recreated(mark, log):
            continue
        if (loss := truncation_loss(mark, log)) is None:
            continue
        first = min(x.range.from_offset for x in landed if x.range.partition == partition)
        interval = (max(first, loss.from_offset), loss.until_offset)
        losses += [
            replace(loss, from_offset=start, until_offset=end)
            for start, end in overlap(interval, coverage.of(partition, log.leader.topic_id))
        ]
    return losses
