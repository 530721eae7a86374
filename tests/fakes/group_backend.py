"""A group backend in memory that behaves like real ones: generations, rebalances that wait for
members, session timeouts, fencing. One ``InMemoryGroups`` is the server; each driver has a
client.

Time is the real clock, in short spans. A client can be cut off (it and the server no longer hear
each other, as when its process is killed), and the server can be down.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rangeland.dialects.cluster_values import GroupMember, GroupState, GroupView
from rangeland.errors import Conflict, Unreachable
from rangeland.groups.backend import Fenced, HeartbeatStatus, JoinRequest
from rangeland.model import Partition


@dataclass
class _Member:
    joining: JoinRequest
    heard: float
    generation: int = 0
    owned: frozenset[Partition] = frozenset()
    is_ours: bool = True


@dataclass
class _Group:
    members: dict[str, _Member] = field(default_factory=dict)
    joined: set[str] = field(default_factory=set)
    generation: int = 0
    is_rebalancing: bool = False
    deadline: float = 0.0
    offsets: dict[Partition, int] = field(default_factory=dict)


class InMemoryGroups:
    """The server. ``log`` has what happened, in order, for tests to read."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.is_down = False
        self.log: list[str] = []
        self._groups: dict[str, _Group] = {}
        self._numbers = itertools.count(1)

    def group(self, name: str) -> _Group:
        return self._groups.setdefault(name, _Group())

    def add_consumer(self, name: str, partitions: Sequence[Partition], client: str) -> None:
        """A live consumer of somebody else's, which never leaves."""
        joining = JoinRequest(name, "", tuple(partitions), client_id=client, session_ms=10**9)
        member = _Member(joining, time.monotonic(), 1, frozenset(partitions), is_ours=False)
        self.group(name).members[client] = member

    def number(self) -> int:
        return next(self._numbers)

    # --- all below is called with ``changed`` held ----------------------------------------

    def reap(self, group: _Group) -> None:
        now = time.monotonic()
        for member_id, member in list(group.members.items()):
            late = now - member.heard > member.joining.session_ms / 1000
            if late and member_id not in group.joined:
                self.remove(group, member_id)
                self.log.append(f"{member_id} expired")

    def remove(self, group: _Group, member_id: str) -> None:
        if group.members.pop(member_id, None) is not None:
            group.joined.discard(member_id)
            self.rebalance(group)

    def rebalance(self, group: _Group) -> None:
        if not group.is_rebalancing:
            group.is_rebalancing, group.joined = True, set()
            waits = [m.joining.rebalance_ms for m in group.members.values()]
            group.deadline = time.monotonic() + max(waits, default=0) / 1000
        self.complete(group)

    def complete(self, group: _Group) -> None:
        """Ends a rebalance once all members are there, or the others have waited enough."""
        if time.monotonic() > group.deadline:
            for member_id in set(group.members) - group.joined:
                del group.members[member_id]
                self.log.append(f"{member_id} was left behind")
        if not group.is_rebalancing or group.joined != set(group.members):
            return
        group.is_rebalancing = False
        group.generation += 1
        names = sorted(group.members)
        wanted = sorted({p for m in group.members.values() for p in m.joining.partitions})
        for index, member_id in enumerate(names):
            share = wanted[
                index * len(wanted) // len(names) : (index + 1) * len(wanted) // len(names)
            ]
            member = group.members[member_id]
            member.generation, member.owned = group.generation, frozenset(share)
            member.heard = time.monotonic()
        self.log.append(f"generation {group.generation}: {', '.join(names)}")
        group.joined = set()
        self.changed.notify_all()


class InMemoryGroupBackend:
    """One driver's way to the server. ``cut`` it off as a killed process would be."""

    def __init__(self, groups: InMemoryGroups, client: str) -> None:
        self.groups = groups
        self.client = client
        self.is_cut = False
        self.memberships: list[FakeMembership] = []

    @property
    def name(self) -> str:
        return "a group backend in memory"

    def reached(self) -> None:
        if self.is_cut or self.groups.is_down:
            raise Unreachable("the group backend in memory cannot be reached")

    def offsets(self, group: str, partitions: Sequence[Partition]) -> dict[Partition, int | None]:
        self.reached()
        with self.groups.changed:
            kept = self.groups.group(group).offsets
            return {p: kept.get(p) for p in partitions}

    def commit(self, group: str, offsets: Mapping[Partition, int]) -> None:
        self.reached()
        with self.groups.changed:
            found = self.groups.group(group)
            self.groups.reap(found)
            if found.members:
                raise Conflict(f"group {group} has members: {', '.join(sorted(found.members))}")
            found.offsets |= offsets

    def view(self, group: str) -> GroupView:
        self.reached()
        with self.groups.changed:
            found = self.groups.group(group)
            self.groups.reap(found)
            if not found.members:
                return GroupView(GroupState.EMPTY if found.generation else GroupState.ABSENT)
            held = {} if found.is_rebalancing else found.members
            return GroupView(
                GroupState.REBALANCING if found.is_rebalancing else GroupState.STABLE,
                tuple(
                    GroupMember(
                        name,
                        member.joining.client_id,
                        member.joining.host,
                        member.owned if name in held else frozenset(),
                        member.is_ours,
                    )
                    for name, member in sorted(found.members.items())
                ),
            )

    def join(self, joining: JoinRequest) -> FakeMembership:
        self.reached()
        with self.groups.changed:
            group = self.groups.group(joining.group)
            self.groups.reap(group)
            strangers = [name for name, m in group.members.items() if not m.is_ours]
            if strangers:
                raise Conflict(
                    f"the group {joining.group} has a live consumer, {strangers[0]}",
                    do="stop it, or give the job another group",
                )
        membership = FakeMembership(self, joining)
        self.memberships.append(membership)
        membership.rejoin()
        return membership

    def close(self) -> None: ...


class FakeMembership:
    """One place. Its name begins with its client's, so that tests know who is first."""

    def __init__(self, backend: InMemoryGroupBackend, joining: JoinRequest) -> None:
        self.backend = backend
        self.joining = joining
        self.member_id = f"{backend.client}-{backend.groups.number()}"
        self.generation = 0
        self.owned: frozenset[Partition] = frozenset()
        self.beat_ms = max(20, joining.session_ms // 10)
        self.commits: list[dict[Partition, int]] = []
        self.beats = 0

    @property
    def _group(self) -> _Group:
        return self.backend.groups.group(self.joining.group)

    def beat(self) -> HeartbeatStatus:
        self.beats += 1
        self.backend.reached()
        with self.backend.groups.changed:
            group = self._group
            self.backend.groups.reap(group)
            member = group.members.get(self.member_id)
            if member is None or member.generation != self.generation:
                return HeartbeatStatus.LOST
            member.heard = time.monotonic()
            return HeartbeatStatus.REBALANCING if group.is_rebalancing else HeartbeatStatus.HOLDS

    def rejoin(self) -> None:
        self.backend.reached()
        groups, group = self.backend.groups, self._group
        with groups.changed:
            groups.reap(group)
            if group.members.get(self.member_id) is None:
                if self.generation:
                    self.member_id = f"{self.backend.client}-{groups.number()}"
                group.members[self.member_id] = _Member(self.joining, time.monotonic())
            group.members[self.member_id].heard = time.monotonic()
            if not group.is_rebalancing:
                groups.rebalance(group)
            group.joined.add(self.member_id)
            before = group.generation
            groups.complete(group)
            while group.generation == before:
                groups.changed.wait(0.02)
                groups.complete(group)
            member = group.members.get(self.member_id)
            if member is not None:
                self.generation, self.owned = member.generation, member.owned
        if member is None:  # it was left behind while it did not look
            self.rejoin()

    def commit(self, offsets: Mapping[Partition, int]) -> None:
        self.backend.reached()
        with self.backend.groups.changed:
            group = self._group
            self.backend.groups.reap(group)
            member = group.members.get(self.member_id)
            if member is None or member.generation != self.generation:
                raise Fenced(f"{self.member_id} of generation {self.generation} is fenced")
            group.offsets |= offsets
            self.commits.append(dict(offsets))

    def leave(self) -> None:
        self.backend.reached()
        with self.backend.groups.changed:
            self.backend.groups.remove(self._group, self.member_id)
            self.backend.groups.log.append(f"{self.member_id} left")
