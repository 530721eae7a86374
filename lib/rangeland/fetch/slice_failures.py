"""What happens when a slice cannot be read as planned: the loss that the policy makes of damaged or
missing offsets, and where reading resumes; or the error that ends the run.

Damage is found twice: when the end of a response is determined, and when its records are decoded.
Both ask here. Pure functions; damage is judged by ``BadRecord.damage``.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

from rangeland.dialects.capabilities import Capabilities
from rangeland.errors import BadRecord, Damage, JobFileError, Unreachable
from rangeland.fetch.slice_state import SliceState
from rangeland.logging_setup import partition_fields
from rangeland.model import Partition, Slice
from rangeland.planning.loss_errors import range_lost
from rangeland.planning.policy import Action, Loss, LossKind, Policy

logger = logging.getLogger(__name__)


def add_partition(
    error: BadRecord, partition: Partition, leader: str, capabilities: Capabilities
) -> BadRecord:
    """The same error with the partition and leader that only the consumer knows."""
    return BadRecord.of(
        error,
        what=f"{partition}: {error.what}",
        do=error.do or look_at("the log segment", capabilities),
        **_facts_of(partition),
        leader=leader,
    )


def look_at(what: str, capabilities: Capabilities) -> str:
    """The remedy for damaged bytes, with the tool that an operator has for them."""
    return f"check {what} on the leader" + (
        f" with {capabilities.log_tool}" if capabilities.log_tool else ""
    )


def passable_until(error: BadRecord, asked_at: int, *, is_replica: bool) -> int | None:
    """The offset up to which a damaged response to a request at ``asked_at`` can be taken: the end
    of the damage, or its beginning, so that decoding sees what is around it. None where neither is
    known. A replica's damage is never passed: its leader is read instead."""
    damage = error.damage
    if damage is None:
        return None
    edges = (damage.base_offset,) if is_replica else (damage.next_offset, damage.base_offset)
    return next((edge for edge in edges if edge is not None and edge > asked_at), None)


def first_damaged(damage: Damage, position: int, good_end: int, until_offset: int) -> int:
    """The first offset of ``[position, until_offset)`` that cannot be decoded. ``good_end``: up
    to where decoding was tried."""
    first = max(position, damage.base_offset)
    if first < good_end:
        return first
    # Only damaged bytes say that they begin there, so what comes before them is in doubt, too.
    doubtful_from = position if first >= until_offset else first
    return max(position, doubtful_from if damage.good_until is None else damage.good_until)


def range_loss(
    policy: Policy, slice_: Slice, first: int, until_offset: int, kind: LossKind, evidence: str
) -> Loss:
    """Applies the policy to offsets that the log does not have: they are skipped, or the slice is
    held from ``first`` on. Raises RangeLost where the policy is to fail."""
    loss = Loss(slice_.partition, first, min(until_offset, slice_.until_offset), kind, evidence)
    action = policy.of(kind, slice_.partition.topic)
    if action not in (Action.SKIP, Action.HOLD):
        raise range_lost([loss])
    if action is Action.HOLD:
        return replace(loss, until_offset=slice_.until_offset, action=action)
    return loss


def damage_loss(
    error: BadRecord, policy: Policy, slice_: Slice, first: int, until_offset: int
) -> Loss:
    """Applies the policy to a batch that cannot be decoded: up to ``until_offset`` at most it is
    skipped or quarantined, or the slice is held from ``first`` on. Raises the error where the
    policy is to fail, and where reading cannot resume since the damage's end is unknown."""
    action = policy.of(LossKind.CORRUPT, slice_.partition.topic)
    evidence = f"{error.what}: {error.why}"
    if action is Action.FAIL:
        raise error
    if action is Action.HOLD:
        until_offset = slice_.until_offset
        return Loss(slice_.partition, first, until_offset, LossKind.CORRUPT, evidence, action)
    resumes_at = error.damage.next_offset if error.damage else None
    if resumes_at is None or resumes_at <= first:
        raise _unknown_end_error(error, action)
    until_offset = min(until_offset, resumes_at)
    return Loss(slice_.partition, first, until_offset, LossKind.CORRUPT, evidence, action)


def log_loss(loss: Loss) -> None:
    extra = partition_fields(loss.partition, loss.from_offset)
    logger.warning("Applied policy %s: %s: %s", loss.action, loss, loss.evidence, extra=extra)


def _unknown_end_error(error: BadRecord, action: Action) -> BadRecord:
    return BadRecord.of(
        error,
        why=f"{error.why}; its end is unknown, so `{action}` cannot continue after it",
        do="restore the log from a good replica, or land the other partitions with "
        "`policy: {corrupt: hold}`",
    )


def _facts_of(partition: Partition) -> dict[str, Any]:
    number, broker = partition.number, partition.broker or None
    return {"topic": partition.topic, "partition": number, "broker": broker}


def _state_facts(state: SliceState) -> dict[str, Any]:
    return {
        **_facts_of(state.slice.partition),
        "from_offset": state.slice.from_offset,
        "until_offset": state.slice.until_offset,
        "position": state.position,
        "leader": str(state.server.address) if state.server.address else None,
    }


def no_progress_error(state: SliceState) -> Unreachable:
    return Unreachable(
        f"{state.slice} got no further than offset {state.position} in {state.stuck_ms} ms",
        why=state.last_failure or "its leader sent no records",
        do="check the partition's leader, then run again: the same plan is read again",
        **_state_facts(state),
    )


def older_records_error(
    state: SliceState, next_offset: int, capabilities: Capabilities
) -> BadRecord:
    return BadRecord(
        f"{state.slice.partition}: a fetch at offset {state.position} gave batches that "
        f"end at {next_offset}",
        why="the response has only older records, so reading would never end",
        do=look_at("the log segment", capabilities),
        **_state_facts(state),
    )


def batch_size_error(state: SliceState, capabilities: Capabilities) -> BadRecord:
    return BadRecord(
        f"{state.slice.partition}: no complete batch at offset {state.position} in "
        f"{state.fetch_bytes} bytes",
        why="batches of this size are not supported, or its length field is damaged",
        do=look_at("the batch", capabilities),
        **_state_facts(state),
    )


def unreadable_error(state: SliceState, reason: str) -> BadRecord:
    return BadRecord(
        f"{state.slice.partition} cannot be read at offset {state.position}",
        why=reason,
        do="check the log segment on the leader, or its disk",
        **_state_facts(state),
    )


def refused_error(state: SliceState, reason: str) -> JobFileError:
    return JobFileError(
        f"{state.slice} may not be read",
        why=reason,
        do="give the user of source.security the right to read the topic",
        **_state_facts(state),
    )


def not_served_error(state: SliceState, reason: str) -> Unreachable:
    return Unreachable(
        f"{state.slice} cannot be read",
        why=reason,
        do="check the permissions of this client and the version of the broker",
        **_state_facts(state),
    )
