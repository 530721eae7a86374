"""Whether a log still is the one that was landed: made anew, or cut short and grown again.

A topic's id settles it, where brokers have ids. Without one the leader epoch does, which only
grows in one life of a topic: a lower one means that the topic was made anew, and where the
epoch of the last landing ended tells how far that log still goes. Brokers before 0.11 have
neither: a log that is shorter than it was is called truncated, and one that was made anew and
has grown past the checkpoint cannot be told from the old one. Nor can, before 2.8, one whose
new life has had as many leaders as the old.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from rangeland.model import LogState, Survey
from rangeland.planning.coverage_rule import Coverage
from rangeland.planning.policy import Loss, LossKind


@dataclass(frozen=True, slots=True)
class LogMark:
    """A checkpoint of one partition: where the last landing ended, in which incarnation, and
    the leader epoch of that time, if it was told. ``epoch_is_later``: it was read from the
    log's last batch, behind the mark; what is before the mark may be of an earlier one."""

    until_offset: int
    topic_id: str | None = None
    epoch: int | None = None
    epoch_is_later: bool = False


def recreated(mark: LogMark, log: LogState) -> bool:
    """The mark is of another life of the topic than the log."""
    then, now = mark.topic_id, log.leader.topic_id
    if then is not None and now is not None:
        return then != now
    if mark.epoch is None or log.leader.epoch is None:
        return False
    is_shorter = log.end_offset < mark.until_offset
    if log.leader.epoch < mark.epoch:
        # Of a last batch, it is lower as well in a log that was cut behind the mark.
        return is_shorter or not (mark.epoch_is_later and log.epoch_is_read)
    return log.leader.epoch == mark.epoch and log.start_offset == 0 and is_shorter


def may_be_behind(mark: LogMark, log: LogState) -> bool:
    """The log ends below the mark, which of a leader that has just taken over may be so for a
    moment; and nothing else tells that it is another log."""
    if log.end_offset >= mark.until_offset:
        return False
    if mark.topic_id is not None and log.leader.topic_id is not None:
        return mark.topic_id == log.leader.topic_id
    if mark.epoch is None or log.leader.epoch is None or log.epoch_is_read:
        return True
    return log.leader.epoch >= mark.epoch


def recreation(mark: LogMark, log: LogState) -> Loss:
    """The loss to report where ``recreated``: no offsets, since it ended at the mark."""
    if mark.topic_id is not None and log.leader.topic_id is not None:
        evidence = (
            f"the topic was deleted and made anew: its id was {mark.topic_id} when offset "
            f"{mark.until_offset} was reached and is {log.leader.topic_id} now"
        )
    else:
        evidence = (
            f"the topic was deleted and made anew: its leader epoch was {mark.epoch} when offset "
            f"{mark.until_offset} was reached and is {log.leader.epoch} now, in a log "
            f"[{log.start_offset}, {log.end_offset})"
        )
        if mark.epoch == log.leader.epoch:
            evidence += "; or an unclean election cut it short, and nobody has written since"
    return Loss(log.partition, mark.until_offset, mark.until_offset, LossKind.RECREATED, evidence)


def without_id(loss: Loss, log: LogState, landed: Coverage) -> str:
    """Why the offsets of a new life cannot be told from the landed ones: it has no name of its
    own, or they have none, and it has come to them or will. Empty where they can."""
    if loss.verdict is not LossKind.RECREATED:
        return ""
    if log.leader.topic_id is None:
        return "these brokers have no topic ids"
    if any(end > log.start_offset for _, end in landed.nameless(log.partition)):
        return "some of the old topic was landed when its brokers had no topic ids"
    return ""


def cut_short(mark: LogMark, survey: Survey, log: LogState) -> Loss | None:
    """What was landed and is not in the log any more, though it goes beyond the mark again."""
    end = survey.epoch_ends.get(log.partition)
    if end is None or end >= mark.until_offset or mark.epoch is None:
        return None
    evidence = (
        f"records of leader epoch {mark.epoch} end at {end} on {log.leader.address}, and "
        f"{mark.until_offset} was reached in it: a leader of epoch {log.leader.epoch} or before "
        f"never had them; the log ends at {log.end_offset} now"
    )
    return Loss(log.partition, end, mark.until_offset, LossKind.TRUNCATED, evidence)


def rewritten(mark: LogMark, survey: Survey, log: LogState) -> Loss | None:
    """Where offsets are bytes: what of an entry is behind the mark that is inside of it. An
    entry ended there when it was landed, so the log has been cut off and written anew."""
    start, end = survey.entries.get((log.partition, mark.until_offset), (mark.until_offset, 0))
    if start == mark.until_offset:
        return None
    evidence = (
        f"the last landing ended at {mark.until_offset}, which is inside the entry "
        f"[{start}, {end}) now: the log on {log.leader.address} was cut short and written anew"
    )
    return Loss(log.partition, mark.until_offset, end, LossKind.TRUNCATED, evidence)


def since(mark: LogMark, survey: Survey, log: LogState) -> tuple[LogMark, list[Loss]]:
    """Where to go on, and what has become of the log since the mark was made."""
    if recreated(mark, log):
        fresh = LogMark(log.start_offset, log.leader.topic_id, log.leader.epoch)
        return fresh, [recreation(mark, log)]
    losses = []
    gone = cut_short(mark, survey, log)
    if gone is not None and mark.until_offset <= log.end_offset:
        # A log that is shorter than the mark shows as such wherever it is read from.
        losses.append(gone)
    other = rewritten(mark, survey, log)
    if other is not None:
        losses.append(other)
        mark = replace(mark, until_offset=other.until_offset)
    return mark, losses
