"""One driver's place in a RocketMQ group: heartbeats, a share by the rule, a lock on each queue.

Joining: look who is there, send heartbeats, look again, take the share that the rule gives,
and lock it on the masters. Members give up what is no longer theirs when they notice that
somebody came, so a lock that is not to be had is waited for. Whoever is no driver of this job
is a Conflict, and nothing of this driver stays behind.

There is no generation here: the fence is the lock. Brokers keep locks for a minute after they
were last renewed, in memory, and tell nobody who has one. A lock of a driver that is seen to
be gone is given back in its name: should it live after all, it finds that it has lost.
Gone is whose connection has ended, or who was silent on it for as long as the brokers say (two
minutes, if nobody has changed it); a session's length is not theirs to know.

Nothing here has a socket or a clock. A lock of its own, shared with the home, keeps heartbeats
of another thread from mixing with anything else; a beat waits while its member joins.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Mapping
from typing import Final

from rangeland.dialects.protocol_session import Question
from rangeland.dialects.rocketmq import messages as m
from rangeland.dialects.rocketmq.error_codes import SUCCESS
from rangeland.errors import Conflict, JobFileError, RangelandError
from rangeland.groups.backend import Fenced, HeartbeatStatus, JoinRequest
from rangeland.groups.rocketmq import group_requests as g
from rangeland.groups.rocketmq.assignment import shares
from rangeland.groups.rocketmq.client_ids import job_of
from rangeland.groups.rocketmq.masters import PATIENCE_MS, MasterBrokers, refusal, write_offsets
from rangeland.groups.rocketmq.membership_view import (
    RocketmqGroupView,
    brokers_of,
    facts,
    occupied,
    take_census,
    told,
)
from rangeland.model import Address, Partition

BEAT_MS: Final = 3_000
LOCK_MS: Final = 60_000
"""How long a broker keeps a lock that is not renewed, unless its own setting says otherwise."""
SLACK_MS: Final = 1_000
RETRY_MS: Final = 500
"""Between tries to join."""
_MISSES: Final = 3


class RocketmqMember:
    """A ``groups.Membership``. Holds nothing before its first ``rejoin``."""

    def __init__(
        self, masters: MasterBrokers, lock: threading.RLock, joining: JoinRequest, client_id: str
    ) -> None:
        self._masters = masters
        self._lock = lock
        self._joining = joining
        self._id = client_id
        self._brokers = brokers_of(joining.partitions)
        self._generation = 0
        self._holds = False
        self._is_known = False  # to some broker, as far as we know
        self._ids: tuple[str, ...] = ()  # all members, when the share was computed
        self._locked: frozenset[Partition] = frozenset()  # what may have to be given back
        self._locked_at_ms = 0
        self._drivers: set[str] = set()  # all that were ever seen
        self._silent: set[Address] = set()  # slaves

    @property
    def member_id(self) -> str:
        return self._id

    @property
    def generation(self) -> int:
        return self._generation

    @property
    def owned(self) -> frozenset[Partition]:
        return self._locked if self._holds else frozenset()

    @property
    def beat_ms(self) -> int:
        return max(1, min(BEAT_MS, self._joining.session_ms // 3))

    def is_settled(self, census: RocketmqGroupView) -> bool:
        """Whether its share is still that of the members who are there now."""
        is_agreed = census.is_agreed and census.lists_everywhere(self._id)
        return self._holds and is_agreed and census.ids == self._ids

    # --- joining -----------------------------------------------------------------------

    def rejoin(self) -> None:
        """Raises JobFileError where a broker does not take members of the group."""
        with self._lock:
            self._holds = False
            self._silent.clear()
            edge = self._masters.edge
            began_ms, misses = edge.now_ms(), 0
            while True:
                census = self._announced()
                misses = 0 if census.lists_everywhere(self._id) else misses + 1
                if misses >= _MISSES:
                    self.leave()
                    raise self._not_taken(census)
                obstacle = self._unsettled(census) or self._claim(census)
                if obstacle is None:
                    self._generation += 1
                    self._holds = True
                    return
                if edge.now_ms() - began_ms >= self._patience_ms(census):
                    self.leave()
                    raise obstacle
                edge.pause(RETRY_MS)

    def _patience_ms(self, census: RocketmqGroupView) -> int:
        """A lock in a group with nobody else in it is one that a dead client has left behind,
        and ends by itself."""
        others = set(census.ids) - {self._id}
        return self._joining.rebalance_ms if others else self._orphans_ms

    @property
    def _orphans_ms(self) -> int:
        return max(self._joining.rebalance_ms, LOCK_MS + SLACK_MS)

    def _announced(self) -> RocketmqGroupView:
        """Who is there, after all brokers have heard of this member. Nobody hears of it
        before it is known that no stranger is there."""
        if not self._is_known:
            self._look(PATIENCE_MS)
            self._is_known = True
        self._send_heartbeats(PATIENCE_MS)
        return self._look(PATIENCE_MS)

    def _look(self, patience_ms: int) -> RocketmqGroupView:
        joining = self._joining
        census = take_census(self._masters, joining.group, self._brokers, patience_ms)
        if not self._holds and (strangers := census.strangers(joining.job)):
            self.leave()
            raise occupied(
                joining.group, strangers, f"job {joining.job} cannot claim its partitions"
            )
        self._drivers |= {c for c in census.ids if job_of(c) == joining.job}
        return census

    def _send_heartbeats(self, patience_ms: int) -> None:
        topics = {partition.topic for partition in self._joining.partitions}
        request = g.heartbeat(self._id, self._joining.group, topics)
        for broker in self._brokers:
            self._ask(broker, request, "a member sent its heartbeat", patience_ms)
        self._tell_slaves(self._masters.slaves(self._brokers), request)

    def _claim(self, census: RocketmqGroupView) -> Conflict | None:
        """None once all of the share is locked, and nothing else; otherwise what is not."""
        by_rule = shares(self._joining.partitions, census.ids)
        share = frozenset(by_rule.get(self._id, ()))
        self._give_back(self._id, self._locked - share)
        self._locked = share
        asked_at_ms = self._masters.edge.now_ms()
        missing = share - self._take(share, PATIENCE_MS)
        if missing and (gone := self._drivers - set(census.ids)):
            for dead in sorted(gone):
                self._give_back(dead, missing)
            missing -= self._take(missing, PATIENCE_MS)
        if missing:
            return self._blocked(missing, census)
        self._locked_at_ms = asked_at_ms
        self._ids = census.ids
        return None

    # --- while it holds ----------------------------------------------------------------

    def beat(self) -> HeartbeatStatus:
        with self._lock:
            if not self._holds:
                return HeartbeatStatus.LOST
            census = self._look(self.beat_ms)
            # Only its own heartbeats list it, and each comes after such a look: so whoever is
            # not listed here has been away, and others have seen that.
            if not census.lists_everywhere(self._id) or not self._is_locked_in_time:
                return self._lose()
            self._send_heartbeats(self.beat_ms)
            asked_at_ms = self._masters.edge.now_ms()
            if self._take(self._locked, self.beat_ms) != self._locked:
                return self._lose()
            self._locked_at_ms = asked_at_ms
            return HeartbeatStatus.HOLDS if census.ids == self._ids else HeartbeatStatus.REBALANCING

    def commit(self, offsets: Mapping[Partition, int]) -> None:
        """Writes nothing unless each queue's lock is this member's, just renewed. Brokers do
        not hold an offset against a lock: one that is lost between the two requests is not
        noticed, nor one that another driver had and gave back since the last beat. What is
        written then is a checkpoint that has landed, perhaps not the latest; the next run
        mirrors that one."""
        with self._lock:
            if not self._holds:
                raise self._fenced("it does not hold its place any more")
            if strange := sorted(offsets.keys() - self._locked):
                raise self._fenced(f"{strange[0]} is not among its partitions")
            if not offsets:
                return
            if why := self._why_lost(offsets):
                self._lose()
                raise self._fenced(why)
            write_offsets(self._masters, self._joining.group, offsets, self._id)

    def _why_lost(self, queues: Collection[Partition]) -> str:
        """Empty where all of them are locked for this member."""
        if not self._look(PATIENCE_MS).lists_everywhere(self._id):
            return "a broker does not list it as a member any more"
        if not self._is_locked_in_time:
            return f"its locks were not renewed for {LOCK_MS} ms"
        if missing := sorted(set(queues) - self._take(queues, PATIENCE_MS)):
            return f"another client has locked {missing[0]}"
        return ""

    @property
    def _is_locked_in_time(self) -> bool:
        return self._masters.edge.now_ms() - self._locked_at_ms < LOCK_MS

    def _lose(self) -> HeartbeatStatus:
        self._holds = False
        return HeartbeatStatus.LOST

    def leave(self) -> None:
        with self._lock:
            self._holds = False
            queues, self._locked = self._locked, frozenset()
            if not self._is_known:
                return
            self._is_known = False
            slaves = self._masters.slaves(self._brokers)
            for broker, some in _by_broker(queues):
                self._tell(broker, g.unlock(self._id, self._joining.group, some))
            request = g.unregister(self._id, self._joining.group)
            for broker in self._brokers:
                self._tell(broker, request)
            self._tell_slaves(slaves, request)

    # --- how it is done ----------------------------------------------------------------

    def _take(self, queues: Collection[Partition], patience_ms: int) -> frozenset[Partition]:
        """Those of them that are locked for this member now."""
        taken: frozenset[Partition] = frozenset()
        for broker, some in _by_broker(queues):
            request = g.lock(self._id, self._joining.group, some)
            taken |= g.read_locked(
                self._ask(broker, request, "a member locked its queues", patience_ms)
            )
        return taken & frozenset(queues)

    def _give_back(self, client: str, queues: Collection[Partition]) -> None:
        for broker, some in _by_broker(queues):
            request = g.unlock(client, self._joining.group, some)
            self._ask(broker, request, "a member gave queues back", PATIENCE_MS)

    def _ask(
        self, broker: str, request: m.RemotingRequest, when: str, patience_ms: int
    ) -> m.RemotingResponse:
        answer, code = self._masters.ask(broker, self._brokers[broker], request, patience_ms)
        if answer.code != SUCCESS:
            raise refusal(code, answer.remark, self._joining.group, when)
        return answer

    def _tell(self, broker: str, request: m.RemotingRequest) -> None:
        try:
            self._masters.ask(broker, self._brokers[broker], request, patience_ms=0)
        except RangelandError:
            # The connection's end tells it, and locks end by themselves.
            return

    def _tell_slaves(self, slaves: Collection[Address], request: m.RemotingRequest) -> None:
        for slave in slaves:
            if slave in self._silent:
                continue
            try:
                self._masters.edge.ask(slave, Question(request))
            except RangelandError:
                # Slaves show members to whoever asks them; nothing here depends on it.
                self._silent.add(slave)

    # --- how it is said ----------------------------------------------------------------

    def _unsettled(self, census: RocketmqGroupView) -> Conflict | None:
        if census.is_agreed and census.lists_everywhere(self._id):
            return None
        return Conflict(
            f"group {self._joining.group} did not settle",
            why=f"its brokers show different members, for {self._joining.rebalance_ms} ms; there"
            f" were {told(census.clients)}",
            do="see who joins and leaves it, and that all members reach all brokers",
            group=self._joining.group,
            members=facts(census.clients),
        )

    def _blocked(self, queues: Collection[Partition], census: RocketmqGroupView) -> Conflict:
        queue, group = min(queues), self._joining.group
        others = [client for client in census.clients if client.client_id != self._id]
        who = told(others) if others else "nobody who is in the group"
        return Conflict(
            f"{queue} could not be claimed in group {group}",
            why=f"another client holds its lock after {self._patience_ms(census)} ms; others in "
            f"the group: {who}",
            do="see what those do; a lock ends a minute after its client",
            group=group,
            partition=str(queue),
            members=facts(others),
        )

    def _not_taken(self, census: RocketmqGroupView) -> JobFileError:
        group = self._joining.group
        missing = [
            b
            for b in self._brokers
            if not RocketmqGroupView({b: census.seen[b]}).ids.count(self._id)
        ]
        return JobFileError(
            f"the brokers do not take members of group {group}",
            why=f"{', '.join(missing)} took its heartbeats {_MISSES} times and does not list it",
            do=f"create the group {group}, or let the brokers do it (autoCreateSubscriptionGroup)"
            ", and see that rejectPullConsumerEnable is off",
            group=group,
            brokers=missing,
        )

    def _fenced(self, why: str) -> Fenced:
        joining = self._joining
        return Fenced(
            f"member {self._id} of group {joining.group} is fenced",
            why=why,
            do="run the job again",
            group=joining.group,
            member=self._id,
            generation=self._generation,
        )


def _by_broker(queues: Collection[Partition]) -> Iterator[tuple[str, list[Partition]]]:
    for broker in sorted({queue.broker for queue in queues}):
        yield broker, sorted(queue for queue in queues if queue.broker == broker)
