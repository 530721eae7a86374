"""Where one slice stands while it is read, and what is said of it in errors."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

from rangeland.dialects.capabilities import Capabilities
from rangeland.errors import BadRecord, JobFileError, Unreachable
from rangeland.fetch.damage_policy import look_at
from rangeland.fetch.replica_choice import ServingReplica
from rangeland.model import Address, Slice
from rangeland.planning.policy import LossKind


class Phase(Enum):
    READING = "reading"
    MEASURING = "asking for its log's range"
    FINDING = "finding its leader"
    DONE = "done"


@dataclass(slots=True)
class SliceState:
    """Where one slice stands."""

    slice: Slice
    position: int
    server: ServingReplica
    phase: Phase
    fetch_bytes: int
    resume_at_ms: int = 0
    progress_at_ms: int = 0
    stuck_since_ms: int | None = None
    held_back_ms: int = 0
    tried_at_ms: int = 0
    troubles: int = 0
    cut_short: int = 0
    """How often its leader has said that the log ends at the position or before it."""
    cut_short_at_ms: int = 0
    """When it said so first."""
    alone: bool = False
    suspected: tuple[LossKind, str] | None = None
    """What it will be called, and the evidence, if nothing else happens until the deadline."""
    last_trouble: str = ""
    left_leader: Address | None = None


def facts_of(reading: SliceState) -> dict[str, Any]:
    return {
        "topic": reading.slice.partition.topic,
        "partition": reading.slice.partition.number,
        "broker": reading.slice.partition.broker or None,
        "from_offset": reading.slice.from_offset,
        "until_offset": reading.slice.until_offset,
        "position": reading.position,
        "leader": str(reading.server.address) if reading.server.address else None,
    }


def asks_with(reading: SliceState, first: SliceState) -> bool:
    """Whether both can be in one request."""
    mine, other = reading.server, first.server
    return mine.address == other.address and mine.stays == other.stays


# --- errors -----------------------------------------------------------------------------


def stuck(reading: SliceState, waited_ms: int) -> Unreachable:
    return Unreachable(
        f"{reading.slice} got no further than offset {reading.position} in {waited_ms} ms",
        why=reading.last_trouble or "its leader sent no records",
        do="check the partition's leader, then run again: the same plan is read again",
        **facts_of(reading),
    )


def only_older(reading: SliceState, next_offset: int, nature: Capabilities) -> BadRecord:
    return BadRecord(
        f"{reading.slice.partition}: a fetch at offset {reading.position} gave batches that "
        f"end at {next_offset}",
        why="the log gave only older records, so reading would never end",
        do=look_at("the log segment", nature),
        **facts_of(reading),
    )


def too_large(reading: SliceState, nature: Capabilities) -> BadRecord:
    return BadRecord(
        f"{reading.slice.partition}: no complete batch at offset {reading.position} in "
        f"{reading.fetch_bytes} bytes",
        why="a batch this large is not read, or its length field is damaged",
        do=look_at("the batch", nature),
        **facts_of(reading),
    )


def unreadable(reading: SliceState, trouble: str) -> BadRecord:
    return BadRecord(
        f"{reading.slice.partition} cannot be read at offset {reading.position}",
        why=trouble,
        do="check the log segment on the leader, or its disk",
        **facts_of(reading),
    )


def not_allowed(reading: SliceState, trouble: str) -> JobFileError:
    return JobFileError(
        f"{reading.slice} may not be read",
        why=trouble,
        do="give the user of source.security the right to read the topic",
        **facts_of(reading),
    )


def not_served(reading: SliceState, trouble: str) -> Unreachable:
    return Unreachable(
        f"{reading.slice} cannot be read",
        why=trouble,
        do="check the permissions of this client and the version of the broker",
        **facts_of(reading),
    )
