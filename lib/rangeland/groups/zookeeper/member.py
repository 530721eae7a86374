"""One driver's place in a group that ZooKeeper keeps, by upstream's rules and one more.

Joining: register, look who is there, take the share that range assignment gives among them,
all of it in one transaction, and look again: if members came or went meanwhile, give it
back and start over; so too while an old owner still holds a piece. Whoever is no driver of
this job and reads its topics is a Conflict, and nothing of this driver stays behind.

The one more is a fence. Upstream commits blindly; here a commit is one transaction with
checks that this member is still registered (its node is of its session, and its name is
used once) and that each owner's node is still the one it made. A new owner's node of the
same path has another number of creation, and if it is upstream's another version, too.

A membership is a session of its own: leaving is ending it, which frees all at once.
"""

from __future__ import annotations

import platform
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from rangeland.errors import Conflict, Unreachable
from rangeland.groups.backend import Fenced, HeartbeatStatus, JoinRequest
from rangeland.groups.zookeeper.assignment import assign_ranges
from rangeland.groups.zookeeper.membership_view import occupied, take_census
from rangeland.groups.zookeeper.znode_layout import (
    THREAD,
    holder,
    ids_path,
    member_name,
    offset_path,
    owner_path,
    parent,
    read_owner,
    registration,
)
from rangeland.model import Partition
from rangeland.zookeeper.znodes import Check, Create, Delete, Operation, Refused, Write, Znode
from rangeland.zookeeper.zookeeper_client import ZooKeeper

BEAT_MS = 3_000
# A transaction is one message, and servers take none above a megabyte.
_PER_TRANSACTION = 500
_TRIES = 10

_Item = TypeVar("_Item")


@dataclass(frozen=True, slots=True)
class _ClaimedPartition:
    """What this member has been given, and what it was computed from. ``claims`` are the
    numbers of creation of its owner nodes; ``ids`` is all the group as it was."""

    session: int
    member_id: str
    ids: tuple[str, ...] = ()
    claims: Mapping[Partition, int] = field(default_factory=dict)


class ZooKeeperMember:
    """See ``groups.Membership``. Only a member after ``rejoin`` has returned once."""

    def __init__(self, open_session: Callable[[], ZooKeeper], joining: JoinRequest) -> None:
        self._open = open_session
        self._joining = joining
        self._zookeeper: ZooKeeper | None = None
        self._registered: _ClaimedPartition | None = None  # without claims
        self._place: _ClaimedPartition | None = None
        self._held: frozenset[Partition] = frozenset()  # what may have to be given back
        self._generation = 0
        self._seen: tuple[object, ...] = ()  # what the last beat found in order

    @property
    def member_id(self) -> str:
        return self._registered.member_id if self._registered else ""

    @property
    def generation(self) -> int:
        return self._generation

    @property
    def owned(self) -> frozenset[Partition]:
        return frozenset(self._place.claims) if self._place else frozenset()

    @property
    def beat_ms(self) -> int:
        """The session is kept alive without it: beats are for seeing changes soon."""
        return max(1, min(BEAT_MS, self._joining.session_ms // 3))

    # --- beat --------------------------------------------------------------------------

    def beat(self) -> HeartbeatStatus:
        zookeeper, place = self._zookeeper, self._place
        if zookeeper is None:
            return HeartbeatStatus.LOST
        if place is None:
            return HeartbeatStatus.REBALANCING
        try:
            return self._standing(zookeeper, place)
        except Unreachable:
            if self._zookeeper is not zookeeper:  # left meanwhile
                return HeartbeatStatus.LOST
            raise

    def _standing(self, zookeeper: ZooKeeper, place: _ClaimedPartition) -> HeartbeatStatus:
        if zookeeper.session != place.session:
            return HeartbeatStatus.LOST
        within_ms = max(1_000, self._joining.session_ms // 3)
        ids = zookeeper.children(ids_path(self._joining.group), within_ms)
        is_whole = self._is_whole(zookeeper, place, within_ms)
        is_registered = zookeeper.session == place.session and place.member_id in (ids or ())
        if not (is_whole and is_registered):
            return HeartbeatStatus.LOST
        return (
            HeartbeatStatus.HOLDS if tuple(ids or ()) == place.ids else HeartbeatStatus.REBALANCING
        )

    def _is_whole(self, zookeeper: ZooKeeper, place: _ClaimedPartition, within_ms: int) -> bool:
        """All owner nodes are its own. They are looked at only if any came or went since."""
        folders = {parent(self._owner_path(p)) for p in place.claims}
        changes = zookeeper.last_changes(sorted(folders), within_ms)
        if self._seen != (place, changes):
            owners = zookeeper.read_all(map(self._owner_path, place.claims), within_ms)
            if self._taken(place, owners):
                return False
            self._seen = (place, changes)
        return True

    # --- rejoin ------------------------------------------------------------------------

    def rejoin(self) -> None:
        self._place = None
        deadline = time.monotonic() + self._joining.rebalance_ms / 1000
        if self._zookeeper is None:
            self._zookeeper = self._open()
        for wait_s in _waits():
            obstacle = self._try_to_join(self._zookeeper)
            if obstacle is None:
                self._generation += 1
                return
            if time.monotonic() + wait_s > deadline:
                self.leave()
                raise obstacle
            time.sleep(wait_s)

    def _try_to_join(self, zookeeper: ZooKeeper) -> Conflict | Unreachable | None:
        """None when it is done; otherwise what stood in the way this time."""
        self._release(zookeeper)
        me = self._register(zookeeper)
        if me is None:
            return self._unsettled("its own registration did not stay")
        ids, drivers = self._look(zookeeper)
        if me.member_id not in drivers:
            self._registered = None
            return self._unsettled("its own registration did not stay")
        share = assign_ranges(drivers, self._joining.partitions)[me.member_id]
        claims = self._claim(zookeeper, me, share)
        if isinstance(claims, Conflict | Unreachable):
            return claims
        if self._look(zookeeper)[0] != ids or zookeeper.session != me.session:
            self._release(zookeeper)
            return self._unsettled("members came or went each time")
        self._place = _ClaimedPartition(me.session, me.member_id, ids, claims)
        return None

    def _register(self, zookeeper: ZooKeeper) -> _ClaimedPartition | None:
        """A name is used once: an old one may be in a transaction that is still to come."""
        old = self._registered
        if old is not None and old.session == zookeeper.session:
            return old
        self._registered = None
        self._look(zookeeper)  # before anything is written
        group, now_ms = self._joining.group, int(time.time() * 1000)
        host = self._joining.host or platform.node()
        name = member_name(group, self._joining.job, host, now_ms, uuid.uuid4().hex[:8])
        path = ids_path(group, name)
        owners = {parent(self._owner_path(p)) for p in self._joining.partitions}
        zookeeper.make([parent(path), *owners])
        zookeeper.apply([Create(path, registration(self._joining.partitions, now_ms), True)])
        node = zookeeper.read(path)
        if node is not None:
            self._registered = _ClaimedPartition(node.session, name)
        return self._registered

    def _look(self, zookeeper: ZooKeeper) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """All that are registered, and the drivers of this job among them. Raises Conflict,
        and has left, where there is a stranger."""
        group, job = self._joining.group, self._joining.job
        census = take_census(zookeeper, group, job)
        if census is None:
            return (), ()
        if strangers := census.strangers(self._joining.partitions):
            self.leave()
            raise occupied(group, strangers, f"job {job} cannot claim its partitions")
        return census.ids, census.drivers()

    # --- claims ------------------------------------------------------------------------

    def _claim(
        self, zookeeper: ZooKeeper, me: _ClaimedPartition, share: frozenset[Partition]
    ) -> dict[Partition, int] | Conflict | Unreachable:
        """All of the share, or nothing and who stands in the way."""
        self._held = share
        for some in _chunks(sorted(share)):
            if zookeeper.apply(self._claiming(me, some)) is not None:
                break
        nodes = zookeeper.read_all(map(self._owner_path, share))
        # An answer may have been lost, so what is there decides, not what was answered.
        claims = {p: n.created for p in share if (n := self._mine(me, p, nodes)) is not None}
        if len(claims) == len(share):
            return claims
        self._release(zookeeper)
        for partition in sorted(share - claims.keys()):
            if (node := nodes[self._owner_path(partition)]) is not None:
                return self._blocked(partition, read_owner(node.content))
        return self._unsettled("owners came and went each time")

    def _claiming(self, me: _ClaimedPartition, partitions: Sequence[Partition]) -> list[Operation]:
        operations: list[Operation] = [Check(ids_path(self._joining.group, me.member_id), 0)]
        for path in map(self._owner_path, partitions):
            content = (me.member_id + THREAD).encode()
            # Written twice, for a version that upstream's owner nodes never have.
            operations += [Create(path, content, ephemeral=True), Write(path, content)]
        return operations

    def _release(self, zookeeper: ZooKeeper) -> None:
        """Gives back what is held by this session, and nothing else."""
        me = self._registered
        for _ in range(_TRIES):
            if me is None or not self._held:
                break
            nodes = zookeeper.read_all(map(self._owner_path, self._held))
            mine = [p for p in sorted(self._held) if self._mine(me, p, nodes) is not None]
            deletes = [Delete(self._owner_path(p), _CLAIMED_VERSION) for p in mine]
            refused = [zookeeper.apply(some) for some in _chunks(deletes)]
            if not any(refused):
                break
        self._held = frozenset()

    # --- commit ------------------------------------------------------------------------

    def commit(self, offsets: Mapping[Partition, int]) -> None:
        zookeeper, place = self._zookeeper, self._place
        if zookeeper is None or place is None or zookeeper.session != place.session:
            raise self._fenced("its session in ZooKeeper has ended")
        if strange := sorted(offsets.keys() - place.claims.keys()):
            raise self._fenced(f"{strange[0]} is not among its partitions")
        for some in _chunks(sorted(offsets)):
            self._commit(zookeeper, place, {p: offsets[p] for p in some})

    def _commit(
        self, zookeeper: ZooKeeper, place: _ClaimedPartition, offsets: Mapping[Partition, int]
    ) -> None:
        refused: Refused | None = None
        for _ in range(_TRIES):
            refused = zookeeper.apply(self._committing(zookeeper, place, offsets))
            if refused is None:
                return
            if isinstance(refused.operation, Check):
                raise self._fenced(f"{refused.operation.path}: {refused.reason.value}")
        raise stuck(self._joining.group, refused, _TRIES)

    def _committing(
        self, zookeeper: ZooKeeper, place: _ClaimedPartition, offsets: Mapping[Partition, int]
    ) -> list[Operation]:
        group = self._joining.group
        owners = zookeeper.read_all(map(self._owner_path, offsets))
        if taken := self._taken(place, owners, offsets):
            raise self._fenced(taken)
        written = zookeeper.read_all(offset_path(group, p) for p in offsets)
        zookeeper.make(parent(path) for path, node in written.items() if node is None)
        operations: list[Operation] = [Check(ids_path(group, place.member_id), 0)]
        for partition, offset in offsets.items():
            operations.append(Check(self._owner_path(partition), _CLAIMED_VERSION))
            operations.append(setting(group, partition, offset, written))
        return operations

    # --- leave -------------------------------------------------------------------------

    def leave(self) -> None:
        zookeeper = self._zookeeper
        self._zookeeper, self._place, self._registered = None, None, None
        self._held = frozenset()
        if zookeeper is not None:
            zookeeper.close()

    # --- how it is told ----------------------------------------------------------------

    def _owner_path(self, partition: Partition) -> str:
        return owner_path(self._joining.group, partition)

    def _mine(
        self, me: _ClaimedPartition, partition: Partition, nodes: Mapping[str, Znode | None]
    ) -> Znode | None:
        """The owner's node if this member in this session has made it."""
        node = nodes[self._owner_path(partition)]
        is_mine = node is not None and node.session == me.session
        return node if node and is_mine and read_owner(node.content) == me.member_id else None

    def _taken(
        self,
        place: _ClaimedPartition,
        nodes: Mapping[str, Znode | None],
        partitions: Mapping[Partition, int] | None = None,
    ) -> str:
        """Who has a partition that was this member's; empty if nobody has."""
        for partition in sorted(place.claims if partitions is None else partitions):
            node = nodes[self._owner_path(partition)]
            if node is None:
                return f"{partition} is no longer its own"
            if node.created != place.claims[partition]:
                return f"{partition} is now owned by {read_owner(node.content)}"
        return ""

    def _fenced(self, why: str) -> Fenced:
        group = self._joining.group
        return Fenced(
            f"this driver has lost its place in group {group}",
            why=why,
            do="run again: the next run mirrors the checkpoint",
            group=group,
            member=self.member_id,
        )

    def _blocked(self, partition: Partition, owner: str) -> Conflict | Unreachable:
        group = self._joining.group
        if holder(group, self._joining.job, owner, ()).is_ours:
            return Unreachable(
                f"{partition} could not be claimed in group {group}",
                why=f"{owner}, a driver of this job, still owns it after "
                f"{self._joining.rebalance_ms} ms: it may have been killed just now",
                do="run again when its session is over",
            )
        return Conflict(
            f"{partition} could not be claimed in group {group}",
            why=f"{owner} still owns it after {self._joining.rebalance_ms} ms",
            do="see whether that consumer is alive; if so stop it, or give the job a group of "
            "its own",
            group=group,
            partition=str(partition),
            owner=owner,
        )

    def _unsettled(self, why: str) -> Unreachable:
        group = self._joining.group
        return Unreachable(
            f"group {group} did not settle",
            why=f"{why}, for {self._joining.rebalance_ms} ms",
            do="see who joins and leaves it, then run again",
            group=group,
        )


# One write after its creation.
_CLAIMED_VERSION = 1


def setting(
    group: str, partition: Partition, offset: int, written: Mapping[str, Znode | None]
) -> Operation:
    """Writes an offset, into the node that is there if there is one."""
    path, content = offset_path(group, partition), str(offset).encode()
    return Create(path, content) if written[path] is None else Write(path, content)


def stuck(group: str, refused: Refused | None, tries: int) -> Unreachable:
    """Offset nodes come and go under the hands of whoever writes them."""
    why = f"{refused.operation.path}: {refused.reason.value}, " if refused else ""
    return Unreachable(
        f"the offsets of group {group} could not be written",
        why=f"{why}{tries} times",
        do="see who else writes them, then run again",
        group=group,
    )


def _waits() -> Iterator[float]:
    """Seconds between tries: quick at first, since others mostly just have to notice."""
    wait_s = 0.05
    while True:
        yield wait_s
        wait_s = min(1.0, wait_s * 1.5)


def _chunks(items: Sequence[_Item]) -> Iterator[Sequence[_Item]]:
    for first in range(0, len(items), _PER_TRANSACTION):
        yield items[first : first + _PER_TRANSACTION]
