"""The errors that end a slice: what happened, where, and what to do."""

from __future__ import annotations

from typing import Any

from rangeland.dialects.capabilities import Capabilities
from rangeland.errors import BadRecord, JobFileError, Unreachable
from rangeland.fetch.damage_policy import look_at
from rangeland.fetch.slice_state import SliceState


def _facts_of(state: SliceState) -> dict[str, Any]:
    return {
        "topic": state.slice.partition.topic,
        "partition": state.slice.partition.number,
        "broker": state.slice.partition.broker or None,
        "from_offset": state.slice.from_offset,
        "until_offset": state.slice.until_offset,
        "position": state.position,
        "leader": str(state.server.address) if state.server.address else None,
    }


def stuck(state: SliceState, waited_ms: int) -> Unreachable:
    return Unreachable(
        f"{state.slice} got no further than offset {state.position} in {waited_ms} ms",
        why=state.last_failure or "its leader sent no records",
        do="check the partition's leader, then run again: the same plan is read again",
        **_facts_of(state),
    )


def only_older(state: SliceState, next_offset: int, capabilities: Capabilities) -> BadRecord:
    return BadRecord(
        f"{state.slice.partition}: a fetch at offset {state.position} gave batches that "
        f"end at {next_offset}",
        why="the response has only older records, so reading would never end",
        do=look_at("the log segment", capabilities),
        **_facts_of(state),
    )


def too_large(state: SliceState, capabilities: Capabilities) -> BadRecord:
    return BadRecord(
        f"{state.slice.partition}: no complete batch at offset {state.position} in "
        f"{state.fetch_bytes} bytes",
        why="batches of this size are not supported, or its length field is damaged",
        do=look_at("the batch", capabilities),
        **_facts_of(state),
    )


def unreadable(state: SliceState, reason: str) -> BadRecord:
    return BadRecord(
        f"{state.slice.partition} cannot be read at offset {state.position}",
        why=reason,
        do="check the log segment on the leader, or its disk",
        **_facts_of(state),
    )


def not_allowed(state: SliceState, reason: str) -> JobFileError:
    return JobFileError(
        f"{state.slice} may not be read",
        why=reason,
        do="give the user of source.security the right to read the topic",
        **_facts_of(state),
    )


def not_served(state: SliceState, reason: str) -> Unreachable:
    return Unreachable(
        f"{state.slice} cannot be read",
        why=reason,
        do="check the permissions of this client and the version of the broker",
        **_facts_of(state),
    )
