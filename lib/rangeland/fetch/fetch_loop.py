"""The fetch loop as a state machine: leader failover per slice, without a clock or a socket.

The caller asks ``next(now_ms)`` for the next step, carries it out, and reports the outcome with
one of the ``on_...`` methods. Every outcome except delivered records becomes an event of the table
in ``slice_state``. As in Kafka's SimpleConsumer, only delivered data advances a slice; errors never
do. As in Kafka's fetcher threads, one request asks a broker for all of its ready slices, an error
in one partition delays only that partition, and data is used only if it was requested at the
slice's next offset. A slice ends when its next offset is its ``until_offset``, never before.

Failover: after its first lost connection, or its first error that means stale metadata, a slice
asks for its leader at once; if metadata still names the same one, that leader gets a moment to
recover. A new leader's high watermark may be lower than what was acknowledged; the loop waits for
it, and calls the difference lost only at the deadline. Lost offsets end the run, unless the job's
policy skips or holds them. The last step of a run that fails is ``Fail``.

``replica_choice`` decides whether the leader or a replica is read, and what a response proves;
``leader_judgement`` and ``loss_judgement`` say what follows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import assert_never

from rangeland.dialects.capabilities import Capabilities
from rangeland.dialects.error_meaning import ErrorMeaning
from rangeland.errors import BadRecord, Bug
from rangeland.fetch import slice_failures
from rangeland.fetch.backoff import Throttle
from rangeland.fetch.fetch_size import FetchLimits
from rangeland.fetch.fetch_steps import Step, next_step
from rangeland.fetch.fetched_pieces import LostPiece
from rangeland.fetch.leader_judgement import (
    FoundLeaders,
    judge_empty,
    judge_leader,
    judge_log_range,
    unproved_observation,
)
from rangeland.fetch.loss_judgement import judge_damage
from rangeland.fetch.replica_choice import ReadMode, Sender, initial_broker
from rangeland.fetch.slice_state import (
    Fail,
    LogLine,
    Move,
    Observation,
    Phase,
    SliceEvent,
    SliceRequest,
    SliceState,
    move_on,
    new_state,
)
from rangeland.loss import DecidedLoss, LossKind
from rangeland.model import Address, Leader, Slice
from rangeland.planning.policy import Policy


@dataclass(slots=True)
class FetchLoop:
    """Decides which broker to ask next, and for what, to read the slices of one task."""

    slices: Sequence[Slice]
    limits: FetchLimits
    policy: Policy
    now_ms: int
    """The time of the last step; it must never run backwards."""
    capabilities: Capabilities = field(default_factory=Capabilities)
    throttle: Throttle = field(default_factory=Throttle)
    leader_only: bool = False
    """Never read a replica, neither one that a leader names nor one that stands in for it."""
    states: dict[int, SliceState] = field(init=False)
    _losses: list[LostPiece] = field(init=False, default_factory=list)
    _unlogged: list[LogLine | DecidedLoss] = field(init=False, default_factory=list)
    _failure: Fail | None = field(init=False, default=None)
    """The failure that ends the run, once there is one."""

    def __post_init__(self) -> None:
        self.states = {}
        for slice_ in self.slices:
            broker = initial_broker(slice_, self.capabilities, leader_only=self.leader_only)
            self.states[slice_.index] = new_state(slice_, broker, self.limits, self.now_ms)
        if len(self.states) != len(self.slices):
            raise Bug("two slices of one task have the same index")

    # --- what to do next --------------------------------------------------------------

    def next(self, now_ms: int) -> Step:
        """The next step; ``Fail`` once something has ended the run. A slice that has made no
        progress for too long is lost if a loss was suspected, and unreachable otherwise."""
        self.now_ms = now_ms
        for state in self._unfinished_states():
            self._give_up_if_stuck(state)
            state.broker.expire(now_ms)
        if self._failure is not None:
            return self._failure
        return next_step(self._unfinished_states(), self.throttle, self.limits, now_ms)

    def take_losses(self) -> list[LostPiece]:
        """The losses that a policy has skipped or held since the last call."""
        losses = self._losses
        self._losses = []
        return losses

    def take_unlogged(self) -> list[LogLine | DecidedLoss]:
        """The lines and losses to be logged since the last call, in order."""
        unlogged = self._unlogged
        self._unlogged = []
        return unlogged

    def _unfinished_states(self) -> list[SliceState]:
        return [s for s in self.states.values() if s.phase is not Phase.DONE]

    def _give_up_if_stuck(self, state: SliceState) -> None:
        limit_ms = self.limits.no_progress_ms
        if state.retry.stuck_ms > limit_ms:
            observation = slice_failures.stuck_observation(
                state, self.policy, self.now_ms, limit_ms
            )
            self._move(state, observation)

    def sender_of(self, request: SliceRequest) -> Sender:
        """The sender of the response to this request."""
        return self.states[request.index].broker.sender

    def is_reading(self, request: SliceRequest) -> bool:
        """Whether its slice is still being read: while another slice of the same response was
        judged, the broker may have been lost or the run may have ended."""
        return self._failure is None and self.states[request.index].phase is Phase.READING

    def leader_of(self, request: SliceRequest) -> Leader:
        """The currently known leader of its slice."""
        return self.states[request.index].broker.leader

    # --- outcomes of a fetch ----------------------------------------------------------

    def on_response(self, address: Address, size: int, throttle_ms: int, now_ms: int) -> None:
        """Accounts for a response of ``size`` bytes; its outcome for each slice is reported next.
        Within limits, the time for which a broker throttles this client does not count as a lack
        of progress."""
        self.now_ms = now_ms
        # Brokers throttle for the window of a quota, which is seconds: days would be a mistake.
        throttle_ms = max(0, min(throttle_ms, self.limits.no_progress_ms))
        if throttle_ms:
            self._unlogged.append(LogLine(f"Throttled by {address} for {throttle_ms} ms"))
        self.throttle.on_response(address, size, throttle_ms, now_ms)
        for state in self.states.values():
            if state.broker.address == address:
                state.retry.excuse(throttle_ms, self.limits)

    def on_records(self, request: SliceRequest, next_offset: int) -> bool:
        """Continues at ``next_offset``, after complete entries. Returns False if all entries are
        older: then the leader is asked instead of the replica that sent them, or the run ends."""
        state = self._current(request)
        if next_offset <= state.next_offset:
            error = slice_failures.older_records_error(state, next_offset, self.capabilities)
            if not self._turn_to_leader(request, error.what):
                self._end(Fail(error))
            return False
        state.advance(next_offset, self.now_ms)
        state.forget_failures()
        state.size.grow_back()
        return True

    def on_too_small(self, request: SliceRequest) -> None:
        """Requests more bytes, since the ones received contain no complete entry."""
        state = self._current(request)
        if state.size.bytes >= self.limits.largest_fetch_bytes:
            self.on_damaged(request, slice_failures.entry_size_error(state, self.capabilities))
        else:
            self._move(state, Observation(SliceEvent.TOO_SMALL))

    def on_damaged(self, request: SliceRequest, error: BadRecord) -> None:
        """Holds the partition at damaged bytes whose end is unknown, or ends the run. If a replica
        may have sent them, its leader is asked first."""
        state = self._current(request)
        loss = judge_damage(
            error,
            state.broker.sender,
            self.policy,
            state.slice,
            state.next_offset,
            state.slice.until_offset,
        )
        if loss is None:
            self._move(state, unproved_observation(state, error.what))
        else:
            self._move(state, slice_failures.lost_observation(loss))

    def on_overwritten(self, request: SliceRequest) -> None:
        """Treats the rest of the slice as truncated: an entry used to end at this offset, and now
        an intact entry in its place extends past it. If the sender does not prove that, the leader
        is asked first."""
        state = self._current(request)
        evidence = (
            f"an entry ended at {state.next_offset}, and now one in its place extends past it"
        )
        if not self._turn_to_leader(request, evidence):
            kind = LossKind.TRUNCATED
            observation = slice_failures.rest_lost_observation(state, self.policy, kind, evidence)
            self._move(state, observation)

    def on_empty(
        self,
        request: SliceRequest,
        readable_end: int | None,
        *,
        throttled: bool,
        preferred: int | None = None,
    ) -> None:
        """Turns to the replica that the broker prefers, or does what a response without records and
        without an error calls for; see ``judge_empty``."""
        state = self._current(request)
        # Otherwise, two brokers that only name each other would be asked forever.
        if preferred is not None and not state.is_redirected:
            state.is_redirected = self.on_preferred(request, preferred)
            if state.is_redirected:
                return
        self._move(state, judge_empty(state, readable_end, throttled=throttled))

    def on_preferred(self, request: SliceRequest, replica_id: int) -> bool:
        """Turns to the replica that the broker prefers. Returns whether another broker is read
        next. The records of the same response may have been reported before."""
        state = self.states[request.index]
        if state.phase is not Phase.READING:
            return False
        if not state.broker.prefer(replica_id, self.now_ms):
            return False
        if state.broker.mode is ReadMode.SEARCHING:
            self._move(state, Observation(SliceEvent.REPLICA_PREFERRED))
        else:
            self._unlogged.append(
                state.log_line(f"Reading from the replica {state.broker.address}")
            )
        return True

    def on_error(
        self, request: SliceRequest, meaning: ErrorMeaning, name: str, hint: Leader | None = None
    ) -> None:
        """Does what the meaning of an error code calls for: retries, looks for the leader or the
        log's range, or ends the run. ``name``: the name of the code. ``hint``: the leader that the
        broker named along with it."""
        state = self._current(request)
        reason = f"{state.broker.address} answered {name} at offset {state.next_offset}"
        if state.broker.mode is ReadMode.DETOUR:
            self._move(state, Observation(SliceEvent.REPLICA_FAILED, reason))
            return
        # A hint is unconfirmed. Only the first failure follows one, so a wrong hint costs one try.
        is_first = state.retry.failures == 0 and not self.leader_only
        match meaning:
            case ErrorMeaning.RETRY | ErrorMeaning.UNKNOWN:
                self._move(state, Observation(SliceEvent.NO_RECORDS, reason))
            case ErrorMeaning.FIND_LEADER if hint and is_first and state.broker.is_newer(hint):
                self._move(state, Observation(SliceEvent.LEADER_HINTED, reason, leader=hint))
            case ErrorMeaning.FIND_LEADER | ErrorMeaning.RECREATED:
                # Whether the topic was recreated is decided by its id, in the metadata.
                self._move(state, Observation(SliceEvent.LEADER_FAILED, reason))
            case ErrorMeaning.OUT_OF_RANGE:
                self._move(state, Observation(SliceEvent.OUT_OF_RANGE, reason))
            case ErrorMeaning.CORRUPT:
                self.on_damaged(request, slice_failures.unreadable_error(state, reason))
            case ErrorMeaning.UNSUPPORTED:
                # Each broker negotiates its own versions, and the leader may have changed.
                if not self._turn_to_leader(request, reason):
                    self._end(Fail(slice_failures.refused_error(state, meaning, reason)))
            case ErrorMeaning.DENIED | ErrorMeaning.REFUSED:
                self._end(Fail(slice_failures.refused_error(state, meaning, reason)))
            case ErrorMeaning.OK | ErrorMeaning.REJOIN:
                self._end(Fail(slice_failures.wrong_code_error(state, reason)))
            case _:
                assert_never(meaning)

    # --- outcomes of other requests -----------------------------------------------------

    def on_log_range(
        self, request: SliceRequest, log_start: int, log_end: int, written_end: int | None = None
    ) -> None:
        """Does what the range of the leader's log calls for; see ``judge_log_range``."""
        state = self._current(request, Phase.MEASURING)
        observation = judge_log_range(
            state,
            self.policy,
            self.now_ms,
            log_start,
            log_end,
            written_end,
            has_epochs=self.capabilities.has_epochs,
        )
        self._move(state, observation)

    def on_lost(self, address: Address, reason: str, *, is_slow: bool = False) -> None:
        """Leaves a broker whose connection broke, if reconnecting once did not help. ``is_slow``:
        no complete response came in time, so less is requested."""
        for state in self.states.values():
            if state.broker.address == address and state.phase in (Phase.READING, Phase.MEASURING):
                self._move(state, Observation(state.failure, reason))
                if is_slow:
                    state.size.shrink(self.limits)

    def on_leaders(self, found: FoundLeaders) -> None:
        """Reads from the leaders that metadata names."""
        finding = (s for s in self.states.values() if s.phase is Phase.FINDING)
        for state in [s for s in finding if s.retry.resume_at_ms <= self.now_ms]:
            self._move(state, judge_leader(state, self.policy, self.now_ms, found))
            state.without_leader = found.answered_by if state.phase is Phase.FINDING else None

    # --- transitions --------------------------------------------------------------------

    def _move(self, state: SliceState, observation: Observation | Fail) -> None:
        """Takes one transition of the table, and applies its loss; or ends the run."""
        if isinstance(observation, Fail):
            self._end(observation)
            return
        loss = observation.loss
        move, line = move_on(state, observation, self.now_ms, self.limits)
        if line is not None:
            self._unlogged.append(line)
        if (move is Move.LOSE) != (loss is not None):
            raise Bug(
                f"{state.slice}: after {observation.event.name}, {move.value}; the loss is {loss}"
            )
        if loss is not None:
            self._unlogged.append(loss)
            self._losses.append(LostPiece(state.slice.index, loss, state.broker.known_epoch))
            state.advance(loss.until_offset, self.now_ms)

    def _end(self, failure: Fail) -> None:
        """Ends the run with the first failure."""
        self._failure = self._failure or failure

    def _current(self, request: SliceRequest, phase: Phase = Phase.READING) -> SliceState:
        state = self.states[request.index]
        if state.phase is not phase or request.offset != state.next_offset:
            raise Bug(
                f"{state.slice}: a response for offset {request.offset} came while the slice is "
                f"{state.phase.value} at {state.next_offset}"
            )
        return state

    def _turn_to_leader(self, request: SliceRequest, evidence: str) -> bool:
        """Turns to the leader, unless the sender of the response proves damage; then returns
        False."""
        state = self.states[request.index]
        if state.broker.sender.proves_damage:
            return False
        self._move(state, unproved_observation(state, evidence))
        return True
