"""Decides whether a log is still the one that was landed, or was recreated, truncated or
overwritten.

The topic id decides, if brokers have ids. Otherwise the leader epoch decides, which only grows
within one incarnation of a topic: a lower epoch means that the topic was recreated, and the end
offset of the last landing's epoch shows how far the landed log still reaches. Brokers before 0.11
have neither: a log that is shorter than before counts as truncated, and a recreated log that has
grown past the checkpoint cannot be detected. With brokers before 2.8, a recreated log that has had
as many leaders as the old one cannot be detected either.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from rangeland.loss import Action, DecidedLoss, Loss, LossKind
from rangeland.model import LogState, Partition, Survey
from rangeland.planning.coverage import Coverage


@dataclass(frozen=True, slots=True)
class LogMark:
    """The checkpoint of one partition: where the last landing ended, in which incarnation, and in
    which leader epoch, if known. ``epoch_is_later``: the epoch was read from the log's last batch,
    which is after the mark. Records before the mark may have an earlier epoch, so a lower one
    proves nothing about a longer log."""

    until_offset: int
    topic_id: str | None = None
    epoch: int | None = None
    epoch_is_later: bool = False


def may_be_same(topic_id: str | None, other: str | None) -> bool:
    """Whether two incarnations of a topic may be the same. An unknown id matches every
    incarnation."""
    return topic_id is None or other is None or topic_id == other


def checkpoint_after(
    checkpoint: Mapping[Partition, LogMark], losses: Iterable[DecidedLoss]
) -> dict[Partition, LogMark]:
    """The checkpoint after a plan with these losses: a partition that was held stays where it was,
    and a partition whose log ended earlier than planned continues from that end. Later plans leave
    out what has landed beyond it."""
    marks = dict(checkpoint)
    for loss in sorted(losses, key=lambda x: x.from_offset, reverse=True):
        mark = marks.get(loss.partition)
        if mark is None or loss.from_offset >= mark.until_offset:
            continue
        if loss.action is Action.HOLD or loss.kind.traits.is_still_to_come:
            is_later = mark.epoch is not None
            marks[loss.partition] = replace(
                mark, until_offset=loss.from_offset, epoch_is_later=is_later
            )
    return marks


def with_later_epochs(
    checkpoint: Mapping[Partition, LogMark], epochs: Iterable[tuple[Partition, int]]
) -> dict[Partition, LogMark]:
    """The checkpoint after a plan that was read in later leader epochs than it was made in."""
    marks = dict(checkpoint)
    for partition, epoch in epochs:
        mark = marks.get(partition)
        if mark is not None and epoch > (-1 if mark.epoch is None else mark.epoch):
            marks[partition] = replace(mark, epoch=epoch, epoch_is_later=True)
    return marks


def is_recreated(mark: LogMark, log: LogState) -> bool:
    """Whether the mark belongs to another incarnation of the topic than the log."""
    mark_id, log_id = mark.topic_id, log.leader.topic_id
    if mark_id is not None and log_id is not None:
        return mark_id != log_id
    if mark.epoch is None or log.leader.epoch is None:
        return False
    is_shorter = log.end_offset < mark.until_offset
    if log.leader.epoch < mark.epoch:
        # The epoch of the last batch is also lower in a log that was truncated after the mark.
        return is_shorter or not (mark.epoch_is_later and log.epoch_is_read)
    return log.leader.epoch == mark.epoch and log.start_offset == 0 and is_shorter


def may_be_behind(mark: LogMark, log: LogState) -> bool:
    """Whether the log ends before the mark while nothing else shows that it is another log: the
    high watermark of a new leader may lag for a moment."""
    if log.end_offset >= mark.until_offset:
        return False
    if mark.topic_id is not None and log.leader.topic_id is not None:
        return mark.topic_id == log.leader.topic_id
    if mark.epoch is None or log.leader.epoch is None or log.epoch_is_read:
        return True
    return log.leader.epoch >= mark.epoch


def recreation_loss(mark: LogMark, log: LogState) -> Loss:
    """The loss to report for a recreated log. It has no offsets: the old log ended at the mark."""
    if mark.topic_id is not None and log.leader.topic_id is not None:
        evidence = (
            f"the topic was deleted and created again: its id was {mark.topic_id} when offset "
            f"{mark.until_offset} was reached and is {log.leader.topic_id} now"
        )
    else:
        evidence = (
            f"the topic was deleted and created again: its leader epoch was {mark.epoch} when "
            f"offset {mark.until_offset} was reached and is {log.leader.epoch} now, in a log "
            f"[{log.start_offset}, {log.end_offset})"
        )
        if mark.epoch == log.leader.epoch:
            evidence += "; or an unclean election truncated it, and nothing was written since"
    return Loss(log.partition, mark.until_offset, mark.until_offset, LossKind.RECREATED, evidence)


def why_indistinguishable(loss: Loss, log: LogState, covered: Coverage) -> str:
    """Why the offsets of a new incarnation cannot be distinguished from the landed ones, or "". The
    reason is that one of the two has no topic id, and the new log reaches the landed offsets, or
    will. Such an incarnation is never skipped: its offsets would count as landed, and be left out
    silently."""
    if loss.kind is not LossKind.RECREATED:
        return ""
    if log.leader.topic_id is None:
        return "these brokers have no topic ids"
    if any(end > log.start_offset for _, end in covered.nameless(log.partition)):
        return "some of the old topic was landed when its brokers had no topic ids"
    return ""


def truncation_loss(mark: LogMark, log: LogState) -> Loss | None:
    """The landed offsets that were truncated from a log that has grown past the mark since."""
    end = log.epoch_end
    if end is None or end >= mark.until_offset or mark.epoch is None:
        return None
    evidence = (
        f"records of leader epoch {mark.epoch} end at {end} on {log.leader.address}, and "
        f"{mark.until_offset} was reached in it: a leader of epoch {log.leader.epoch} or before "
        f"never had them; the log ends at {log.end_offset} now"
    )
    return Loss(log.partition, end, mark.until_offset, LossKind.TRUNCATED, evidence)


def is_known(loss: Loss, losses: Iterable[Loss]) -> bool:
    """Whether one of the other losses is of the same kind and includes it."""
    return any(
        other.kind is loss.kind
        and other.from_offset <= loss.from_offset
        and loss.until_offset <= other.until_offset
        for other in losses
    )


def overwrite_loss(mark: LogMark, survey: Survey, log: LogState) -> Loss | None:
    """The loss of the rest of an entry, if offsets are bytes and the mark is inside the entry. An
    entry ended at the mark when that was landed, so the log was truncated and overwritten."""
    start, end = survey.lookups.entries.get(
        (log.partition, mark.until_offset), (mark.until_offset, 0)
    )
    if start == mark.until_offset:
        return None
    evidence = (
        f"the last landing ended at {mark.until_offset}, which is inside the entry "
        f"[{start}, {end}) now: the log on {log.leader.address} was cut short and rewritten"
    )
    return Loss(log.partition, mark.until_offset, end, LossKind.TRUNCATED, evidence)


def changes_since(mark: LogMark, survey: Survey, log: LogState) -> tuple[LogMark, list[Loss]]:
    """The mark to continue from, and the losses in the log since this mark was made."""
    if is_recreated(mark, log):
        fresh = LogMark(log.start_offset, log.leader.topic_id, log.leader.epoch)
        return fresh, [recreation_loss(mark, log)]
    losses = []
    truncated = truncation_loss(mark, log)
    if truncated is not None and (mark.until_offset <= log.end_offset or not log.leader.is_replica):
        losses.append(truncated)
    overwritten = overwrite_loss(mark, survey, log)
    if overwritten is not None:
        losses.append(overwritten)
        mark = replace(mark, until_offset=overwritten.until_offset)
    return mark, losses


def is_still_lost(kind: LossKind, mark: LogMark | None, log: LogState) -> bool:
    """Whether the loss for which a partition is held at its checkpoint still exists, according to a
    survey. A loss that is only found by reading counts for as long as the log has that offset."""
    checkpoint = 0 if mark is None else mark.until_offset
    match kind:
        case LossKind.CORRUPT | LossKind.MISSING | LossKind.UNDECODABLE:
            return checkpoint < log.end_offset
        case LossKind.EXPIRED:
            return checkpoint < log.start_offset
        case LossKind.TRUNCATED:
            return checkpoint > log.end_offset
        case LossKind.RECREATED:
            return mark is not None and is_recreated(mark, log)
        case LossKind.VANISHED | LossKind.UNREACHABLE:
            return False
