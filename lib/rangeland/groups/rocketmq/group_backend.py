"""RocketMQ's home of groups: the masters of the brokers that have a group's queues.

Nobody coordinates: each broker lists who sends it heartbeats, keeps offsets of its own queues
and gives out locks on them, and each client computes by the same rule what is its own. So who
holds what is computed here too, as long as the group is one of drivers; of other consumers it
is what upstream's own rule would give them.

One lock guards all of it, since heartbeats come from another thread.
"""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from rangeland.errors import JobFileError
from rangeland.groups.backend import GroupIO, GroupMember, GroupView, JoinRequest, Membership
from rangeland.groups.rocketmq import group_requests as g
from rangeland.groups.rocketmq.assignment import shares
from rangeland.groups.rocketmq.client_ids import client_id, job_of
from rangeland.groups.rocketmq.masters import (
    PATIENCE_MS,
    MasterBrokers,
    read_offsets,
    write_offsets,
)
from rangeland.groups.rocketmq.member import RocketmqMember
from rangeland.groups.rocketmq.membership_view import (
    RocketmqGroupView,
    brokers_of,
    occupied,
    take_census,
)
from rangeland.model import Partition

ABSENT: Final = "absent"


def open_home(edge: GroupIO) -> RocketmqGroups:
    """The home of all groups of the brokers that ``edge``'s name servers know."""
    return RocketmqGroups(edge)


class RocketmqGroups:
    """A ``groups.Home``. A driver has one, and one membership of it at a time: brokers know a
    member by its connection. A join blocks whoever else asks."""

    def __init__(self, edge: GroupIO) -> None:
        self._edge = edge
        self._masters = MasterBrokers(edge)
        self._lock = threading.RLock()
        self._joined: dict[str, tuple[JoinRequest, RocketmqMember]] = {}
        self._asked: dict[str, set[Partition]] = {}  # by group

    @property
    def name(self) -> str:
        return f"the brokers of the name servers at {', '.join(map(str, self._edge.seeds))}"

    def offsets(self, group: str, partitions: Sequence[Partition]) -> dict[Partition, int | None]:
        with self._lock:
            self._asked.setdefault(group, set()).update(partitions)
            return read_offsets(self._masters, group, partitions)

    def commit(self, group: str, offsets: Mapping[Partition, int]) -> None:
        """Nobody is held off meanwhile: who joins between the look and the writing is not
        seen. Raises JobFileError where the brokers may not make a group that they do not
        know."""
        with self._lock:
            brokers = brokers_of(offsets)
            if there := take_census(self._masters, group, brokers, PATIENCE_MS).clients:
                raise occupied(group, there, "the offsets were not written")
            write_offsets(self._masters, group, offsets, "rangeland")

    def view(self, group: str) -> GroupView:
        """``is_ours`` means the job that joined this group here, or any job of this library
        where none has. Only brokers that have met the group or were asked for its offsets are
        looked at."""
        with self._lock:
            has_met_brokers, brokers = self._brokers(group)
            census = take_census(self._masters, group, brokers, PATIENCE_MS)
            if not census.clients:
                return GroupView("empty" if has_met_brokers else ABSENT)
            held = shares(self._queues(group, census), census.ids)
            members = tuple(self._holder(group, c, held[c.client_id]) for c in census.clients)
            return GroupView(self._state(group, census), members)

    def join(self, joining: JoinRequest) -> Membership:
        """Raises JobFileError for an assignment other than range."""
        if joining.assignment != "range":
            raise JobFileError(
                f"group {joining.group} cannot share partitions by {joining.assignment}",
                why="brokers of this dialect leave it to members, and all share by runs",
                do="leave group.assignment out",
                group=joining.group,
            )
        me = client_id(joining.host, os.getpid(), joining.job, uuid.uuid4().hex[:8])
        with self._lock:
            member = RocketmqMember(self._masters, self._lock, joining, me)
            self._joined[joining.group] = joining, member
            try:
                member.rejoin()
            except BaseException:
                member.leave()
                raise
            return member

    def close(self) -> None:
        self._edge.close()

    # --- who is there ------------------------------------------------------------------

    def _brokers(self, group: str) -> tuple[bool, dict[str, str]]:
        """Where to look for a group, and whether any broker has ever had a member of it. Who
        has joined looks where it joined, and nowhere else."""
        if group in self._joined:
            return True, brokers_of(self._joined[group][0].partitions)
        retries = f"{g.RETRY_PREFIX}{group}"
        route = self._masters.route(retries)
        met = dict.fromkeys(route.brokers if route else (), retries)
        return bool(met), brokers_of(self._asked.get(group, ())) | met

    def _queues(self, group: str, census: RocketmqGroupView) -> Iterable[Partition]:
        """What the members share: what a driver here says, or all that is subscribed to."""
        if group in self._joined:
            return self._joined[group][0].partitions
        routes = {topic: self._masters.route(topic) for topic in sorted(census.topics)}
        return [q for topic, route in routes.items() if route for q in route.leaders(topic)]

    def _state(self, group: str, census: RocketmqGroupView) -> str:
        _, member = self._joined.get(group, (None, None))
        is_stable = census.is_agreed if member is None else member.is_settled(census)
        return "stable" if is_stable else "rebalancing"

    def _holder(self, group: str, client: g.GroupClient, held: Iterable[Partition]) -> GroupMember:
        joining, _ = self._joined.get(group, (None, None))
        job = job_of(client.client_id)
        return GroupMember(
            member_id=client.client_id,
            client_id=client.client_id,
            host=client.host,
            partitions=frozenset(held),
            is_ours=job == joining.job if joining else job != "",
        )
