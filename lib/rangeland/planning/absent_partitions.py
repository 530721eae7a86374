"""Finds the losses of absent partitions: gone from the cluster, or unreadable for now. Pure.

A partition that is gone is a loss. A partition without a leader is not a loss, nor are offsets that
an open transaction delays or that a replica may lack: runs wait for all three. A partition whose
broker goes down while it is read is not a loss either: a policy may hold it once ``no_progress_ms``
have passed, and the next survey shows whether it is back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from rangeland import patterns
from rangeland.loss import Loss, LossKind
from rangeland.model import AtTime, Bound, FromCheckpoint, LogState, Partition, Survey
from rangeland.planning.incarnation import is_known
from rangeland.wording import utc_time

if TYPE_CHECKING:
    from rangeland.planning.bound_resolution import RangeRequest
    from rangeland.planning.job_position import JobPosition


def absent_partition_losses(
    request: RangeRequest, survey: Survey, position: JobPosition
) -> list[Loss]:
    """Requested partitions for which the survey has no log: gone, or unreachable."""
    gone = _vanished_partitions(request, survey, position)
    return [*gone, *_unreachable_partitions(request, survey, position)]


def _vanished_partitions(
    request: RangeRequest, survey: Survey, position: JobPosition
) -> list[Loss]:
    """Requested partitions that were landed and no longer exist. Those that only backfills have
    landed count if their whole topic is missing; with a topic pattern, if no topic is left."""
    absent = survey.absent
    topics = {p.topic for p in (*survey.logs, *absent.unreachable, *absent.excluded)}
    follows = isinstance(request.from_bounds.default, FromCheckpoint)

    def is_asked(partition: Partition) -> bool:
        topic = partition.topic
        continues = follows and partition in position.checkpoint
        if topic in topics:
            return continues
        if _fits(request.topic_pattern, topic):
            return continues or not topics
        return topic in request.topics

    losses = []
    for partition in sorted(position.landed_partitions(request.partitions)):
        if (
            partition not in survey.logs
            and partition not in absent.excluded
            and absent.why_unreachable(partition) is None
            and is_asked(partition)
            and _is_within_bounds(request, partition)
        ):
            what = "partition" if partition.topic in topics else "topic"
            mark = position.checkpoint.get(partition)
            offset = 0 if mark is None else mark.until_offset
            losses.append(_vanished_loss(partition, offset, what, survey))
    return losses


def _vanished_loss(partition: Partition, offset: int, what: str, survey: Survey) -> Loss:
    """The loss of a partition that is gone. The loss is uncertain if the topic may only be hidden,
    which brokers before 0.11 do not distinguish."""
    may_be_hidden = partition.topic in survey.absent.unseen_topics
    evidence = f"the cluster no longer names this {what}"
    if may_be_hidden:
        evidence += ", or this client may not see it any more"
    is_sure = not may_be_hidden
    return Loss(partition, offset, offset, LossKind.VANISHED, evidence, is_sure=is_sure)


def _is_within_bounds(request: RangeRequest, partition: Partition) -> bool:
    sides = (request.from_bounds, request.until_bounds)
    return all(side.of(partition) is not None for side in sides)


def _unreachable_partitions(
    request: RangeRequest, survey: Survey, position: JobPosition
) -> list[Loss]:
    """Partitions without a leader now: from metadata, or if a broker that has its own partitions
    does not answer, from the checkpoint, what was landed (backfills have no checkpoint), and the
    partitions that the request lists."""
    checkpoint = position.checkpoint
    reasons = {p: why for p, why in survey.absent.unreachable.items() if p not in survey.logs}
    listed = {*request.from_bounds.listed, *request.until_bounds.listed}
    for partition in position.landed_partitions(request.partitions) | listed:
        why = survey.absent.why_unreachable(partition)
        if why is None or partition in survey.logs:
            continue
        if partition.topic in request.topics or _fits(request.topic_pattern, partition.topic):
            reasons.setdefault(partition, why)
    losses = []
    for partition, why in sorted(reasons.items()):
        if _is_within_bounds(request, partition):
            offset = checkpoint[partition].until_offset if partition in checkpoint else 0
            losses.append(Loss(partition, offset, offset, LossKind.UNREACHABLE, why))
    return losses


def _fits(pattern: str, topic: str) -> bool:
    """Whether there is a pattern, and the topic matches it."""
    return bool(pattern) and patterns.matches(pattern, topic)


def as_lagging_replica(loss: Loss) -> Loss:
    """The loss, made unreachable: a replica may lag, so offsets that it lacks are not lost until
    the leader says so."""
    evidence = f"{loss.evidence}, a replica that may lag; its leader is down"
    return replace(loss, kind=LossKind.UNREACHABLE, evidence=evidence)


def is_end_unknown(upper: Bound, survey: Survey, log: LogState) -> bool:
    """Whether a range ends by time, and only a replica can be asked, which has no record that late:
    its leader may have older ones that the replica lacks."""
    if not log.leader.is_replica or not isinstance(upper, AtTime):
        return False
    at_time = survey.lookups.for_times.get((log.partition, upper.time_ms))
    return at_time is None or at_time >= log.end_offset


def unknown_ends(request: RangeRequest, survey: Survey, known: Sequence[Loss]) -> list[Loss]:
    """The ends of ranges by time, made unreachable where they are unknown. Only a range that begins
    at the checkpoint may end too early, since the next run continues from that end; records that
    any other range missed would be in no range. Left out where ``known`` losses say that the
    replica lacks the beginning, too."""
    losses = []
    for partition, log in sorted(survey.logs.items()):
        lower, upper = request.from_bounds.of(partition), request.until_bounds.of(partition)
        if upper is None or lower is None or isinstance(lower, FromCheckpoint):
            continue
        if isinstance(upper, AtTime) and is_end_unknown(upper, survey, log):
            evidence = f"no record at or after {utc_time(upper.time_ms)} on {log.leader.address}"
            end = log.end_offset
            loss = as_lagging_replica(Loss(partition, end, end, LossKind.UNREACHABLE, evidence))
            of_partition = [x for x in known if x.partition == partition]
            losses += [] if is_known(loss, of_partition) else [loss]
    return losses


def as_open_transaction(loss: Loss, survey: Survey) -> Loss:
    """The loss, made unreachable if the log has these offsets but an open transaction delays them;
    otherwise the same loss."""
    end = survey.lookups.uncommitted_ends.get(loss.partition, 0)
    if loss.kind is not LossKind.TRUNCATED or loss.until_offset > end:
        return loss
    stable = survey.logs[loss.partition].end_offset
    evidence = f"a transaction is open: the log ends at {end}, and committed records at {stable}"
    return replace(loss, kind=LossKind.UNREACHABLE, evidence=evidence)


def with_confirmation(loss: Loss, survey: Survey) -> Loss:
    """The loss, with the brokers that confirmed it in a second survey as part of its evidence."""
    brokers = survey.confirmed_by.get(loss.partition)
    return loss if brokers is None else replace(loss, evidence=f"{loss.evidence}; {brokers}")
