"""One driver's membership in a RocketMQ group: heartbeats, an assignment, a lock on each queue.

To join, a driver lists the members, sends heartbeats, lists them again, computes its
assignment, and locks those queues at the masters. Other members release queues when they notice
a new member, so the driver waits for a lock that is taken. A member that is not a driver of this
job is a Conflict, and this driver then leaves without a trace. Any other obstacle, such as other
drivers of the job or locks that have not expired yet, is Unreachable.

There is no generation here: the lock is the fence. Brokers keep locks in memory, for a minute
after the last renewal, and do not report who has one. The locks of a driver that has disappeared
are released in its name: if it is alive after all, it notices that it has lost them. A driver has
disappeared if its connection has ended, or was silent for as long as the brokers allow (two
minutes by default); brokers do not know a session's length.

This module has no socket and no clock. A lock, shared with the backend, keeps heartbeats from
another thread from interfering with other requests; a heartbeat waits while its member joins.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Iterator, Mapping
from typing import Final

from rangeland.dialects.protocol_session import BrokerRequest
from rangeland.dialects.rocketmq import messages as m
from rangeland.dialects.rocketmq.error_codes import SUCCESS
from rangeland.errors import JobFileError, RangelandError, Unreachable
from rangeland.groups.backend import HeartbeatStatus, JoinRequest, Membership
from rangeland.groups.rocketmq import group_requests as g
from rangeland.groups.rocketmq.assignment import shares
from rangeland.groups.rocketmq.client_ids import job_of
from rangeland.groups.rocketmq.masters import PATIENCE_MS, MasterBrokers, masters_error
from rangeland.groups.rocketmq.membership_view import (
    RocketmqGroupView,
    brokers_of,
    describe_clients,
    facts,
    group_in_use_error,
    read_group,
)
from rangeland.groups.rocketmq.offset_commits import write_offsets
from rangeland.model import Address, Partition

logger = logging.getLogger(__name__)

LOCK_MS: Final = 60_000
"""How long a broker keeps a lock that is not renewed, by default."""
SLACK_MS: Final = 1_000
"""A lock begins at the broker a moment after it was requested."""
RETRY_MS: Final = 500
"""The pause between tries to join."""
_MISSES: Final = 3
"""A broker may take a moment to list a member whose heartbeat it has just accepted."""


class RocketmqMember(Membership):
    """A membership in a RocketMQ group. It has no queues before its first ``rejoin``."""

    def __init__(
        self, masters: MasterBrokers, lock: threading.RLock, joining: JoinRequest, client_id: str
    ) -> None:
        super().__init__(joining)
        self._masters = masters
        self._lock = lock
        self._id = client_id
        self._brokers = brokers_of(joining.partitions)
        self._holds = False
        self._is_known = False  # some broker may list this member
        self._ids: tuple[str, ...] = ()  # all members of the assignment
        self._locked: frozenset[Partition] = frozenset()  # queues that may have to be released
        self._locked_at_ms = 0
        self._patience_ms = 0  # how long the latest rejoin waits
        self._drivers: set[str] = set()  # all drivers ever seen
        self._silent: set[Address] = set()  # slaves without a response

    @property
    def member_id(self) -> str:
        return self._id

    @property
    def owned(self) -> frozenset[Partition]:
        return self._locked if self._holds else frozenset()

    def is_settled(self, view: RocketmqGroupView) -> bool:
        """Whether its assignment still matches the current members."""
        return self._holds and self._is_seen_by_all(view) and view.ids == self._ids

    def _is_seen_by_all(self, view: RocketmqGroupView) -> bool:
        return view.is_agreed and not view.brokers_without(self._id)

    # --- joining -----------------------------------------------------------------------

    def rejoin(self) -> None:
        """Joins again. Raises JobFileError if a broker does not accept members of the group."""
        with self._lock:
            self._holds = False
            self._silent.clear()
            io = self._masters.io
            began_ms = io.now_ms()
            self._patience_ms = self.joining.rebalance_ms
            misses = 0
            while True:
                view = self._announce()
                misses = misses + 1 if view.brokers_without(self._id) else 0
                if misses >= _MISSES:
                    self.leave()
                    raise self._not_listed_error(view)
                error = self._unsettled_error(view) or self._claim_or_error(view)
                if error is None:
                    self._generation += 1
                    self._holds = True
                    logger.info("Joined the group", extra=self._log_fields(len(self._locked)))
                    return
                if io.now_ms() - began_ms >= self._patience_ms:
                    self.leave()
                    raise error
                logger.debug("Waiting to join: %s", error, extra=self._log_fields(0))
                io.pause(RETRY_MS)

    def _announce(self) -> RocketmqGroupView:
        """Announces this member to all brokers, but only once all members are known to be drivers
        of this job. Returns the members."""
        if not self._is_known:
            self._look(PATIENCE_MS)
            self._is_known = True
        self._send_heartbeats(PATIENCE_MS)
        return self._look(PATIENCE_MS)

    def _look(self, patience_ms: int) -> RocketmqGroupView:
        joining = self.joining
        view = read_group(self._masters, joining.group, self._brokers, patience_ms)
        if not self._holds and (consumers := view.others(joining.job)):
            self.leave()
            raise group_in_use_error(
                joining.group, consumers, f"job {joining.job} cannot claim its partitions"
            )
        self._drivers |= {c for c in view.ids if job_of(c) == joining.job}
        return view

    def _send_heartbeats(self, patience_ms: int) -> None:
        topics = {partition.topic for partition in self.joining.partitions}
        request = g.heartbeat(self._id, self.joining.group, topics)
        for broker in self._brokers:
            self._ask(broker, request, "a member sent its heartbeat", patience_ms)
        self._send_to_slaves(self._masters.slaves(self._brokers), request)

    def _claim_or_error(self, view: RocketmqGroupView) -> Unreachable | None:
        """Locks exactly the assigned queues, or returns what is in the way."""
        share = shares(self.joining.partitions, view.ids).get(self._id, frozenset())
        self._give_back(self._id, self._locked - share)
        self._locked = share
        asked_at_ms = self._masters.io.now_ms()
        missing = share - self._take(share, PATIENCE_MS)
        if missing and (dead_drivers := self._drivers - set(view.ids)):
            for dead in sorted(dead_drivers):
                self._give_back(dead, missing)
            missing -= self._take(missing, PATIENCE_MS)
        if missing:
            # Brokers do not say whose lock it is. If its owner is dead, it expires in this time.
            self._patience_ms = max(self._patience_ms, LOCK_MS + SLACK_MS)
            return self._blocked_error(missing, view)
        self._locked_at_ms = asked_at_ms
        self._ids = view.ids
        return None

    # --- while it is a member ----------------------------------------------------------

    def beat(self) -> HeartbeatStatus:
        with self._lock:
            if not self._holds:
                return HeartbeatStatus.LOST
            view = self._look(self.beat_ms)
            # A broker lists a member only because of its heartbeats, each of which follows such a
            # check. So a member that is not listed was away for a while, and others have noticed.
            if view.brokers_without(self._id) or not self._is_locked_in_time:
                return self._mark_lost()
            self._send_heartbeats(self.beat_ms)
            asked_at_ms = self._masters.io.now_ms()
            if self._take(self._locked, self.beat_ms) != self._locked:
                return self._mark_lost()
            self._locked_at_ms = asked_at_ms
            is_same = view.ids == self._ids
            return HeartbeatStatus.HOLDS if is_same else HeartbeatStatus.REBALANCING

    def commit(self, offsets: Mapping[Partition, int]) -> None:
        """Writes offsets only if this member has just renewed the lock of each queue. Brokers do
        not check offsets against locks. So it goes unnoticed if a lock is lost between the two
        requests, or if another driver had it and released it since the last heartbeat. The offset
        is then a checkpoint that has landed, but perhaps not the latest one, which the next run
        mirrors."""
        with self._lock:
            if not self._holds:
                raise self._fenced_error("it is no longer a member")
            self._check_owned(offsets, self._locked)
            if not offsets:
                return
            if (why := self._why_lost(offsets)) is not None:
                self._mark_lost()
                raise self._fenced_error(why)
            write_offsets(self._masters, self.joining.group, offsets, self._id)
            logger.info("Committed offsets", extra=self._log_fields(len(offsets)))

    def _why_lost(self, queues: Collection[Partition]) -> str | None:
        """Why the member no longer holds all of these queues; None if it does."""
        if self._look(PATIENCE_MS).brokers_without(self._id):
            return "a broker no longer lists it as a member"
        if not self._is_locked_in_time:
            return f"its locks were not renewed for {LOCK_MS} ms"
        if missing := sorted(set(queues) - self._take(queues, PATIENCE_MS)):
            return f"another client has locked {missing[0]}"
        return None

    @property
    def _is_locked_in_time(self) -> bool:
        return self._masters.io.now_ms() - self._locked_at_ms < LOCK_MS

    def _mark_lost(self) -> HeartbeatStatus:
        logger.warning("Lost the membership", extra=self._log_fields(len(self._locked)))
        self._holds = False
        return HeartbeatStatus.LOST

    def leave(self) -> None:
        with self._lock:
            self._holds = False
            queues = self._locked
            self._locked = frozenset()
            if not self._is_known:
                return
            self._is_known = False
            slaves = self._masters.slaves(self._brokers)
            for broker, of_broker in _by_broker(queues):
                self._send_best_effort(broker, g.unlock(self._id, self.joining.group, of_broker))
            request = g.unregister(self._id, self.joining.group)
            for broker in self._brokers:
                self._send_best_effort(broker, request)
            self._send_to_slaves(slaves, request)
            logger.info("Left the group", extra=self._log_fields(len(queues)))

    # --- requests ----------------------------------------------------------------------

    def _take(self, queues: Collection[Partition], patience_ms: int) -> frozenset[Partition]:
        """The queues that this member has locked now."""
        locked: frozenset[Partition] = frozenset()
        for broker, of_broker in _by_broker(queues):
            request = g.lock(self._id, self.joining.group, of_broker)
            locked |= g.read_locked(
                self._ask(broker, request, "a member locked its queues", patience_ms)
            )
        return locked & frozenset(queues)

    def _give_back(self, client: str, queues: Collection[Partition]) -> None:
        for broker, of_broker in _by_broker(queues):
            request = g.unlock(client, self.joining.group, of_broker)
            self._ask(broker, request, "a member gave queues back", PATIENCE_MS)

    def _ask(
        self, broker: str, request: m.RemotingRequest, when: str, patience_ms: int
    ) -> m.RemotingResponse:
        response, code = self._masters.ask(broker, self._brokers[broker], request, patience_ms)
        if response.code != SUCCESS:
            raise masters_error(code, response.remark, self.joining.group, when)
        return response

    def _send_best_effort(self, broker: str, request: m.RemotingRequest) -> None:
        try:
            self._masters.ask(broker, self._brokers[broker], request, patience_ms=0)
        except RangelandError:
            return  # the connection ends, and locks expire

    def _send_to_slaves(self, slaves: Collection[Address], request: m.RemotingRequest) -> None:
        for slave in slaves:
            if slave in self._silent:
                continue
            try:
                self._masters.io.ask(slave, BrokerRequest(request))
            except RangelandError:
                # Slaves only show members to tools; nothing here depends on them.
                self._silent.add(slave)

    # --- errors ------------------------------------------------------------------------

    def _unsettled_error(self, view: RocketmqGroupView) -> Unreachable | None:
        if self._is_seen_by_all(view):
            return None
        return Unreachable(
            f"group {self.joining.group} did not settle",
            why=f"its brokers show different members, after {self._patience_ms} ms; there"
            f" were {describe_clients(view.clients)}",
            do="check who joins and leaves it, and that all members reach all brokers, then run"
            " again",
            group=self.joining.group,
            members=facts(view.clients),
        )

    def _blocked_error(self, queues: Collection[Partition], view: RocketmqGroupView) -> Unreachable:
        queue = min(queues)
        group = self.joining.group
        clients = [client for client in view.clients if client.client_id != self._id]
        described = describe_clients(clients) if clients else "none"
        return Unreachable(
            f"{queue} could not be claimed in group {group}",
            why=f"another client holds its lock after {self._patience_ms} ms; others in "
            f"the group: {described}",
            do="check what they do, then run again; a lock expires a minute after its client ended",
            group=group,
            partition=str(queue),
            members=facts(clients),
        )

    def _not_listed_error(self, view: RocketmqGroupView) -> JobFileError:
        group = self.joining.group
        missing = view.brokers_without(self._id)
        return JobFileError(
            f"the brokers do not accept members of group {group}",
            why=f"{', '.join(missing)} accepted {_MISSES} heartbeats but does not list the member",
            do=f"create the group {group}, or let the brokers do it (autoCreateSubscriptionGroup)"
            ", and check that rejectPullConsumerEnable is off",
            group=group,
            brokers=missing,
        )


def _by_broker(queues: Collection[Partition]) -> Iterator[tuple[str, list[Partition]]]:
    for broker in sorted({queue.broker for queue in queues}):
        yield broker, sorted(queue for queue in queues if queue.broker == broker)
