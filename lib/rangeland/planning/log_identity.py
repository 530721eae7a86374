"""Whether the logs that were read for a plan are still the logs that it was planned on.

A topic may be deleted and created again while it is read, and an unclean election may replace the
end of a log: rows read before and after that belong to different logs. Topic ids show the former if
both sides have them, leader epochs the latter; older brokers at least report where a log ends.
Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rangeland.grouping import by_partition
from rangeland.loss import Action, Loss, LossKind
from rangeland.model import Leader, Partition, Range, Survey
from rangeland.planning.incarnation import (
    LogMark,
    changes_since,
    is_known,
    is_recreated,
    recreation_loss,
)
from rangeland.planning.intervals import subtract
from rangeland.planning.plan import Plan
from rangeland.planning.slice_receipt import Receipt


def marks_of(plan: Plan, receipts: Iterable[Receipt]) -> dict[Partition, LogMark]:
    """The marks up to which partitions were read, with the incarnation of the topic and the leader
    epoch in which each was planned. What was lost or held was not read."""
    ends: dict[Partition, int] = {}
    for receipt in receipts:
        unread = [x.interval for x in receipt.losses_by(Action.SKIP)]
        if receipt.held is not None:
            unread.append((receipt.held.from_offset, receipt.until_offset))
        for _, until in subtract(receipt.interval, unread):
            ends[receipt.partition] = max(until, ends.get(receipt.partition, until))
    ranges = by_partition(plan.ranges)
    return {
        partition: _mark(
            until, _id_before(until, ranges.get(partition, ())), plan.checkpoint.get(partition)
        )
        for partition, until in ends.items()
    }


def _id_before(until: int, ranges: Sequence[Range]) -> str | None:
    """The topic id of the range that was read up to ``until``: a plan of missing rows may also have
    ranges of an earlier incarnation, which are lost."""
    containing = [r for r in ranges if r.from_offset < until <= r.until_offset]
    return next((r.topic_id for r in containing or ranges), None)


def _mark(until: int, topic_id: str | None, planned: LogMark | None) -> LogMark:
    is_same = planned is not None and topic_id in (None, planned.topic_id)
    if planned is None or planned.epoch is None or not (is_same or planned.topic_id is None):
        return LogMark(until, topic_id)
    is_later = planned.epoch_is_later or planned.until_offset > until
    return LogMark(until, topic_id, planned.epoch, is_later)


def unconfirmed_partitions(
    marks: Mapping[Partition, LogMark], leaders: Mapping[Partition, Leader]
) -> set[Partition]:
    """The partitions that metadata alone does not confirm: their topic id or leader epoch is
    unknown or has changed."""
    return {p for p, mark in marks.items() if not _is_the_same(mark, leaders.get(p))}


def _is_the_same(mark: LogMark, leader: Leader | None) -> bool:
    if leader is None or mark.topic_id is None or mark.epoch is None:
        return False
    return (leader.topic_id, leader.epoch) == (mark.topic_id, mark.epoch)


def find_changes(marks: Mapping[Partition, LogMark], survey: Survey) -> list[Loss]:
    """The losses in these logs since they were read. Partitions without a leader are left out."""
    losses = []
    for partition, mark in sorted(marks.items()):
        log = survey.logs.get(partition)
        if log is None or log.leader.is_replica:
            continue
        if is_recreated(mark, log):
            losses.append(recreation_loss(mark, log))
            continue
        changes = changes_since(mark, survey, log)[1]
        losses += changes
        if log.end_offset < mark.until_offset:
            evidence = f"the log ends at {log.end_offset} on {log.leader.address}, and was read "
            evidence += f"up to {mark.until_offset}"
            ends = (log.end_offset, mark.until_offset)
            short = Loss(partition, *ends, LossKind.TRUNCATED, evidence, is_sure=False)
            if not is_known(short, changes):
                losses.append(short)
    return losses
