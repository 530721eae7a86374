"""How ZooKeeper stores a consumer group: names and contents of its nodes.

Pure. Below ``/consumers/<group>``, ``ids/<member>`` says which topics a member reads, and with
how many threads; ``owners/<topic>/<partition>`` names the thread that has a partition; both are
ephemeral. ``offsets/<topic>/<partition>`` has the next offset.

The two dialects differ only slightly: Jafka's partition is ``<broker>-<number>`` and a member's
node is a bare map; Kafka's old consumers write ``<number>``, and put the map into an envelope.
Upstream's consumers read what is written here, and vice versa: Jafka
``ZkGroupDirs``, ``ZkGroupTopicDirs``, ``TopicCount``; Kafka 0.8 ``ZkUtils``, ``TopicCount``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass

from rangeland.dialects.cluster_values import GroupMember
from rangeland.errors import JobFileError, RemoteProtocolError
from rangeland.model import Partition
from rangeland.untrusted import MAX_INT32, JsonFields, Unreadable, decimal

THREAD = "-0"
"""A member has one thread, whose name is the member's with this suffix."""

# A driver puts its job before the host. No host name has an @.
_MEMBER = re.compile(r"(?:(?P<client>[^@]+)@)?(?P<host>.+)-(?P<ms>\d+)-(?P<random>[0-9a-f]{8})")
_DRIVER = "rangeland"


def group_path(group: str) -> str:
    """The path of a group's node. Raises JobFileError for a name that no node can have."""
    if not group or group in (".", "..") or "/" in group or not group.isprintable():
        raise JobFileError(
            f"{group!r} cannot be a group in ZooKeeper",
            why="it is not a valid name of a node",
            do="choose a name without /",
            group=group,
        )
    return f"/consumers/{group}"


def ids_path(group: str, member_id: str = "") -> str:
    return f"{group_path(group)}/ids" + (f"/{member_id}" if member_id else "")


def owner_path(group: str, partition: Partition) -> str:
    return f"{group_path(group)}/owners/{partition.topic}/{partition_name(partition)}"


def offset_path(group: str, partition: Partition) -> str:
    return f"{group_path(group)}/offsets/{partition.topic}/{partition_name(partition)}"


def parent(path: str) -> str:
    return path.rpartition("/")[0]


# --- partitions -------------------------------------------------------------------------


def partition_name(partition: Partition) -> str:
    return f"{partition.broker}-{partition.number}" if partition.broker else str(partition.number)


def read_partition(topic: str, name: str) -> Partition | None:
    """The partition after which a node is named; None for a name that is not a partition's."""
    broker, _, number = name.rpartition("-")
    try:
        return Partition(topic, decimal(number, "the number", 0, MAX_INT32), broker)
    except Unreadable:
        return None


def read_offset(path: str, content: bytes) -> int:
    """The offset in a node. Raises RemoteProtocolError for anything that is not one."""
    text = content.decode(errors="replace").strip()
    try:
        return decimal(text, "the offset")
    except Unreadable:
        raise RemoteProtocolError(
            f"the node {path} in ZooKeeper cannot be read",
            why=f"it holds {text[:200]!r}, not an offset",
            do="write an offset there, or remove the node",
            path=path,
        ) from None


# --- members ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MemberName:
    """The parts of a member's id. ``job`` is empty unless it is a driver of this library."""

    host: str = ""
    client_id: str = ""
    job: str = ""


def member_name(group: str, job: str, host: str, now_ms: int, random: str) -> str:
    """The name of a member. ``random`` is 8 hexadecimal digits."""
    return f"{group}_{_DRIVER}.{job}@{host.replace('/', '_')}-{now_ms}-{random}"


def read_name(group: str, member_id: str) -> MemberName:
    match = _MEMBER.fullmatch(member_id.removeprefix(f"{group}_"))
    if match is None:
        return MemberName()
    client, dot, job = (match["client"] or "").partition(".")
    is_driver = client == _DRIVER and bool(dot)
    return MemberName(match["host"], _DRIVER if is_driver else "", job if is_driver else "")


def registration(partitions: Iterable[Partition], now_ms: int) -> bytes:
    """The content of a member's node: one thread for each of its topics."""
    partitions = list(partitions)
    topics = {topic: 1 for topic in sorted({p.topic for p in partitions})}
    if any(p.broker for p in partitions):
        return json.dumps(topics, separators=(",", ":")).encode()
    envelope = {
        "version": 1,
        "subscription": topics,
        "pattern": "static",
        "timestamp": str(now_ms),
    }
    return json.dumps(envelope, separators=(",", ":")).encode()


def read_topics(content: bytes) -> frozenset[str] | None:
    """The topics that a member reads; None if they are unknown: a pattern, or an unknown form."""
    try:
        fields = JsonFields.parse(content)
    except Unreadable:
        return None
    if isinstance(subscription := fields.get("subscription"), dict):
        return frozenset(subscription) if fields.get("pattern") in (None, "static") else None
    return frozenset(fields) if all(isinstance(fields.get(n), int) for n in fields) else None


def read_owner(content: bytes) -> str:
    """The member of the thread that an owner's node names."""
    text = content.decode(errors="replace")
    member_id, dash, thread = text.rpartition("-")
    return member_id if dash and thread.isdigit() else text


def group_member(
    group: str, job: str, member_id: str, partitions: Iterable[Partition]
) -> GroupMember:
    """A member as a value; ours if it is a driver of this job."""
    name = read_name(group, member_id)
    is_ours = bool(job) and name.job == job
    return GroupMember(member_id, name.client_id, name.host, frozenset(partitions), is_ours)
