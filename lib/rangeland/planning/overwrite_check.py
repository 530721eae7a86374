"""Landed offsets at which an election has put other records since.

The checkpoint's leader epoch shows this for what runs have landed. Backfills land offsets after the
checkpoint, too: their plans have the leader epoch that they were made in, and where its records end
is asked for when a range meets what they have landed. Pure.
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
    found: dict[int, list[LandedRead]] = {}
    for one in landed:
        log = survey.logs.get(one.range.partition)
        epoch = None if one.mark is None else one.mark.epoch
        if log is None or epoch is None or log.leader.epoch is None:
            continue
        if epoch < log.leader.epoch:
            found.setdefault(epoch, []).append(one)
    return [found[epoch] for epoch in sorted(found)]


def marks_of_landed(landed: Sequence[LandedRead]) -> dict[Partition, LogMark]:
    """The marks up to which ranges of one leader epoch were landed."""
    marks: dict[Partition, LogMark] = {}
    for one in landed:
        mark, known = one.mark, marks.get(one.range.partition)
        if mark is not None and (known is None or known.until_offset < mark.until_offset):
            marks[one.range.partition] = mark
    return marks


def find_overwritten(
    landed: Sequence[LandedRead], survey: Survey, coverage: Coverage
) -> list[Loss]:
    """The landed offsets after the end of the leader epoch that all of these were landed in."""
    losses = []
    for partition, mark in sorted(marks_of_landed(landed).items()):
        log = survey.logs.get(partition)
        if log is None or log.leader.is_replica or is_recreated(mark, log):
            continue
        if (gone := truncation_loss(mark, log)) is None:
            continue
        first = min(one.range.from_offset for one in landed if one.range.partition == partition)
        span = (max(first, gone.from_offset), gone.until_offset)
        losses += [
            replace(gone, from_offset=start, until_offset=end)
            for start, end in overlap(span, coverage.of(partition, log.leader.topic_id))
        ]
    return losses
