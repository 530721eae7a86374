"""Finds out whether partitions that are held because of damage or a gap in their log still have to
be held.

A survey shows what has expired or was truncated, but damage and gaps can only be found by reading.
So before it plans, a run reads the offset at which an earlier one had to stop. As long as nothing
has changed there, the partition is left out of its plans, so that no plan is entered that cannot be
read.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing

from rangeland.delta.ledger.events import LossEvent
from rangeland.fetch.read_settings import ReadSettings
from rangeland.fetch.slice_chunks import LostChunk
from rangeland.fetch.slice_reading import read_slices
from rangeland.landing.target.job_history import JobHistory
from rangeland.loss import Action, DecidedLoss
from rangeland.model import LogState, Partition, Survey
from rangeland.planning.incarnation import LogMark, is_still_lost
from rangeland.planning.job_position import JobPosition


def find_damage(
    history: JobHistory, settings: ReadSettings, position: JobPosition, survey: Survey
) -> list[DecidedLoss]:
    """The damage or gaps that still exist, of those for which partitions are held at the job's
    checkpoint. Reads a few records of each partition, and raises what reading raises."""
    losses = []
    for loss in _held_losses(history, position).values():
        log = survey.logs.get(loss.partition)
        if log is None or settings.policy.action_for(loss) is not Action.HOLD:
            continue
        if log.leader.topic_id not in (None, loss.topic_id or log.leader.topic_id):
            continue  # another incarnation of the topic, which a survey shows
        if log.end_offset > loss.from_offset:
            current = _read_at(log, loss.from_offset, settings)
            losses += [] if current is None else [current]
    return losses


def find_hold(losses: Iterable[LossEvent], mark: LogMark | None, log: LogState) -> LossEvent | None:
    """The loss that holds a partition at its checkpoint, judged by a survey alone. Damage counts
    until a run has read past it."""
    hold = last_hold(losses, log.partition, mark)
    return hold if hold is not None and is_still_lost(hold.loss.kind, mark, log) else None


def last_hold(
    losses: Iterable[LossEvent], partition: Partition, mark: LogMark | None
) -> LossEvent | None:
    """The last loss that held a partition where its checkpoint is. Whether it still does, only its
    log shows."""
    checkpoint = 0 if mark is None else mark.until_offset
    events = [event for event in losses if event.loss.partition == partition]
    holds = [x for x in events if x.loss.action is Action.HOLD and x.loss.from_offset == checkpoint]
    return holds[-1] if holds else None


def _held_losses(history: JobHistory, position: JobPosition) -> dict[Partition, DecidedLoss]:
    """The last damage or gap for which each partition is held at its checkpoint."""
    losses = {}
    for loss in (event.loss for event in history.losses()):
        mark = position.checkpoint.get(loss.partition)
        is_held = loss.kind.traits.is_found_by_reading and loss.action is Action.HOLD
        if is_held and mark is not None and mark.until_offset == loss.from_offset:
            losses[loss.partition] = loss
    return losses


def _read_at(log: LogState, at: int, settings: ReadSettings) -> DecidedLoss | None:
    """The damage or gap at an offset, if it is still there."""
    with closing(read_slices([log.to_slice(from_offset=at)], settings)) as chunks:
        for chunk in chunks:
            if chunk.until_offset > at:
                return None
            if isinstance(chunk, LostChunk) and chunk.loss.kind.traits.is_found_by_reading:
                return chunk.loss
    return None
