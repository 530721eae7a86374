"""The group leader's assignment of partitions to members. Pure and deterministic.

*range* and *roundrobin* give the same results as Kafka's RangeAssignor and RoundRobinAssignor
without racks: any member may lead the group, so all must agree. *sticky* keeps the promises of
Kafka's StickyAssignor (KIP-54): a balanced assignment that moves as few partitions as possible. If
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
    """Assigns every partition that has subscribers to exactly one of them; all members are in the
    result. Raises JobFileError for an unknown strategy."""
    if strategy not in STRATEGIES:
        raise JobFileError(
            f"there is no assignment {strategy}",
            do=f"use one of: {', '.join(sorted(STRATEGIES))}",
            assignment=strategy,
        )
    topics = {topic for member in members.values() for topic in member.topics}
    subscribed = sorted({partition for partition in partitions if partition.topic in topics})
    return STRATEGIES[strategy](subscribed, members)


def _order_members(members: Members) -> list[str]:
    def rank(member_id: str) -> tuple[bool, str, str]:
        instance = members[member_id].instance_id
        return instance is None, instance or "", member_id

    return sorted(members, key=rank)


def _range(partitions: list[Partition], members: Members) -> Assignment:
    """Each topic separately, in consecutive runs; the first members get the longer ones."""
    shares: Assignment = {member: [] for member in members}
    ordered = _order_members(members)
    for topic in sorted({partition.topic for partition in partitions}):
        logs = [partition for partition in partitions if partition.topic == topic]
        takers = [member for member in ordered if topic in members[member].topics]
        for member, run in cut_into_runs(logs, takers).items():
            shares[member] += run
    return shares


def _roundrobin(partitions: list[Partition], members: Members) -> Assignment:
    """All partitions in order, to each member in turn; a member that does not subscribe to the
    topic is skipped."""
    shares: Assignment = {member: [] for member in members}
    ordered = _order_members(members)
    turn = 0
    for partition in partitions:
        while partition.topic not in members[ordered[turn % len(ordered)]].topics:
            turn += 1
        shares[ordered[turn % len(ordered)]].append(partition)
        turn += 1
    return shares


# --- sticky -----------------------------------------------------------------------------


def _sticky(partitions: list[Partition], members: Members) -> Assignment:
    """Keeps what members have, assigns the rest, then balances. Balancing moves a partition only
    from the fullest member that can give one up to the emptiest one that can take it, and only
    while that improves the balance. So no partition is moved unnecessarily."""
    shares = _keep_held(partitions, members)
    kept = {member: frozenset(share) for member, share in shares.items()}
    ordered = _order_members(members)
    takers = {
        topic: [member for member in ordered if topic in members[member].topics]
        for topic in {partition.topic for partition in partitions}
    }
    owned = {partition for share in shares.values() for partition in share}
    unowned = [partition for partition in partitions if partition not in owned]
    for partition in sorted(unowned, key=lambda p: (len(takers[p.topic]), p)):
        shares[_emptiest(takers[partition.topic], shares)].append(partition)
    while (move := _next_move(shares, takers, kept)) is not None:
        giver, taker, partition = move
        shares[giver].remove(partition)
        shares[taker].append(partition)
    return {member: sorted(share) for member, share in shares.items()}


def _keep_held(partitions: list[Partition], members: Members) -> Assignment:
    """The partitions that each member had and may keep. If two claim the same one, the later
    generation wins; within one generation neither does."""
    claims: dict[Partition, list[str]] = {partition: [] for partition in partitions}
    for member_id, member in members.items():
        for partition in member.held:
            if partition in claims and partition.topic in member.topics:
                claims[partition].append(member_id)
    shares: Assignment = {member: [] for member in members}
    for partition, claimants in claims.items():
        generations = Counter(members[claimant].generation for claimant in claimants)
        if claimants and generations[latest := max(generations)] == 1:
            (owner,) = (c for c in claimants if members[c].generation == latest)
            shares[owner].append(partition)
    return shares


def _emptiest(members: list[str], shares: Assignment) -> str:
    return min(members, key=lambda member: len(shares[member]))


def _next_move(
    shares: Assignment, takers: Mapping[str, list[str]], kept: Mapping[str, frozenset[Partition]]
) -> tuple[str, str, Partition] | None:
    """Giver, taker and partition of the next move; None if no move improves the balance.
    Partitions that a member had before are moved last."""
    for giver in sorted(shares, key=lambda member: (-len(shares[member]), member)):
        for topic in sorted({partition.topic for partition in shares[giver]}):
            taker = _emptiest(takers[topic], shares)
            if len(shares[taker]) + 1 < len(shares[giver]):
                of_topic = (p for p in shares[giver] if p.topic == topic)
                return giver, taker, max(of_topic, key=lambda p: (p not in kept[giver], p))
    return None


STRATEGIES: Final[Mapping[str, Callable[[list[Partition], Members], Assignment]]] = {
    "range": _range,
    "roundrobin": _roundrobin,
    "sticky": _sticky,
}
