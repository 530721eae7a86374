"""The messages that members of a group send each other: Kafka's consumer protocol, as values.

Invalid bytes from other clients are not an error: an invalid subscription subscribes to nothing,
and an invalid assignment has no partitions. Our members name their job in their user data, after
what Kafka's StickyAssignor writes there, so that any client may lead the group.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from rangeland.dialects.kafka import messages as m
from rangeland.errors import RemoteProtocolError
from rangeland.grouping import group_by
from rangeland.groups.kafka.assignment import SubscribedMember
from rangeland.model import Partition
from rangeland.wire.declarations import spec_of
from rangeland.wire.encoding import decode, decode_from, encode

OWNER_PREFIX = "rangeland/"

_SENT_VERSION = 1
"""The first version that has owned partitions. Older clients read its beginning."""

_STICKY = "sticky"
T = TypeVar("T")


def owner_of(job: str) -> str:
    return OWNER_PREFIX + job


def subscription_bytes(
    topics: Iterable[str], held: Iterable[Partition], generation: int, owner: str
) -> bytes:
    """A subscription as bytes. ``held`` are the partitions that the member had in ``generation``
    (-1: none)."""
    owned = _by_topic(held)
    user_data = m.StickyUserData(previous_assignment=owned, generation=generation, owner=owner)
    message = m.ConsumerProtocolSubscription(
        topics=tuple(sorted(topics)), user_data=encode(user_data, 2), owned_partitions=owned
    )
    return _add_header(message)


def read_subscription(
    data: bytes, strategy: str, instance_id: str | None = None
) -> SubscribedMember:
    """Reads a subscription as the assignor of ``strategy`` must see it: the sticky assignor uses
    the user data."""
    message = _read_with_header(m.ConsumerProtocolSubscription, data)
    if message is None:
        return SubscribedMember(frozenset(), instance_id=instance_id)
    owned = message.owned_partitions
    generation = message.generation_id
    if strategy == _STICKY:
        sticky = _user_data(message.user_data)
        owned = sticky.previous_assignment
        generation = sticky.generation
    return SubscribedMember(
        frozenset(message.topics), frozenset(_flat(owned)), generation, instance_id
    )


def read_owner(data: bytes) -> str:
    """The job of the driver that sent this subscription, as ``rangeland/<job>``; else empty."""
    message = _read_with_header(m.ConsumerProtocolSubscription, data)
    owner = "" if message is None else _user_data(message.user_data).owner
    return owner if owner.startswith(OWNER_PREFIX) else ""


def assignment_bytes(partitions: Iterable[Partition]) -> bytes:
    return _add_header(m.ConsumerProtocolAssignment(assigned_partitions=_by_topic(partitions)))


def read_assignment(data: bytes) -> frozenset[Partition]:
    """Reads the partitions of a member. If it has none, the bytes may be empty."""
    message = _read_with_header(m.ConsumerProtocolAssignment, data)
    return frozenset(() if message is None else _flat(message.assigned_partitions))


def _add_header(message: Any) -> bytes:
    header = encode(m.ConsumerProtocolHeader(version=_SENT_VERSION), 0)
    return header + encode(message, _SENT_VERSION)


def _read_with_header(cls: type[T], data: bytes) -> T | None:
    """The value after the header with its version. A version newer than ours begins like our newest
    one."""
    try:
        header, start = decode_from(m.ConsumerProtocolHeader, 0, data)
        version = max(0, min(header.version, spec_of(cls).versions[1]))
        return decode_from(cls, version, data, start)[0]
    except RemoteProtocolError:
        return None


def _user_data(data: bytes | None) -> m.StickyUserData:
    """The user data in the newest layout that fits all bytes, since it has no version."""
    for version in (2, 1, 0):
        try:
            return decode(m.StickyUserData, version, data or b"")
        except RemoteProtocolError:
            continue
    return m.StickyUserData(previous_assignment=())


def _by_topic(partitions: Iterable[Partition]) -> tuple[m.TopicPartitions, ...]:
    return tuple(
        m.TopicPartitions(topic=topic, partitions=tuple(p.number for p in listed))
        for topic, listed in group_by(sorted(partitions), lambda p: p.topic).items()
    )


def _flat(topics: Iterable[m.TopicPartitions]) -> list[Partition]:
    return [Partition(t.topic, number) for t in topics for number in t.partitions]
