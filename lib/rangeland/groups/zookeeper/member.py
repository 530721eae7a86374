"""One driver's membership in a group kept in ZooKeeper: upstream's rules, and a fence.

To join, a driver registers, lists the members, claims the partitions that range assignment
gives it in one transaction, and lists the members again. If members came or left meanwhile, or
an old owner still has a partition, it releases everything and starts over. A member that reads
the job's topics but is not a driver of this job is a Conflict, and this driver then leaves
without a trace.

The fence is our own addition: upstream commits without any check. Here, a commit is a single
transaction with two checks. This member must still be registered: its node belongs to its session,
and its name is used only once. And each owner's node must still be the one it created: a new
owner's node at the same path has another creation number, and another version if upstream created
it.

Each membership has its own session: ending it releases everything at once.
"""

from __future__ import annotations

import logging
import platform
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rangeland.clock import wall_ms
from rangeland.errors import Conflict, Unreachable
from rangeland.groups.backend import (
    BEATS_PER_SESSION,
    Fenced,
    HeartbeatStatus,
    JoinRequest,
    Membership,
)
from rangeland.groups.zookeeper.assignment import shares
from rangeland.groups.zookeeper.membership_view import group_in_use_error, read_group
from rangeland.groups.zookeeper.offset_commits import TRIES, transaction_sized, write_offsets
from rangeland.groups.zookeeper.znode_layout import (
    THREAD,
    group_member,
    ids_path,
    member_name,
    owner_path,
    parent,
    read_owner,
    registration,
)
from rangeland.model import Partition
from rangeland.zookeeper.znodes import Check, Create, Delete, Operation, Refused, Write, Znode
from rangeland.zookeeper.zookeeper_client import ZooKeeper

logger = logging.getLogger(__name__)

_CLAIMED_VERSION = 1
"""The version of an owner's node after one write since its creation."""


@dataclass(frozen=True, slots=True)
class _Registration:
    """The name under which this member is registered, and the session that keeps it."""

    session: int
    member_id: str


@dataclass(frozen=True, slots=True)
class _Lease(_Registration):
    """The claims of a registered member: the creation numbers of its owner nodes. ``ids`` are those
    of all members at that time."""

    ids: tuple[str, ...]
    claims: Mapping[Partition, int]


class ZooKeeperMember(Membership):
    """A membership in a group kept in ZooKeeper. It is a member only after ``rejoin`` has returned
    once. Its session stays alive without heartbeats, which only serve to notice changes early."""

    def __init__(self, open_session: Callable[[], ZooKeeper], joining: JoinRequest) -> None:
        super().__init__(joining)
        self._open = open_session
        self._zookeeper: ZooKeeper | None = None
        self._registration: _Registration | None = None
        self._lease: _Lease | None = None
        self._last_status = HeartbeatStatus.HOLDS
        self._held: frozenset[Partition] = frozenset()  # partitions that may have to be released
        self._intact_state: tuple[object, ...] = ()  # as of the last heartbeat

    @property
    def member_id(self) -> str:
        me = self._registration
        return me.member_id if me else ""

    @property
    def owned(self) -> frozenset[Partition]:
        lease = self._lease  # read once: another thread may leave meanwhile
        return frozenset(lease.claims) if lease else frozenset()

    # --- beat --------------------------------------------------------------------------

    def beat(self) -> HeartbeatStatus:
        zookeeper = self._zookeeper
        lease = self._lease
        if zookeeper is None:
            return HeartbeatStatus.LOST
        if lease is None:
            return HeartbeatStatus.REBALANCING
        try:
            status = self._status(zookeeper, lease)
        except Unreachable:
            if self._zookeeper is not zookeeper:  # left meanwhile
                return HeartbeatStatus.LOST
            raise
        if status is HeartbeatStatus.LOST and self._last_status is not status:
            logger.warning("Lost the membership", extra=self._log_fields(len(self.owned)))
        self._last_status = status
        return status

    def _status(self, zookeeper: ZooKeeper, lease: _Lease) -> HeartbeatStatus:
        if zookeeper.session != lease.session:
            return HeartbeatStatus.LOST
        within_ms = max(1_000, self.joining.session_ms // BEATS_PER_SESSION)
        ids = zookeeper.children(ids_path(self.joining.group), within_ms)
        is_whole = self._is_whole(zookeeper, lease, within_ms)
        is_registered = zookeeper.session == lease.session and lease.member_id in (ids or ())
        if not (is_whole and is_registered):
            return HeartbeatStatus.LOST
        return (
            HeartbeatStatus.HOLDS if tuple(ids or ()) == lease.ids else HeartbeatStatus.REBALANCING
        )

    def _is_whole(self, zookeeper: ZooKeeper, lease: _Lease, within_ms: int) -> bool:
        """Whether all owner nodes are its own. The nodes are read only after a change."""
        folders = {parent(self._owner_path(p)) for p in lease.claims}
        changes = zookeeper.last_changes(sorted(folders), within_ms)
        if self._intact_state != (lease, changes):
            owners = zookeeper.read_all(map(self._owner_path, lease.claims), within_ms)
            if self._why_taken(lease, owners) is not None:
                return False
            self._intact_state = (lease, changes)
        return True

    # --- rejoin ------------------------------------------------------------------------

    def rejoin(self) -> None:
        self._lease = None
        deadline = time.monotonic() + self.joining.rebalance_ms / 1000
        for wait_s in _waits():
            if self._zookeeper is None:
                self._zookeeper = self._open()
            error = self._join_or_error(self._zookeeper)
            if error is None:
                self._generation += 1
                logger.info("Joined the group", extra=self._log_fields(len(self.owned)))
                return
            if time.monotonic() + wait_s > deadline:
                self.leave()
                raise error
            logger.debug("Waiting to join: %s", error, extra=self._log_fields(len(self.owned)))
            time.sleep(wait_s)

    def _join_or_error(self, zookeeper: ZooKeeper) -> Conflict | Unreachable | None:
        """Joins, or returns what is in the way."""
        self._release(zookeeper)
        me = self._register(zookeeper)
        if me is None:
            return self._unsettled_error("its own registration did not stay")
        ids, drivers = self._look(zookeeper)
        if me.member_id not in drivers:
            # Only the end of the session releases what it may still own.
            self.leave()
            return self._unsettled_error("its own registration did not stay")
        share = shares(self.joining.partitions, drivers)[me.member_id]
        claims = self._claim_or_error(zookeeper, me, share)
        if isinstance(claims, Conflict | Unreachable):
            return claims
        if self._look(zookeeper)[0] != ids or zookeeper.session != me.session:
            self._release(zookeeper)
            return self._unsettled_error("members came or went each time")
        self._lease = _Lease(me.session, me.member_id, ids, claims)
        self._last_status = HeartbeatStatus.HOLDS
        return None

    def _register(self, zookeeper: ZooKeeper) -> _Registration | None:
        """Registers this member under a new name, since a delayed transaction may contain the old
        one."""
        old = self._registration
        if old is not None and old.session == zookeeper.session:
            return old
        self._registration = None
        self._look(zookeeper)  # raises Conflict before anything is written
        group = self.joining.group
        now_ms = wall_ms()
        host = self.joining.host or platform.node()
        name = member_name(group, self.joining.job, host, now_ms, uuid.uuid4().hex[:8])
        path = ids_path(group, name)
        owners = {parent(self._owner_path(p)) for p in self.joining.partitions}
        zookeeper.make([parent(path), *owners])
        zookeeper.apply([Create(path, registration(self.joining.partitions, now_ms), True)])
        node = zookeeper.read(path)
        if node is not None:
            self._registration = _Registration(node.session, name)
        return self._registration

    def _look(self, zookeeper: ZooKeeper) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """All registered members, and the drivers of this job among them. If other members read the
        job's topics, this one leaves and raises Conflict."""
        group = self.joining.group
        job = self.joining.job
        view = read_group(zookeeper, group, job)
        if view is None:
            return (), ()
        if consumers := view.others(self.joining.partitions):
            self.leave()
            raise group_in_use_error(group, consumers, f"job {job} cannot claim its partitions")
        return view.ids, view.drivers()

    # --- claims ------------------------------------------------------------------------

    def _claim_or_error(
        self, zookeeper: ZooKeeper, me: _Registration, share: frozenset[Partition]
    ) -> dict[Partition, int] | Conflict | Unreachable:
        """Claims the whole share; or claims nothing, and returns what is in the way."""
        self._held = share
        for part in transaction_sized(sorted(share)):
            if zookeeper.apply(self._claim_operations(me, part)) is not None:
                break
        nodes = zookeeper.read_all(map(self._owner_path, share))
        # A response may have been lost, so the nodes decide, not the responses.
        claims = {p: n.created for p in share if (n := self._own_node(me, p, nodes)) is not None}
        if len(claims) == len(share):
            return claims
        self._release(zookeeper)
        for partition in sorted(share - claims.keys()):
            if (node := nodes[self._owner_path(partition)]) is not None:
                return self._blocked_error(partition, read_owner(node.content))
        return self._unsettled_error("owners came and went each time")

    def _claim_operations(
        self, me: _Registration, partitions: Sequence[Partition]
    ) -> list[Operation]:
        operations: list[Operation] = [Check(ids_path(self.joining.group, me.member_id), 0)]
        for path in map(self._owner_path, partitions):
            content = (me.member_id + THREAD).encode()
            # Written twice, to get a version that upstream's owner nodes never have.
            operations += [Create(path, content, ephemeral=True), Write(path, content)]
        return operations

    def _release(self, zookeeper: ZooKeeper) -> None:
        """Releases only what this session owns. If the session ends meanwhile, the transaction is
        sent in the next one, where the same nodes may belong to another driver."""
        me = self._registration
        for _ in range(TRIES):
            if me is None or not self._held:
                break
            nodes = zookeeper.read_all(map(self._owner_path, self._held))
            deletes = [
                Delete(self._owner_path(p), _CLAIMED_VERSION)
                for p in sorted(self._held)
                if self._own_node(me, p, nodes) is not None
            ]
            still_registered = Check(ids_path(self.joining.group, me.member_id), 0)
            parts = transaction_sized(deletes)
            refused = [zookeeper.apply([still_registered, *part]) for part in parts]
            if not any(refused):
                break
        self._held = frozenset()

    # --- commit ------------------------------------------------------------------------

    def commit(self, offsets: Mapping[Partition, int]) -> None:
        zookeeper = self._zookeeper
        lease = self._lease
        if zookeeper is None or lease is None or zookeeper.session != lease.session:
            raise self._fenced_error("its session in ZooKeeper has ended")
        self._check_owned(offsets, lease.claims.keys())

        def holds_partitions(partitions: Sequence[Partition]) -> list[Operation]:
            owners = zookeeper.read_all(map(self._owner_path, partitions))
            if (why := self._why_taken(lease, owners, partitions)) is not None:
                raise self._fenced_error(why)
            claims = [Check(self._owner_path(p), _CLAIMED_VERSION) for p in partitions]
            return [Check(ids_path(self.joining.group, lease.member_id), 0), *claims]

        def taken_error(refused: Refused) -> Fenced | None:
            if not isinstance(refused.operation, Check):
                return None
            return self._fenced_error(f"{refused.operation.path}: {refused.reason.value}")

        write_offsets(zookeeper, self.joining.group, offsets, holds_partitions, taken_error)
        if offsets:
            logger.info("Committed offsets", extra=self._log_fields(len(offsets)))

    # --- leave -------------------------------------------------------------------------

    def leave(self) -> None:
        zookeeper = self._zookeeper
        fields = self._log_fields(len(self.owned))
        self._zookeeper, self._lease, self._registration = None, None, None
        self._held = frozenset()
        if zookeeper is not None:
            zookeeper.close()
            logger.info("Left the group", extra=fields)

    # --- nodes and errors --------------------------------------------------------------

    def _owner_path(self, partition: Partition) -> str:
        return owner_path(self.joining.group, partition)

    def _own_node(
        self, me: _Registration, partition: Partition, nodes: Mapping[str, Znode | None]
    ) -> Znode | None:
        """The owner's node, if this member made it in this session."""
        node = nodes[self._owner_path(partition)]
        if node is None or node.session != me.session:
            return None
        return node if read_owner(node.content) == me.member_id else None

    def _why_taken(
        self,
        lease: _Lease,
        nodes: Mapping[str, Znode | None],
        partitions: Collection[Partition] | None = None,
    ) -> str | None:
        """Which partition this member no longer has, and why; None if it has all."""
        for partition in sorted(lease.claims if partitions is None else partitions):
            node = nodes[self._owner_path(partition)]
            if node is None:
                return f"it no longer owns {partition}"
            if node.created != lease.claims[partition]:
                return f"{partition} is now owned by {read_owner(node.content)}"
        return None

    def _blocked_error(self, partition: Partition, owner: str) -> Conflict | Unreachable:
        group = self.joining.group
        if group_member(group, self.joining.job, owner, ()).is_ours:
            return Unreachable(
                f"{partition} could not be claimed in group {group}",
                why=f"{owner}, a driver of this job, still owns it after "
                f"{self.joining.rebalance_ms} ms: it may have been killed just now",
                do="run again once its session has ended",
            )
        return Conflict(
            f"{partition} could not be claimed in group {group}",
            why=f"{owner} still owns it after {self.joining.rebalance_ms} ms",
            do="if that consumer is alive, stop it, or give the job its own group",
            group=group,
            partition=str(partition),
            owner=owner,
        )

    def _unsettled_error(self, why: str) -> Unreachable:
        group = self.joining.group
        return Unreachable(
            f"group {group} did not settle",
            why=f"{why}, for {self.joining.rebalance_ms} ms",
            do="check who joins and leaves it, then run again",
            group=group,
        )


def _waits() -> Iterator[float]:
    """Seconds between tries: short at first, since others usually just have to notice."""
    wait_s = 0.05
    while True:
        yield wait_s
        wait_s = min(1.0, wait_s * 1.5)
