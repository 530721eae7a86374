"""One driver's membership in a Kafka group: join, sync, heartbeat, commit, leave.

This is the classic group protocol. A member gets an id, joins with it, and syncs; the group's
leader computes the assignment in between. When a member joins again, it names the partitions
that it had, so that a sticky assignment can return them. Offsets are never committed in a
generation that is over: that is the fence.

This module has no socket and no clock. A lock, shared with the backend, keeps heartbeats from
another thread from interfering with other requests; a heartbeat waits while its member joins.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

from rangeland.dialects.error_meaning import ErrorCode, ErrorMeaning, GroupMeaning
from rangeland.dialects.kafka import messages as m
from rangeland.dialects.protocol_session import BrokerRequest
from rangeland.errors import RangelandError, Unreachable
from rangeland.groups.backend import (
    BEATS_PER_SESSION,
    PAUSE_MS,
    HeartbeatStatus,
    JoinRequest,
    Membership,
)
from rangeland.groups.kafka.assignment import Assignment, assign
from rangeland.groups.kafka.coordinator import CoordinatorClient, coordinator_error
from rangeland.groups.kafka.offset_commits import code_of_commit, commit_request
from rangeland.groups.kafka.subscriptions import (
    assignment_bytes,
    owner_of,
    read_assignment,
    read_owner,
    read_subscription,
    subscription_bytes,
)
from rangeland.model import Partition

logger = logging.getLogger(__name__)

JOIN_SLACK_MS: Final = 5_000
"""How long after the rebalance timeout the response to a join may come."""

Explain = Callable[[ErrorCode], RangelandError]
"""Makes a Conflict that names the group's members, from the code of the refusal."""


class KafkaMember(Membership):
    """A membership in a Kafka group. It has no partitions before its first ``rejoin``."""

    def __init__(
        self,
        coordinators: CoordinatorClient,
        lock: threading.RLock,
        joining: JoinRequest,
        explain: Explain,
    ) -> None:
        super().__init__(joining, m.NO_GENERATION)
        self._coordinators = coordinators
        self._lock = lock
        self._explain = explain
        self._member_id = m.UNKNOWN_MEMBER
        self._held: frozenset[Partition] = frozenset()
        self._holds = False

    @property
    def member_id(self) -> str:
        return self._member_id

    @property
    def owned(self) -> frozenset[Partition]:
        return self._held if self._holds else frozenset()

    # --- joining -----------------------------------------------------------------------

    def rejoin(self) -> None:
        with self._lock:
            self._holds = False
            io = self._coordinators.io
            deadline_ms = io.now_ms() + 2 * self.joining.rebalance_ms
            while not self._holds:
                joined = self._join()
                if joined is not None and self._sync(joined):
                    return
                if io.now_ms() >= deadline_ms:
                    raise Unreachable(
                        f"group {self.joining.group} did not settle",
                        why=f"members came and went for {2 * self.joining.rebalance_ms} ms",
                        do="try again in a moment",
                        group=self.joining.group,
                        member=self._member_id,
                    )

    def _join(self) -> m.JoinGroupResponse | None:
        """Sends one request to join. If it returns None, join again, with the member id that is now
        stored."""
        joining = self.joining
        topics = {partition.topic for partition in joining.partitions}
        subscription = subscription_bytes(
            topics, self._held, self._generation, owner_of(joining.job)
        )
        request = m.JoinGroupRequest(
            group_id=joining.group,
            session_timeout_ms=joining.session_ms,
            rebalance_timeout_ms=joining.rebalance_ms,
            member_id=self._member_id,
            protocol_type=m.PROTOCOL_TYPE,
            protocols=(m.JoinGroupProtocol(name=joining.assignment, metadata=subscription),),
        )
        response, code = self._ask(request, joining.rebalance_ms, joining.rebalance_ms)
        if code.meaning is ErrorMeaning.OK:
            self._member_id = response.member_id
            joined: m.JoinGroupResponse = response
            return joined
        if code.group_meaning is GroupMeaning.MEMBER_ID_REQUIRED:
            self._member_id = response.member_id
        else:
            self._rejoin_or_raise(code, "a member joined")
        return None

    def _sync(self, joined: m.JoinGroupResponse) -> bool:
        """Whether the member has its assignment now. If False, join again."""
        leads = joined.leader == joined.member_id and not joined.skip_assignment
        shares = self._shares(joined) if leads else {}
        request = m.SyncGroupRequest(
            group_id=self.joining.group,
            generation_id=joined.generation_id,
            member_id=self._member_id,
            protocol_type=m.PROTOCOL_TYPE,
            protocol_name=joined.protocol_name or self.joining.assignment,
            assignments=tuple(
                m.SyncGroupAssignment(member_id=member, assignment=assignment_bytes(share))
                for member, share in shares.items()
            ),
        )
        response, code = self._ask(request, self.joining.rebalance_ms, self.joining.rebalance_ms)
        if code.meaning is not ErrorMeaning.OK:
            self._rejoin_or_raise(code, "a member asked for its assignment")
            return False
        self._generation = joined.generation_id
        # If another client leads, it may assign partitions that the job leaves out.
        self._held = read_assignment(response.assignment) & frozenset(self.joining.partitions)
        self._holds = True
        logger.info("Joined the group", extra=self._log_fields(len(self._held)))
        return True

    def _rejoin_or_raise(self, code: ErrorCode, when: str) -> None:
        match code.group_meaning:
            case GroupMeaning.PROTOCOL_MISMATCH | GroupMeaning.GROUP_FULL:
                raise self._explain(code)
            case GroupMeaning.REBALANCING:
                pass
            case meaning if meaning.ends_membership:
                self._forget(code)
            case _:
                raise coordinator_error(code, self.joining.group, when)
        self._coordinators.io.pause(PAUSE_MS)

    def _shares(self, joined: m.JoinGroupResponse) -> Assignment:
        """The assignment of all members. Consumers that are not our drivers expect all partitions
        of their topics, so those that the job leaves out are assigned only among them."""
        joining = self.joining
        strategy = joined.protocol_name or joining.assignment
        members = {
            x.member_id: read_subscription(x.metadata, strategy, x.group_instance_id)
            for x in joined.members
        }
        shares = assign(strategy, joining.partitions, members)
        owner = owner_of(joining.job)
        consumers = {
            x.member_id: members[x.member_id]
            for x in joined.members
            if read_owner(x.metadata) != owner
        }
        topics = {topic for subscription in consumers.values() for topic in subscription.topics}
        if topics:
            left_out = self._partitions_of(topics) - frozenset(joining.partitions)
            for member, more in assign(strategy, left_out, consumers).items():
                shares[member] += more
        return shares

    def _partitions_of(self, topics: set[str]) -> set[Partition]:
        requested = tuple(m.MetadataRequestTopic(name=topic) for topic in sorted(topics))
        request = BrokerRequest(m.MetadataRequest(topics=requested))
        group = self.joining.group
        patience_ms = self.joining.rebalance_ms
        response, _ = self._coordinators.ask(group, request, lambda _: 0, patience_ms)
        return {
            Partition(topic.name, part.partition_index)
            for topic in response.topics
            for part in topic.partitions
        }

    # --- while it is a member ----------------------------------------------------------

    def beat(self) -> HeartbeatStatus:
        with self._lock:
            if not self._holds:
                return HeartbeatStatus.LOST
            request = m.HeartbeatRequest(
                group_id=self.joining.group,
                generation_id=self._generation,
                member_id=self._member_id,
            )
            _, code = self._ask(request, self.beat_ms)
            if code.meaning is ErrorMeaning.OK:
                return HeartbeatStatus.HOLDS
            if code.group_meaning is GroupMeaning.REBALANCING:
                return HeartbeatStatus.REBALANCING
            if code.group_meaning.ends_membership:
                self._forget(code)
                return HeartbeatStatus.LOST
            raise coordinator_error(code, self.joining.group, "a member sent its heartbeat")

    def commit(self, offsets: Mapping[Partition, int]) -> None:
        with self._lock:
            if not self._holds:
                raise self._fenced_error("it is no longer a member")
            self._check_owned(offsets, self._held)
            if not offsets:
                return
            group = self.joining.group
            request = commit_request(group, offsets, self._generation, self._member_id)
            # No heartbeat is sent meanwhile, so this must end well within the session.
            patience_ms = self.joining.session_ms // BEATS_PER_SESSION
            deadline_ms = self._coordinators.io.now_ms() + patience_ms
            while True:
                _, code = self._coordinators.ask(group, request, code_of_commit, patience_ms)
                # Old coordinators answer this in any generation, newer ones only to a member that
                # has not synced. Which of the two it is becomes clear once the others have their
                # assignments.
                if code.group_meaning is not GroupMeaning.REBALANCING:
                    break
                if self._coordinators.io.now_ms() >= deadline_ms:
                    break
                self._coordinators.io.pause(PAUSE_MS)
            if code.group_meaning.ends_membership:
                error = self._fenced_error(code.describe())
                self._forget(code)
                raise error
            if code.meaning is not ErrorMeaning.OK:
                raise coordinator_error(code, group, "a member committed its offsets")
            logger.info("Committed offsets", extra=self._log_fields(len(offsets)))

    def leave(self) -> None:
        with self._lock:
            leaving = self._member_id
            fields = self._log_fields(len(self.owned))
            self._holds = False
            self._member_id = m.UNKNOWN_MEMBER
            if leaving == m.UNKNOWN_MEMBER:
                return
            request = m.LeaveGroupRequest(group_id=self.joining.group, member_id=leaving)
            try:
                self._ask(request, self.beat_ms)
            except RangelandError:
                return  # the session ends by itself
            logger.info("Left the group", extra=fields)

    # --- requests and errors -----------------------------------------------------------

    def _ask(
        self, request: Any, patience_ms: int, rebalance_ms: int | None = None
    ) -> tuple[Any, ErrorCode]:
        wait_ms = None if rebalance_ms is None else rebalance_ms + JOIN_SLACK_MS
        return self._coordinators.ask(
            self.joining.group,
            BrokerRequest(request, wait_ms=wait_ms),
            lambda response: response.error_code,
            patience_ms,
        )

    def _forget(self, code: ErrorCode) -> None:
        """Gives up all partitions. After a wrong generation, the coordinator may still know the
        member. Under its old id, the member replaces itself; under a new id, all members would wait
        for the old one."""
        logger.warning(
            "Lost the membership: %s", code.name, extra=self._log_fields(len(self.owned))
        )
        self._holds = False
        if code.group_meaning is not GroupMeaning.GENERATION_OVER:
            self._member_id = m.UNKNOWN_MEMBER
