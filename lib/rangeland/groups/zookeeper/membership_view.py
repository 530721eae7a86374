"""A group's members and the partitions they own, read in a few rounds of requests.

The rounds do not show a single moment: a member may leave between them. Conditions that must hold
at a single moment are checked by the transaction that relies on them, not here.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from rangeland.dialects.cluster_values import GroupMember, GroupState
from rangeland.errors import Conflict
from rangeland.groups.zookeeper.znode_layout import (
    group_member,
    group_path,
    ids_path,
    read_owner,
    read_partition,
    read_topics,
)
from rangeland.model import Partition
from rangeland.zookeeper.zookeeper_client import ZooKeeper

_SHOWN = 8


@dataclass(frozen=True, slots=True)
class ZooKeeperGroupView:
    """A group according to its nodes. ``topics`` of each registered member; None if they are
    unknown. ``owners`` may name members that are not registered. ``job`` decides which drivers are
    ours."""

    group: str
    job: str
    topics: Mapping[str, frozenset[str] | None]
    owners: Mapping[Partition, str]

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(sorted(self.topics))

    def holders(self) -> tuple[GroupMember, ...]:
        """All members, including those that only own partitions."""
        owned: dict[str, set[Partition]] = {member: set() for member in self.topics}
        for partition, member in self.owners.items():
            owned.setdefault(member, set()).add(partition)
        return tuple(group_member(self.group, self.job, m, owned[m]) for m in sorted(owned))

    def drivers(self) -> tuple[str, ...]:
        """The registered drivers of this job."""
        return tuple(
            h.member_id for h in self.holders() if h.is_ours and h.member_id in self.topics
        )

    def others(self, partitions: Collection[Partition]) -> list[GroupMember]:
        """Registered members that read the topics of this job but are not its drivers. A member
        that owns nothing yet counts as well: the group would assign partitions to it."""
        topics_of_job = {p.topic for p in partitions}

        def reads(member: str) -> bool:
            topics = self.topics[member]
            return topics is None or not topics_of_job.isdisjoint(topics)

        registered = [h for h in self.holders() if not h.is_ours and h.member_id in self.topics]
        return [h for h in registered if reads(h.member_id) or h.partitions & set(partitions)]

    @property
    def state(self) -> GroupState:
        """The state that the nodes imply, since ZooKeeper does not store it: a group counts as
        rebalancing while an owner is not registered, or assignments differ in size by more than
        range assignment allows. If drivers of the job are members, only they and their topics
        count."""
        if not self.topics and not self.owners:
            return GroupState.EMPTY
        members = self.drivers() or self.ids
        topics = {topic for member in members for topic in self.topics[member] or ()}
        owners = {p: m for p, m in self.owners.items() if p.topic in topics or not members}
        if set(owners.values()) - self.topics.keys() or self._is_uneven(members):
            return GroupState.REBALANCING
        return GroupState.STABLE

    def _is_uneven(self, members: Sequence[str]) -> bool:
        owned = Counter((member, p.topic) for p, member in self.owners.items())
        shares: dict[str, list[int]] = defaultdict(list)
        for member in members:
            for topic in self.topics[member] or ():
                shares[topic].append(owned[member, topic])
        return any(max(counts) - min(counts) > 1 for counts in shares.values())


def read_group(zookeeper: ZooKeeper, group: str, job: str) -> ZooKeeperGroupView | None:
    """Reads a group and its members; None if it does not exist. Raises Unreachable."""
    zookeeper.catch_up()
    ids = ids_path(group)
    owners = f"{group_path(group)}/owners"
    listed = zookeeper.children_of((group_path(group), ids, owners))
    if listed[group_path(group)] is None:
        return None
    nodes = zookeeper.read_all(f"{ids}/{member}" for member in listed[ids] or ())
    topics = {
        path.removeprefix(f"{ids}/"): read_topics(node.content)
        for path, node in nodes.items()
        if node is not None
    }
    return ZooKeeperGroupView(
        group, job, topics, _read_owners(zookeeper, owners, listed[owners] or ())
    )


def _read_owners(zookeeper: ZooKeeper, owners: str, topics: Sequence[str]) -> dict[Partition, str]:
    names = zookeeper.children_of(f"{owners}/{topic}" for topic in topics)
    paths: dict[str, Partition] = {}
    for topic in topics:
        for name in names[f"{owners}/{topic}"] or ():
            if (partition := read_partition(topic, name)) is not None:
                paths[f"{owners}/{topic}/{name}"] = partition
    nodes = zookeeper.read_all(paths)
    return {paths[p]: read_owner(node.content) for p, node in nodes.items() if node is not None}


# --- sentences --------------------------------------------------------------------------


def describe_holders(holders: Sequence[GroupMember]) -> str:
    """``g_host-1795233329683-c81507e9 on host (orders/1-0, orders/1-1)``, and so on."""
    return "; ".join(map(_describe, holders))


def _describe(member: GroupMember) -> str:
    owned = sorted(member.partitions, key=lambda p: (p.topic, p.broker, p.number))
    shown = ", ".join(map(str, owned[:_SHOWN]))
    more = f" and {len(owned) - _SHOWN} more" if len(owned) > _SHOWN else ""
    where = f" on {member.host}" if member.host else ""
    return f"{member.member_id}{where} ({f'owns {shown}{more}' if owned else 'owns nothing'})"


def group_in_use_error(group: str, members: Sequence[GroupMember], what: str) -> Conflict:
    """The error for members that prevented ``what``, a clause."""
    return Conflict(
        f"{what}: group {group} is in use",
        why=f"it has {describe_holders(members)}",
        do="stop that consumer, or give the job its own group; a consumer that was just killed "
        "is gone when its session ends, so run again then",
        group=group,
        members=[member.member_id for member in members],
        partitions={m.member_id: [str(p) for p in sorted(m.partitions)] for m in members},
    )
