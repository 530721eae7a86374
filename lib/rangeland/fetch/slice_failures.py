"""What happens when a slice cannot be read as planned: the loss, with what the policy decides about
it, and where reading resumes; or the error that ends the run.

Damage is found twice: when the end of a response is determined, and when its records are decoded.
Both ask here. Damage is judged by ``BadRecord.damage``.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

from rangeland.dialects.capabilities import Capabilities
from rangeland.dialects.error_meaning import ErrorMeaning
from rangeland.errors import (
    BadRecord,
    Damage,
    DamagedLog,
    RangelandError,
    RemoteProtocolError,
    Unreachable,
)
from rangeland.fetch.replica_choice import Sender
from rangeland.fetch.slice_state import SliceState
from rangeland.logging_setup import partition_fields
from rangeland.loss import Action, Loss, LossKind, partition_facts
from rangeland.model import Partition, Slice
from rangeland.planning.loss_errors import range_lost_error
from rangeland.planning.policy import Policy

SUSPECTED_MS = 5_000
"""For how long before the deadline nothing but a loss must have been seen; half of the time there
is, if that is less."""

logger = logging.getLogger(__name__)


def located_damage_error(
    error: BadRecord, partition: Partition, leader: str, capabilities: Capabilities
) -> BadRecord:
    """The same error with the partition and leader that only the consumer knows."""
    known = error.with_words(
        what=f"{partition}: {error.what}",
        do=error.do or look_at("the log segment", capabilities),
    )
    return known.with_values(log=DamagedLog(partition)).with_facts(leader=leader)


def look_at(what: str, capabilities: Capabilities) -> str:
    """The remedy for damaged bytes, with the tool that an operator has for them."""
    return f"check {what} on the leader" + (
        f" with {capabilities.log_tool}" if capabilities.log_tool else ""
    )


def passable_until(error: BadRecord, asked_at: int, sender: Sender) -> int | None:
    """The offset up to which a damaged response to a request at ``asked_at`` can be taken: the end
    of the damage, or its beginning, so that decoding sees what is around it. None where neither is
    known. Damage that a replica may have sent is never passed: the leader is read instead."""
    damage = error.damage
    if damage is None:
        return None
    edges = (damage.next_offset, damage.base_offset)
    passable = edges if sender.proves_range else edges[1:]
    return next((edge for edge in passable if edge is not None and edge > asked_at), None)


def first_damaged(damage: Damage, next_offset: int, good_end: int, until_offset: int) -> int:
    """The first offset of ``[next_offset, until_offset)`` that cannot be decoded. ``good_end``: up
    to where decoding was tried."""
    first = max(next_offset, damage.base_offset)
    if first < good_end:
        return first
    # Only damaged bytes say that they begin there, so what comes before them is in doubt, too.
    doubtful_from = next_offset if first >= until_offset else first
    return max(next_offset, doubtful_from if damage.good_until is None else damage.good_until)


def settle_loss(
    loss: Loss, policy: Policy, slice_: Slice, error: RangelandError | None = None
) -> Loss:
    """The loss within the slice, with what the policy does about it; to the slice's end where it is
    held. Raises ``error`` where the policy is to fail, or RangeLost if there is none."""
    end = slice_.until_offset
    loss = replace(loss, until_offset=min(loss.until_offset, end), action=policy.decide(loss))
    if loss.action is Action.FAIL:
        raise error or range_lost_error([loss])
    return replace(loss, until_offset=end) if loss.action is Action.HOLD else loss


def damage_loss(
    error: BadRecord, policy: Policy, slice_: Slice, first: int, until_offset: int
) -> Loss:
    """What the policy does about a batch that cannot be decoded: up to ``until_offset`` at most
    it is skipped or quarantined, or the slice is held from ``first`` on. Raises the error where
    the policy is to fail, and where reading cannot go on after the damage."""
    evidence, damage = f"{error.what}: {error.why}", error.damage
    loss = Loss(slice_.partition, first, until_offset, LossKind.CORRUPT, evidence)
    loss = settle_loss(loss, policy, slice_, error)
    if loss.action is Action.HOLD:
        return loss
    if damage is None or damage.next_offset is None or damage.next_offset <= first:
        reason = f"its end is unknown, so `{loss.action}` cannot continue after it"
        raise _impassable_error(error, reason)
    if loss.action is Action.QUARANTINE and not damage.has_bytes:
        raise _impassable_error(error, "the leader no longer returns its bytes, to be quarantined")
    return replace(loss, until_offset=min(until_offset, damage.next_offset))


def loss_of(
    state: SliceState, policy: Policy, kind: LossKind, evidence: str, until: int | None = None
) -> Loss:
    """What the policy does about what is left of a slice, up to ``until`` or to its end. Raises
    RangeLost where the policy is to fail."""
    slice_, first = state.slice, state.next_offset
    loss = Loss(slice_.partition, first, until or slice_.until_offset, kind, evidence)
    return settle_loss(loss, policy, slice_)


def stuck_loss(state: SliceState, policy: Policy, now_ms: int, no_progress_ms: int) -> Loss:
    """What the policy does about the rest of a slice that has made no progress for too long: what
    was suspected is assumed now, unless it was first seen a moment ago, as where a broker has just
    started. Raises Unreachable if nothing is assumed, and the policy is to fail."""
    enough_ms = min(SUSPECTED_MS, no_progress_ms // 2)
    if state.suspected and state.suspected_ms(*state.suspected, now_ms) >= enough_ms:
        return loss_of(state, policy, *state.suspected)
    error, slice_ = no_progress_error(state), state.slice
    evidence = f"{error.what}: {error.why}"
    loss = Loss(
        slice_.partition, state.next_offset, slice_.until_offset, LossKind.UNREACHABLE, evidence
    )
    return settle_loss(loss, policy, slice_, error)


def log_loss(loss: Loss) -> None:
    extra = partition_fields(loss.partition, loss.from_offset)
    logger.warning("Applied policy %s: %s: %s", loss.action, loss, loss.evidence, extra=extra)


def _impassable_error(error: BadRecord, reason: str) -> BadRecord:
    return error.with_words(
        why=f"{error.why}; {reason}",
        do="restore the log from a good replica, or land the other partitions with "
        "`policy: {corrupt: hold}`",
    )


def _state_facts(state: SliceState) -> dict[str, Any]:
    return {
        **partition_facts(state.slice.partition),
        "from_offset": state.slice.from_offset,
        "until_offset": state.slice.until_offset,
        "position": state.next_offset,
        "leader": str(state.server.address) if state.server.address else None,
    }


def no_progress_error(state: SliceState) -> Unreachable:
    return Unreachable(
        f"{state.slice} got no further than offset {state.next_offset} in "
        f"{state.retry.stuck_ms} ms",
        why=state.retry.last_failure or "its leader sent no records",
        do="check the partition's leader, then run again: the same plan is read again",
        **_state_facts(state),
    )


def older_records_error(
    state: SliceState, next_offset: int, capabilities: Capabilities
) -> BadRecord:
    return BadRecord(
        f"{state.slice.partition}: a fetch at offset {state.next_offset} gave batches that "
        f"end at {next_offset}",
        why="the response has only older records, so reading would never end",
        do=look_at("the log segment", capabilities),
        log=DamagedLog(state.slice.partition, state.next_offset),
        **_state_facts(state),
    )


def batch_size_error(state: SliceState, capabilities: Capabilities) -> BadRecord:
    return BadRecord(
        f"{state.slice.partition}: no complete batch at offset {state.next_offset} in "
        f"{state.size.bytes} bytes",
        why="batches of this size are not supported, or its length field is damaged",
        do=look_at("the batch", capabilities),
        log=DamagedLog(state.slice.partition, state.next_offset),
        **_state_facts(state),
    )


def unreadable_error(state: SliceState, reason: str) -> BadRecord:
    return BadRecord(
        f"{state.slice.partition} cannot be read at offset {state.next_offset}",
        why=reason,
        do="check the log segment on the leader, or its disk",
        log=DamagedLog(state.slice.partition, state.next_offset),
        **_state_facts(state),
    )


def refused_error(state: SliceState, meaning: ErrorMeaning, reason: str) -> RangelandError:
    """For what would be refused again."""
    what, do = f"{state.slice} cannot be read", "check source, and the version of the broker"
    if meaning is ErrorMeaning.DENIED:
        what = f"{state.slice} may not be read"
        do = "give the user of source.security the right to read the topic"
    return meaning.refusal_error(what, why=reason, do=do, **_state_facts(state))


def wrong_code_error(state: SliceState, reason: str) -> RemoteProtocolError:
    return RemoteProtocolError(
        f"{state.slice} cannot be read",
        why=f"{reason}, which is not a valid response to a fetch",
        do="check the version of the broker",
        **_state_facts(state),
    )
