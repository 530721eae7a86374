"""The slice state machine as a table: phase and event -> what is done, and the next phase.

``FetchLoop`` turns each response into one event. Delivered records are not in the table: they
advance the position in ``READING``. A slice whose position reaches its end is ``DONE``, and
stays so. An event that a phase does not list cannot happen there.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from enum import Enum
from typing import Final

from rangeland.errors import Bug
from rangeland.fetch.fetch_steps import FetchLimits
from rangeland.fetch.slice_state import Phase, SliceState

logger = logging.getLogger(__name__)


class SliceEvent(Enum):
    REPLICA_FAILED = "the replica that is read instead of the leader gave nothing useful"
    STAND_IN_FAILED = "the replica that stands in for a missing leader gave nothing useful"
    RETRIABLE_ERROR = "an error that may pass"
    STALE_LEADER = "the broker does not lead the partition, or its leadership is unconfirmed"
    LEADER_HINTED = "the broker does not lead the partition, and names the new leader"
    CONNECTION_LOST = "the connection to the leader broke"
    REPLICA_PREFERRED = "the broker names a replica whose address is unknown"
    OUT_OF_RANGE = "the leader has no such offset"
    EMPTY_BELOW_END = "no records, although the log goes on"
    EMPTY_AT_END = "no records, and the log ends here, or its end was not reported"
    IN_RANGE = "the log contains the position"
    STARTS_LATER = "the log starts after the position"
    ENDS_EARLIER = "the log ends before the slice does; not certain yet"
    ENDS_EARLIER_FOR_SURE = "the log ends before the slice does"
    LEADER_FOUND = "metadata names a leader"
    NO_LEADER = "metadata names no usable leader, or could not be fetched"
    RECREATED = "the partition belongs to another topic of the same name"


class Move(Enum):
    BACK_OFF = "wait, longer each time"
    LEAVE = "leave the leader: metadata at once the first time, later after a wait"
    RETURN = "return from the replica to the leader, at once"
    GO_ON = "continue at once"
    LOSE = "offsets are lost: the policy fails, skips or holds"


_TABLE: Final[Mapping[Phase, Mapping[SliceEvent, tuple[Move, Phase]]]] = {
    Phase.READING: {
        SliceEvent.REPLICA_FAILED: (Move.RETURN, Phase.READING),
        SliceEvent.STAND_IN_FAILED: (Move.LEAVE, Phase.FINDING),
        SliceEvent.RETRIABLE_ERROR: (Move.BACK_OFF, Phase.READING),
        SliceEvent.STALE_LEADER: (Move.LEAVE, Phase.FINDING),
        SliceEvent.LEADER_HINTED: (Move.LEAVE, Phase.READING),
        SliceEvent.CONNECTION_LOST: (Move.LEAVE, Phase.FINDING),
        SliceEvent.REPLICA_PREFERRED: (Move.GO_ON, Phase.FINDING),
        SliceEvent.OUT_OF_RANGE: (Move.GO_ON, Phase.MEASURING),
        SliceEvent.EMPTY_BELOW_END: (Move.BACK_OFF, Phase.READING),
        SliceEvent.EMPTY_AT_END: (Move.BACK_OFF, Phase.MEASURING),
    },
    Phase.MEASURING: {
        SliceEvent.REPLICA_FAILED: (Move.RETURN, Phase.READING),
        SliceEvent.STAND_IN_FAILED: (Move.LEAVE, Phase.FINDING),
        SliceEvent.CONNECTION_LOST: (Move.LEAVE, Phase.FINDING),
        SliceEvent.IN_RANGE: (Move.BACK_OFF, Phase.READING),
        SliceEvent.STARTS_LATER: (Move.LOSE, Phase.READING),
        SliceEvent.ENDS_EARLIER: (Move.LEAVE, Phase.FINDING),
        SliceEvent.ENDS_EARLIER_FOR_SURE: (Move.LOSE, Phase.READING),
    },
    Phase.FINDING: {
        SliceEvent.LEADER_FOUND: (Move.GO_ON, Phase.READING),
        SliceEvent.NO_LEADER: (Move.BACK_OFF, Phase.FINDING),
        SliceEvent.RECREATED: (Move.LOSE, Phase.FINDING),
    },
    Phase.DONE: {},
}


def move_on(
    state: SliceState, event: SliceEvent, reason: str, now_ms: int, limits: FetchLimits
) -> None:
    """Takes one transition of the table. What is lost is applied by the caller."""
    found = _TABLE[state.phase].get(event)
    if found is None:
        raise Bug(f"{state.slice}: {event.name} happened while the slice is {state.phase.value}")
    move, state.phase = found
    match move:
        case Move.BACK_OFF:
            state.back_off(reason, now_ms, limits)
            _log(state, f"Retrying in {state.resume_at_ms - now_ms} ms", reason)
        case Move.LEAVE:
            state.leave_leader(reason, now_ms, limits)
            _log(state, f"Left the leader {state.left_leader}", reason)
        case Move.RETURN:
            state.return_to_leader(reason, now_ms)
            _log(state, f"Returned to the leader {state.server.leader.address}", reason)
        case Move.GO_ON if reason:
            state.last_failure = reason


def _log(state: SliceState, what: str, reason: str) -> None:
    logger.info("%s: %s", what, reason, extra=state.log_fields)
