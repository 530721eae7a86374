"""The group backend for RocketMQ, where the masters of the brokers with its queues store a group.

There is no coordinator: each broker lists the clients that send it heartbeats, stores offsets
of its queues and grants locks on them, and each client computes the assignment by the same
rule. So assignments are computed here too, and for other consumers by upstream's rule.

One lock guards everything, since heartbeats come from another thread.
"""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Iterable, Mapping, Sequence

from rangeland.dialects.cluster_values import GroupMember, GroupState, GroupView
from rangeland.groups.backend import GroupIO, JoinRequest, Membership, check_assignment_is_range
from rangeland.groups.rocketmq import group_requests as g
from rangeland.groups.rocketmq.assignment import shares
from rangeland.groups.rocketmq.client_ids import client_id, job_of
from rangeland.groups.rocketmq.masters import PATIENCE_MS, MasterBrokers
from rangeland.groups.rocketmq.member import RocketmqMember
from rangeland.groups.rocketmq.membership_view import (
    RocketmqGroupView,
    brokers_of,
    group_in_use_error,
    read_group,
)
from rangeland.groups.rocketmq.offset_commits import read_offsets, write_offsets
from rangeland.model import Partition


class RocketmqGroups:
    """A ``GroupBackend`` for all groups of the brokers that the name servers of ``io`` know. A
    driver has one of these, with one membership at a time, since brokers identify a member by its
    connection. A join blocks all other calls. ``view`` counts the drivers of ``job`` as ours;
    without it, those of any job."""

    def __init__(self, io: GroupIO, job: str = "") -> None:
        self._io = io
        self._job = job
        self._masters = MasterBrokers(io)
        self._lock = threading.RLock()
        self._members: dict[str, RocketmqMember] = {}  # by group
        self._asked: dict[str, set[Partition]] = {}  # by group

    @property
    def name(self) -> str:
        return f"the brokers of the name servers at {', '.join(map(str, self._io.seeds))}"

    def offsets(self, group: str, partitions: Sequence[Partition]) -> dict[Partition, int | None]:
        with self._lock:
            self._asked.setdefault(group, set()).update(partitions)
            return read_offsets(self._masters, group, partitions)

    def commit(self, group: str, offsets: Mapping[Partition, int]) -> None:
        """Writes the offsets of a group without clients; a client that joins between the check and
        the write is not noticed. Raises JobFileError if the group is unknown and the brokers may
        not create it."""
        with self._lock:
            brokers = brokers_of(offsets)
            if clients := read_group(self._masters, group, brokers, PATIENCE_MS).clients:
                raise group_in_use_error(group, clients, "the offsets were not written")
            write_offsets(self._masters, group, offsets, "rangeland")

    def view(self, group: str) -> GroupView:
        """The group and its members. ``is_ours`` refers to the job that joined this group through
        this backend, or to that of the backend if none has. Only brokers that know the group, or
        were asked for its offsets, are queried."""
        with self._lock:
            was_joined, brokers = self._brokers(group)
            view = read_group(self._masters, group, brokers, PATIENCE_MS)
            if not view.clients:
                return GroupView(GroupState.EMPTY if was_joined else GroupState.ABSENT)
            assigned = shares(self._queues(group, view), view.ids)
            members = tuple(self._member(group, c, assigned[c.client_id]) for c in view.clients)
            return GroupView(self._state(group, view), members)

    def join(self, joining: JoinRequest) -> Membership:
        """Joins the group. Raises JobFileError for an assignment other than range."""
        why = "brokers of this dialect leave it to the members, which all use range"
        check_assignment_is_range(joining, why)
        me = client_id(joining.host, os.getpid(), joining.job, uuid.uuid4().hex[:8])
        with self._lock:
            member = RocketmqMember(self._masters, self._lock, joining, me)
            self._members[joining.group] = member
            try:
                member.rejoin()
            except BaseException:
                member.leave()
                raise
            return member

    def close(self) -> None:
        self._io.close()

    # --- members -----------------------------------------------------------------------

    def _brokers(self, group: str) -> tuple[bool, dict[str, str]]:
        """Whether any broker has ever had a member of the group, and the brokers to ask about it:
        after a join, only those of the joined partitions."""
        if group in self._members:
            return True, brokers_of(self._members[group].joining.partitions)
        retries = f"{g.RETRY_PREFIX}{group}"
        route = self._masters.route(retries)
        brokers = dict.fromkeys(route.brokers if route else (), retries)
        return bool(brokers), brokers_of(self._asked.get(group, ())) | brokers

    def _queues(self, group: str, view: RocketmqGroupView) -> Iterable[Partition]:
        """The queues that the members share: the partitions of a joined driver, or all queues of
        the subscribed topics."""
        if group in self._members:
            return self._members[group].joining.partitions
        routes = {topic: self._masters.route(topic) for topic in sorted(view.topics)}
        return [q for topic, route in routes.items() if route for q in route.leaders(topic)]

    def _state(self, group: str, view: RocketmqGroupView) -> GroupState:
        member = self._members.get(group)
        is_stable = view.is_agreed if member is None else member.is_settled(view)
        return GroupState.STABLE if is_stable else GroupState.REBALANCING

    def _member(self, group: str, client: g.GroupClient, held: Iterable[Partition]) -> GroupMember:
        member = self._members.get(group)
        ours = member.joining.job if member else self._job
        job = job_of(client.client_id)
        return GroupMember(
            member_id=client.client_id,
            client_id=client.client_id,
            host=client.host,
            partitions=frozenset(held),
            is_ours=job == ours if ours else job != "",
        )


open_backend = RocketmqGroups  # by this name `backend_choice` finds it
