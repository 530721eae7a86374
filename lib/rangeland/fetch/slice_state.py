"""The state of one slice while it is read, and its state machine as a table that maps a phase and
an event to a move and the next phase.

``FetchLoop`` turns each response without useful records, and the deadline, into one event.
Delivered records are not in the table: they advance the next offset in ``READING``, as a loss does.
Once its next offset is its end, a slice is ``DONE``, and remains so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final

from rangeland.dialects.fetch_values import PartitionFetch
from rangeland.errors import Bug, RangelandError
from rangeland.fetch.backoff import SHORT_END_PAUSE_MS, RetryState
from rangeland.fetch.fetch_size import FetchLimits, FetchSize, first_fetch_size
from rangeland.fetch.replica_choice import ReadMode, ServingBroker
from rangeland.loss import DecidedLoss, LossKind
from rangeland.model import Address, Leader, Partition, Slice


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceRequest(PartitionFetch):
    """One slice's part of a fetch. ``index``: the slice's."""

    index: int
    until_offset: int


class Phase(Enum):
    READING = "reading"
    MEASURING = "asking for its log's range"
    FINDING = "finding its leader"
    DONE = "done"


class SliceEvent(Enum):
    REPLICA_FAILED = "the replica that is read instead of the leader returned nothing usable"
    LEADER_FAILED = "the broker that is read as the leader failed, lags, or may not be the leader"
    LEADER_HINTED = "the broker does not lead the partition, and names the new leader"
    REPLICA_PREFERRED = "the broker names a replica whose address is unknown"
    OUT_OF_RANGE = "the leader has no such offset"
    TOO_SMALL = "no complete entry fits into the bytes that were requested"
    NO_RECORDS = "a retriable error, or no records although the log continues"
    NO_RECORDS_AT_END = "no records, and the log ends here, or its end was not reported"
    IN_RANGE = "the log contains the next offset"
    ENDS_HERE = "the log has nothing from the next offset on; not certain yet"
    LEADER_FOUND = "metadata names a leader"
    NO_LEADER = "metadata names no usable leader, or could not be fetched"
    LOST = "offsets are lost, or there has been no progress for too long"


@dataclass(frozen=True, slots=True)
class Suspicion:
    """A loss that is assumed at the deadline unless something else is seen before. Two suspicions
    are equal if their kinds and topic ids are equal, whatever the evidence."""

    kind: LossKind
    evidence: str = field(compare=False)
    since_ms: int = field(compare=False)
    """When it was first seen."""
    topic_id: str | None = None
    """The id that metadata names in place of the planned one."""


@dataclass(frozen=True, slots=True)
class Fail:
    """The run ends with this error: the policy is to fail, or reading cannot continue."""

    error: RangelandError


@dataclass(frozen=True, slots=True)
class Observation:
    """Something that happened to a slice: the event, and the reason for it."""

    event: SliceEvent
    reason: str = ""
    loss: DecidedLoss | None = None
    """The loss that it causes, with its action."""
    supports: Suspicion | None = None
    """The suspicion that it supports. A failed attempt that supports none ends the present one."""
    leader: Leader | None = None
    """The leader that is read next, if the event is that a leader is named."""
    asks_alone: bool = False
    """The next request has no other slices, so that nothing limits its size."""


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line to be logged, with the partition that it concerns (if any), and how far that partition
    was read."""

    text: str
    partition: Partition | None = None
    offset: int | None = None


class Move(Enum):
    BACK_OFF = "wait, longer each time"
    LEAVE = "leave the leader: metadata at once the first time, later after a wait"
    PAUSE = "leave the leader, and count its report of a short log: metadata after a pause"
    RETURN = "return from the replica to the leader, at once"
    FOLLOW_HINT = "leave the leader for the one that it names, at once"
    READ_LEADER = "read the leader that metadata names, at once"
    GO_ON = "continue at once"
    ENLARGE = "request more bytes, at once"
    LOSE = "offsets are lost: the policy skips or holds"


_TABLE: Final[Mapping[Phase, Mapping[SliceEvent, tuple[Move, Phase]]]] = {
    Phase.READING: {
        SliceEvent.REPLICA_FAILED: (Move.RETURN, Phase.READING),
        SliceEvent.LEADER_FAILED: (Move.LEAVE, Phase.FINDING),
        SliceEvent.LEADER_HINTED: (Move.FOLLOW_HINT, Phase.READING),
        SliceEvent.REPLICA_PREFERRED: (Move.GO_ON, Phase.FINDING),
        SliceEvent.OUT_OF_RANGE: (Move.GO_ON, Phase.MEASURING),
        SliceEvent.TOO_SMALL: (Move.ENLARGE, Phase.READING),
        SliceEvent.NO_RECORDS: (Move.BACK_OFF, Phase.READING),
        SliceEvent.NO_RECORDS_AT_END: (Move.BACK_OFF, Phase.MEASURING),
        SliceEvent.LOST: (Move.LOSE, Phase.READING),
    },
    Phase.MEASURING: {
        SliceEvent.REPLICA_FAILED: (Move.RETURN, Phase.READING),
        SliceEvent.LEADER_FAILED: (Move.LEAVE, Phase.FINDING),
        SliceEvent.IN_RANGE: (Move.BACK_OFF, Phase.READING),
        SliceEvent.ENDS_HERE: (Move.PAUSE, Phase.FINDING),
        SliceEvent.LOST: (Move.LOSE, Phase.READING),
    },
    Phase.FINDING: {
        SliceEvent.LEADER_FOUND: (Move.READ_LEADER, Phase.READING),
        SliceEvent.NO_LEADER: (Move.BACK_OFF, Phase.FINDING),
        SliceEvent.LOST: (Move.LOSE, Phase.FINDING),
    },
    Phase.DONE: {},
}
"""An event that a phase does not list cannot happen in it: it is a ``Bug``."""


@dataclass(slots=True)
class SliceState:
    """The state of one slice while it is read."""

    slice: Slice
    next_offset: int
    broker: ServingBroker
    phase: Phase
    size: FetchSize
    retry: RetryState
    short_ends: int = 0
    """How often its leader has reported a log end at or before the next offset."""
    short_end_at_ms: int = 0
    """When the leader first reported it."""
    suspicion: Suspicion | None = None
    left_leader: Address | None = None
    is_redirected: bool = False
    """A broker has named another one instead of sending records, and no records came since."""
    without_leader: Address | None = None
    """The broker that named no usable leader the last time it was asked."""

    @property
    def request(self) -> SliceRequest:
        """The next request."""
        return SliceRequest(
            index=self.slice.index,
            partition=self.slice.partition,
            topic_id=self.slice.topic_id,
            epoch=self.broker.leader.epoch,
            offset=self.next_offset,
            max_bytes=self.size.bytes,
            until_offset=self.slice.until_offset,
        )

    @property
    def failure(self) -> SliceEvent:
        """The event if the broker being read returns nothing usable."""
        is_detour = self.broker.mode is ReadMode.DETOUR
        return SliceEvent.REPLICA_FAILED if is_detour else SliceEvent.LEADER_FAILED

    def log_line(self, text: str) -> LogLine:
        return LogLine(text, self.slice.partition, self.next_offset)

    def suspicion_of(
        self, kind: LossKind, evidence: str, now_ms: int, topic_id: str | None = None
    ) -> Suspicion:
        """The suspicion that this evidence supports. A suspicion that is not new keeps the time
        when it was first seen."""
        suspicion = Suspicion(kind, evidence, now_ms, topic_id)
        earlier = self.suspicion
        return (
            replace(suspicion, since_ms=earlier.since_ms)
            if earlier and earlier == suspicion
            else suspicion
        )

    def count_short_end(self, now_ms: int) -> None:
        """Counts a report of a log end at or before the next offset, if metadata has named its
        sender as the leader."""
        self.short_ends += 1 if self.broker.sender.proves_end else 0
        if self.short_ends <= 1:
            self.short_end_at_ms = now_ms

    def can_share_request(self, first: SliceState) -> bool:
        """Whether both slices can be in one request."""
        broker = self.broker
        other = first.broker
        return broker.address == other.address and broker.stays == other.stays

    def advance(self, next_offset: int, now_ms: int) -> None:
        """Moves to ``next_offset``: everything before it has been delivered, or is lost."""
        self.next_offset = next_offset
        self.retry.on_progress(now_ms)
        if next_offset >= self.slice.until_offset:
            self.phase = Phase.DONE

    def forget_failures(self) -> None:
        self.retry.forget_failures()
        self.short_ends = 0
        self.size.is_alone = False
        self.is_redirected = False
        self.suspicion = self.left_leader = None

    def back_off(self, observation: Observation, now_ms: int, limits: FetchLimits) -> None:
        self.retry.back_off(observation.reason, now_ms, limits)
        # A loss is assumed only if it is still the last thing seen at the deadline.
        self.suspicion = observation.supports
        if observation.asks_alone:
            self.size.is_alone = True

    def leave_leader(self, observation: Observation, now_ms: int, limits: FetchLimits) -> None:
        self.left_leader = self.broker.leader.address
        self.back_off(observation, now_ms, limits)
        if self.retry.failures <= 1:
            # The first time, metadata is requested at once: it may name a new leader.
            self.retry.resume_at_ms = now_ms

    def return_to_leader(self, reason: str, now_ms: int) -> None:
        self.retry.last_failure = reason
        self.broker.return_to_leader(now_ms)


def new_state(slice_: Slice, broker: ServingBroker, limits: FetchLimits, now_ms: int) -> SliceState:
    is_empty = slice_.from_offset >= slice_.until_offset
    phase = Phase.READING if slice_.leader is not None else Phase.FINDING
    return SliceState(
        slice=slice_,
        next_offset=slice_.from_offset,
        broker=broker,
        phase=Phase.DONE if is_empty else phase,
        size=first_fetch_size(slice_, limits),
        retry=RetryState(now_ms),
    )


def move_on(
    state: SliceState, observation: Observation, now_ms: int, limits: FetchLimits
) -> tuple[Move, LogLine | None]:
    """Takes one transition of the table. Returns the move, and the line to be logged, if any. The
    caller applies the loss."""
    event = observation.event
    reason = observation.reason
    line = None
    transition = _TABLE[state.phase].get(event)
    if transition is None:
        raise Bug(f"{state.slice}: {event.name} happened while the slice is {state.phase.value}")
    move, state.phase = transition
    if event is SliceEvent.IN_RANGE:
        state.short_ends = 0
    match move:
        case Move.BACK_OFF:
            state.back_off(observation, now_ms, limits)
            line = state.log_line(f"Retrying in {state.retry.resume_at_ms - now_ms} ms: {reason}")
        case Move.LEAVE | Move.PAUSE | Move.FOLLOW_HINT:
            state.leave_leader(observation, now_ms, limits)
            if move is Move.PAUSE:
                state.count_short_end(now_ms)
                state.retry.resume_at_ms = now_ms + SHORT_END_PAUSE_MS
            if move is Move.FOLLOW_HINT:
                state.broker.follow_hint(_named_leader(observation))
            line = state.log_line(f"Left the leader {state.left_leader}: {reason}")
        case Move.READ_LEADER:
            leader = _named_leader(observation)
            state.broker.on_leader(leader, now_ms)
            line = state.log_line(f"Found the leader {leader.address}, epoch {leader.epoch}")
        case Move.RETURN:
            state.return_to_leader(reason, now_ms)
            line = state.log_line(f"Returned to the leader {state.broker.leader.address}: {reason}")
        case Move.GO_ON if reason:
            state.retry.last_failure = reason
        case Move.ENLARGE:
            state.size.double(limits)
    return move, line


def _named_leader(observation: Observation) -> Leader:
    if observation.leader is None:
        raise Bug(f"{observation.event.name} names no leader")
    return observation.leader
