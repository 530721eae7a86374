"""The group backend for Kafka, where the coordinator on one of the brokers stores a group.

A driver names its job in the user data of its subscription. During a rebalance, the coordinator
shows no subscriptions, so the client id has to identify the driver. Groups of the newer protocol,
whose coordinator assigns partitions itself, are read too: a driver does not join them, but it must
not overlook their consumers.

One lock guards everything, since heartbeats come from another thread.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from rangeland.dialects.cluster_values import GroupMember, GroupState, GroupView
from rangeland.dialects.error_meaning import ErrorCode, ErrorMeaning, GroupMeaning
from rangeland.dialects.kafka import messages as m
from rangeland.dialects.kafka.error_codes import UNSUPPORTED_VERSION
from rangeland.dialects.protocol_session import BrokerRequest, UnsupportedRequest
from rangeland.errors import Conflict, RangelandError, RemoteProtocolError
from rangeland.groups.backend import PAUSE_MS, GroupIO, JoinRequest, Membership
from rangeland.groups.kafka.coordinator import CoordinatorClient, coordinator_error
from rangeland.groups.kafka.member import KafkaMember
from rangeland.groups.kafka.offset_commits import (
    code_of_commit,
    code_of_group_offsets,
    commit_request,
    group_offsets_request,
    read_group_offsets,
)
from rangeland.groups.kafka.subscriptions import owner_of, read_assignment, read_owner
from rangeland.model import Partition

PATIENCE_MS: Final = 30_000
"""How long a coordinator may be moving or loading before a request fails."""

_DEAD: Final = "Dead"
_STATES: Final = {
    "Empty": GroupState.EMPTY,
    "Stable": GroupState.STABLE,
    _DEAD: GroupState.ABSENT,
    "PreparingRebalance": GroupState.REBALANCING,
    "CompletingRebalance": GroupState.REBALANCING,
    "AwaitingSync": GroupState.REBALANCING,
    "Assigning": GroupState.REBALANCING,
    "Reconciling": GroupState.REBALANCING,
}
_HAS_MEMBERS: Final = (
    GroupMeaning.MEMBER_UNKNOWN,
    GroupMeaning.GENERATION_OVER,
    GroupMeaning.REBALANCING,
)
"""The codes with which a coordinator answers a commit by a non-member, if there are members."""
_DEFAULT_CLIENT_ID: Final = "rangeland"


class KafkaGroups:
    """A ``GroupBackend`` for all groups of the cluster that ``io`` reaches. A driver has one of
    these, with one membership at a time. A join blocks all other calls. ``view`` counts the drivers
    of ``job`` as ours; without it, those of any job."""

    def __init__(self, io: GroupIO, job: str = "") -> None:
        self._io = io
        self._job = job
        self._coordinators = CoordinatorClient(io)
        self._lock = threading.RLock()
        self._joined: dict[str, JoinRequest] = {}
        self._asked = ""

    @property
    def name(self) -> str:
        address = self._coordinators.of(self._asked)
        if address is None:
            return f"the coordinator of group {self._asked}" if self._asked else "the coordinators"
        return f"the coordinator of group {self._asked} at {address}"

    def offsets(self, group: str, partitions: Sequence[Partition]) -> dict[Partition, int | None]:
        if not partitions:
            return {}
        request = group_offsets_request(group, partitions)
        with self._lock:
            code_of = partial(code_of_group_offsets, asked=partitions)
            response, code = self._ask(group, request, code_of)
        if code.meaning is not ErrorMeaning.OK:
            raise coordinator_error(code, group, "its offsets were asked for")
        return read_group_offsets(response)

    def commit(self, group: str, offsets: Mapping[Partition, int]) -> None:
        if not offsets:
            return
        with self._lock:
            _, code = self._ask(group, commit_request(group, offsets), code_of_commit)
            if code.group_meaning in _HAS_MEMBERS:
                raise self._in_use_error(group, self.view(group).members)
        if code.meaning is not ErrorMeaning.OK:
            raise coordinator_error(code, group, "its offsets were committed")

    def view(self, group: str) -> GroupView:
        """The group and its members. ``is_ours`` refers to the job that joined this group through
        this backend, or to that of the backend if none has. While the group rebalances, drivers of
        all jobs with the same client id are ours."""
        with self._lock:
            request = BrokerRequest(m.DescribeGroupsRequest(groups=(group,)))
            try:
                response, code = self._ask(group, request, _code_of)
            except UnsupportedRequest:
                # Before 0.9, coordinators kept offsets but no members.
                return GroupView(GroupState.ABSENT)
            (described,) = response.groups
            # Before 4.0, a group that is not of the classic protocol has no code, only this state.
            is_dead = code.meaning is ErrorMeaning.OK and described.group_state == _DEAD
            if is_dead or code.group_meaning is GroupMeaning.NO_SUCH_GROUP:
                return self._newer_view(group)
        if code.meaning is not ErrorMeaning.OK:
            raise coordinator_error(code, group, "its members were asked for")
        is_consumers = described.protocol_type == m.PROTOCOL_TYPE
        members = tuple(self._member(group, x, is_consumers) for x in described.members)
        return GroupView(_STATES.get(described.group_state, GroupState.REBALANCING), members)

    def join(self, joining: JoinRequest) -> Membership:
        group = joining.group
        with self._lock:
            self._joined[group] = joining
            consumers = [x for x in self._stable_view(joining).members if not x.is_ours]
            if consumers:
                raise self._in_use_error(group, consumers)
            member = KafkaMember(
                self._coordinators,
                self._lock,
                joining,
                lambda code: self._not_admitted_error(joining, code),
            )
            try:
                member.rejoin()
            except RangelandError:
                # All others would wait for it until its session ends.
                member.leave()
                raise
            return member

    def close(self) -> None:
        self._io.close()

    # --- members -----------------------------------------------------------------------

    def _stable_view(self, joining: JoinRequest) -> GroupView:
        """The group's members. If some may not be drivers of this job, waits until the rebalance
        is over or has taken too long."""
        deadline_ms = self._io.now_ms() + joining.rebalance_ms
        while True:
            view = self.view(joining.group)
            is_changing = view.state is GroupState.REBALANCING
            may_change = is_changing and not all(x.is_ours for x in view.members)
            if not may_change or self._io.now_ms() >= deadline_ms:
                return view
            self._io.pause(PAUSE_MS)

    def _newer_view(self, group: str) -> GroupView:
        request = BrokerRequest(m.ConsumerGroupDescribeRequest(group_ids=(group,)))
        # A broker that does not know the newer protocol has no groups that use it.
        try:
            response, code = self._ask(group, request, _code_of)
        except UnsupportedRequest:
            return GroupView(GroupState.ABSENT)
        if code.group_meaning is GroupMeaning.NO_SUCH_GROUP or code == UNSUPPORTED_VERSION:
            return GroupView(GroupState.ABSENT)
        if code.meaning is not ErrorMeaning.OK:
            raise coordinator_error(code, group, "its members were asked for")
        (described,) = response.groups
        members = tuple(
            _group_member(
                x,
                frozenset(
                    Partition(topic.topic_name, number)
                    for topic in x.assignment.topic_partitions
                    for number in topic.partitions
                ),
                x.member_type == m.CLASSIC_MEMBER and self._is_our_client(group, x),
            )
            for x in described.members
        )
        return GroupView(_STATES.get(described.group_state, GroupState.REBALANCING), members)

    def _member(self, group: str, member: m.DescribedMember, is_consumer: bool) -> GroupMember:
        assigned = read_assignment(member.member_assignment) if is_consumer else frozenset()
        return _group_member(member, assigned, is_consumer and self._is_ours(group, member))

    def _is_ours(self, group: str, member: m.DescribedMember) -> bool:
        if not member.member_metadata:
            return self._is_our_client(group, member)
        joined = self._joined.get(group)
        job = joined.job if joined else self._job
        owner = read_owner(member.member_metadata)
        return owner == owner_of(job) if job else owner != ""

    def _is_our_client(self, group: str, member: m.DescribedMember | m.ConsumerMember) -> bool:
        joined = self._joined.get(group)
        return member.client_id == (joined.client_id if joined else _DEFAULT_CLIENT_ID)

    # --- requests and errors -----------------------------------------------------------

    def _ask(self, group: str, request: BrokerRequest, code_of: Any) -> tuple[Any, ErrorCode]:
        self._asked = group
        return self._coordinators.ask(group, request, code_of, PATIENCE_MS)

    def _in_use_error(self, group: str, members: Sequence[GroupMember]) -> Conflict:
        return Conflict(
            f"group {group} is in use",
            why=_name_members(members) or "it had members, which have since left",
            do="stop them, or give the job its own group (group.id)",
            group=group,
            members=[_facts(member) for member in members],
        )

    def _not_admitted_error(self, joining: JoinRequest, code: ErrorCode) -> Conflict:
        members = self.view(joining.group).members
        remedy = "let all its members use the same assignment, or give the job its own group"
        if code.group_meaning is GroupMeaning.GROUP_FULL:
            remedy = "start fewer drivers, or raise the brokers' group.max.size"
        return Conflict(
            f"group {joining.group} does not accept a member with assignment {joining.assignment}",
            why="; ".join(filter(None, (code.describe(), _name_members(members)))),
            do=remedy,
            group=joining.group,
            assignment=joining.assignment,
            code=code.name,
            members=[_facts(member) for member in members],
        )


open_backend = KafkaGroups  # by this name `backend_choice` finds it


def _group_member(
    member: m.DescribedMember | m.ConsumerMember, held: frozenset[Partition], is_ours: bool
) -> GroupMember:
    host = member.client_host.removeprefix("/")
    return GroupMember(member.member_id, member.client_id, host, held, is_ours)


def _code_of(response: m.DescribeGroupsResponse | m.ConsumerGroupDescribeResponse) -> int:
    if len(response.groups) != 1:
        raise RemoteProtocolError(
            "the coordinator was asked about one group",
            why=f"it described {len(response.groups)}",
            do="check that the servers are Kafka brokers, then try again",
        )
    return response.groups[0].error_code


def _name_members(members: Sequence[GroupMember]) -> str:
    return "; ".join(_sentence(member) for member in members)


def _sentence(member: GroupMember) -> str:
    partitions = ", ".join(map(str, sorted(member.partitions))) or "nothing"
    client = ", ".join(filter(None, (f"client {member.client_id}", f"host {member.host}")))
    return f"member {member.member_id} ({client}) holds {partitions}"


def _facts(member: GroupMember) -> dict[str, Any]:
    return {
        "member": member.member_id,
        "client": member.client_id,
        "host": member.host,
        "partitions": [str(partition) for partition in sorted(member.partitions)],
    }
