"""The group leader's assignment of partitions to members. Pure and deterministic.

*range* and *roundrobin* equal Kafka's RangeAssignor and RoundRobinAssignor without racks: any
member may lead the group, so all must agree. *sticky* keeps the promises of Kafka's
StickyAssignor (KIP-54): a balanced assignment that moves as few partitions as possible. If
there are several of those, the choice may differ from Kafka's.

Members are sorted by instance id if they have one, then by member id, as in Kafka.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from rangeland.errors import JobFileError
from rangeland.groups.range_assignment import cut_into_runs
from rangeland.model import Partition

Assignment = dict[str, list[Partition]]


@dataclass(frozen=True, slots=True)
class SubscribedMember:
    """One member's subscription. ``held`` are its partitions in ``generation`` (-1: none)."""

    topics: frozenset[str]
    held: frozenset[Partition] = frozenset()
    generation: int = -1
    instance_id: str | None = None


Members = Mapping[str, SubscribedMember]


def assign(strategy: str, partitions: Iterable[Partition], members: Members) -> Assignment:
    """Every partition with a subscriber, at exactly one of its subscribers; all members are in
    the result. Raises JobFileError for an unknown strategy."""
    if strategy not in STRATEGIES:
        raise JobFileError(
            f"there is no assignment {strategy}",
            do=f"use one of: {', '.join(sorted(STRATEGIES))}",
            assignment=strategy,
        )
    topics = {topic for member in members.values() for topic in member.topics}
    wanted = sorted({partition for partition in partitions if partition.topic in topics})
    return STRATEGIES[strategy](wanted, members)


def _order_members(members: Members) -> list[str]:
    def rank(member_id: str) -> tuple[bool, str, str]:
        instance = members[member_id].instance_id
        return instance is None, instance or "", member_id

    return sorted(members, key=rank)


def _range(partitions: list[Partition], members: Members) -> Assignment:
    """Each topic separately, in consecutive runs; the first members get the longer ones."""
    found: Assignment = {member: [] for member in members}
    ordered = _order_members(members)
    for topic in sorted({partition.topic for partition in partitions}):
        logs = [partition for partition in partitions if partition.topic == topic]
        takers = [member for member in ordered if topic in members[member].topics]
        for member, run in cut_into_runs(logs, takers).items():
            found[member] += run
    return found


def _roundrobin(partitions: list[Partition], members: Members) -> Assignment:
    """All partitions in order, to each member in turn; a member that does not subscribe to the
    topic is skipped."""
    found: Assignment = {member: [] for member in members}
    ordered = _order_members(members)
    turn = 0
    for partition in partitions:
        while partition.topic not in members[ordered[turn % len(ordered)]].topics:
            turn += 1
        found[ordered[turn % len(ordered)]].append(partition)
        turn += 1
    return found


# --- sticky -----------------------------------------------------------------------------


def _sticky(partitions: list[Partition], members: Members) -> Assignment:
    """Keeps what members have, assigns the rest, then balances. The last step moves a partition
    only from the fullest member that can give one up to the emptiest that takes it, and only
    while that improves the balance; so no partition is moved without need."""
    found = _keep_held(partitions, members)
    kept = {member: frozenset(held) for member, held in found.items()}
    ordered = _order_members(members)
    takers = {
        topic: [member for member in ordered if topic in members[member].topics]
        for topic in {partition.topic for partition in partitions}
    }
    held = {partition for owned in found.values() for partition in owned}
    unowned = [partition for partition in partitions if partition not in held]
    for partition in sorted(unowned, key=lambda p: (len(takers[p.topic]), p)):
        found[_emptiest(takers[partition.topic], found)].append(partition)
    while (move := _next_move(found, takers, kept)) is not None:
        giver, taker, partition = move
        found[giver].remove(partition)
        found[taker].append(partition)
    return {member: sorted(owned) for member, owned in found.items()}


def _keep_held(partitions: list[Partition], members: Members) -> Assignment:
    """What each member had and may keep. If two claim the same partition, the later generation
    wins; within one generation neither does."""
    claims: dict[Partition, list[str]] = {partition: [] for partition in partitions}
    for member_id, member in members.items():
        for partition in member.held:
            if partition in claims and partition.topic in member.topics:
                claims[partition].append(member_id)
    found: Assignment = {member: [] for member in members}
    for partition, claimants in claims.items():
        generations = Counter(members[claimant].generation for claimant in claimants)
        if claimants and generations[latest := max(generations)] == 1:
            (owner,) = (c for c in claimants if members[c].generation == latest)
            found[owner].append(partition)
    return found


def _emptiest(members: list[str], found: Assignment) -> str:
    return min(members, key=lambda member: len(found[member]))


def _next_move(
    found: Assignment, takers: Mapping[str, list[str]], kept: Mapping[str, frozenset[Partition]]
) -> tuple[str, str, Partition] | None:
    """Giver, taker and partition of the next move; None if no move improves the balance.
    Partitions that a member had before are moved last."""
    for giver in sorted(found, key=lambda member: (-len(found[member]), member)):
        for topic in sorted({partition.topic for partition in found[giver]}):
            taker = _emptiest(takers[topic], found)
            if len(found[taker]) + 1 < len(found[giver]):
                of_topic = (p for p in found[giver] if p.topic == topic)
                return giver, taker, max(of_topic, key=lambda p: (p not in kept[giver], p))
    return None


STRATEGIES: Final[Mapping[str, Callable[[list[Partition], Members], Assignment]]] = {
    "range": _range,
    "roundrobin": _roundrobin,
    "sticky": _sticky,
}
