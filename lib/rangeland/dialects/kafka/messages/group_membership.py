"""Membership in a group: joining, heartbeats, offset commits, and descriptions of groups.

A member's metadata and its assignment are opaque bytes here, as they are for the coordinator. Their
layout is in ``consumer_protocol``. An instance id makes a member static. Rangeland's members are
not static, but others may be, so the field is read.
"""

from __future__ import annotations

from rangeland.dialects.kafka.messages.cluster import NOT_ASKED
from rangeland.wire.declarations import *

NO_GENERATION = -1
"""The generation in a commit by a client that is not a member."""
UNKNOWN_MEMBER = ""
"""The member id of a client that has not received one yet."""

CLASSIC_MEMBER = 0
"""The type of a member that joined a group of the newer kind through the classic protocol."""


# --- JoinGroup --------------------------------------------------------------------------


@struct
class JoinGroupMember:
    member_id: String
    group_instance_id: String | None = since(5, default=None, ignorable=True)
    metadata: Bytes


@struct
class JoinGroupResponse:
    """``members`` is empty except for the ``leader``. With error 79, ``member_id`` is the id to use
    for joining."""

    throttle_time_ms: Int32 = since(2, default=0, ignorable=True)
    error_code: Int16
    generation_id: Int32 = NO_GENERATION
    protocol_type: String | None = since(7, default=None, ignorable=True)
    protocol_name: String | None = since(0, default="", nullable_from=7)
    leader: String
    skip_assignment: Bool = since(9, default=False)
    member_id: String
    members: Array[JoinGroupMember] = ()


@struct
class JoinGroupProtocol:
    """An assignor that the member supports, and the member's metadata for it."""

    name: String
    metadata: Bytes


@message(key=11, versions=(0, 9), flexible_from=6, response=JoinGroupResponse)
class JoinGroupRequest:
    """``protocols`` are in the member's order of preference; the coordinator chooses one that all
    members support. It answers when all have joined, or after ``rebalance_timeout_ms``; in version
    0, the session timeout takes its place."""

    group_id: String
    session_timeout_ms: Int32
    rebalance_timeout_ms: Int32 = since(1, default=-1, ignorable=True)
    member_id: String = UNKNOWN_MEMBER
    group_instance_id: String | None = since(5, default=None)
    protocol_type: String
    protocols: Array[JoinGroupProtocol]
    reason: String | None = since(8, default=None, ignorable=True)


# --- SyncGroup --------------------------------------------------------------------------


@struct
class SyncGroupResponse:
    """``assignment`` is empty if there is an error."""

    throttle_time_ms: Int32 = since(1, default=0, ignorable=True)
    error_code: Int16
    protocol_type: String | None = since(5, default=None, ignorable=True)
    protocol_name: String | None = since(5, default=None, ignorable=True)
    assignment: Bytes = b""


@struct
class SyncGroupAssignment:
    member_id: String
    assignment: Bytes


@message(key=14, versions=(0, 5), flexible_from=4, response=SyncGroupResponse)
class SyncGroupRequest:
    """Only the leader sends ``assignments``; the other members get their response once it has. From
    version 5 on, the type and name of the protocol must match."""

    group_id: String
    generation_id: Int32
    member_id: String
    group_instance_id: String | None = since(3, default=None)
    protocol_type: String | None = since(5, default=None, ignorable=True)
    protocol_name: String | None = since(5, default=None, ignorable=True)
    assignments: Array[SyncGroupAssignment] = ()


# --- Heartbeat --------------------------------------------------------------------------


@struct
class HeartbeatResponse:
    throttle_time_ms: Int32 = since(1, default=0, ignorable=True)
    error_code: Int16


@message(key=12, versions=(0, 4), flexible_from=4, response=HeartbeatResponse)
class HeartbeatRequest:
    group_id: String
    generation_id: Int32
    member_id: String
    group_instance_id: String | None = since(3, default=None)


# --- LeaveGroup -------------------------------------------------------------------------


@struct
class LeaveGroupResponse:
    throttle_time_ms: Int32 = since(1, default=0, ignorable=True)
    error_code: Int16


@message(key=13, versions=(0, 2), flexible_from=4, response=LeaveGroupResponse)
class LeaveGroupRequest:
    """Later versions take several members, but every broker still accepts these."""

    group_id: String
    member_id: String = UNKNOWN_MEMBER


# --- OffsetCommit -----------------------------------------------------------------------


@struct
class CommittedPartition:
    partition_index: Int32
    error_code: Int16


@struct
class CommittedTopic:
    name: String
    partitions: Array[CommittedPartition]


@struct
class OffsetCommitResponse:
    """An error that concerns the member or its group is repeated for every partition."""

    throttle_time_ms: Int32 = since(3, default=0, ignorable=True)
    topics: Array[CommittedTopic]


@struct
class CommitPartition:
    """``committed_offset`` is the next offset to read."""

    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Int32 = since(6, default=-1, ignorable=True)
    commit_timestamp: Int64 = since(1, until=1, default=-1)
    committed_metadata: String | None = ""


@struct
class CommitTopic:
    name: String
    partitions: Array[CommitPartition]


@message(key=8, versions=(0, 9), flexible_from=8, response=OffsetCommitResponse)
class OffsetCommitRequest:
    """Version 0 writes to ZooKeeper, all others to the coordinator; version 10 only has topic ids
    and is not declared. Without a generation and a member id, it is accepted only if the group has
    no members."""

    group_id: String
    generation_id_or_member_epoch: Int32 = since(1, default=NO_GENERATION, ignorable=True)
    member_id: String = since(1, default=UNKNOWN_MEMBER, ignorable=True)
    group_instance_id: String | None = since(7, default=None)
    retention_time_ms: Int64 = since(2, until=4, default=-1, ignorable=True)
    topics: Array[CommitTopic]


# --- DescribeGroups ---------------------------------------------------------------------


@struct
class DescribedMember:
    """Metadata and assignment are empty unless the group is stable."""

    member_id: String
    group_instance_id: String | None = since(4, default=None, ignorable=True)
    client_id: String
    client_host: String
    member_metadata: Bytes
    member_assignment: Bytes


@struct
class DescribedGroup:
    """``group_state`` is one of Empty, PreparingRebalance, CompletingRebalance (AwaitingSync
    before 1.0), Stable, Dead. ``protocol_data`` is the name of the assignor."""

    error_code: Int16
    error_message: String | None = since(6, default=None, ignorable=True)
    group_id: String
    group_state: String
    protocol_type: String
    protocol_data: String
    members: Array[DescribedMember]
    authorized_operations: Int32 = since(3, default=NOT_ASKED, ignorable=True)


@struct
class DescribeGroupsResponse:
    """An unknown group, or one of the newer kind, is Dead; from version 6 on, it also has error
    69."""

    throttle_time_ms: Int32 = since(1, default=0, ignorable=True)
    groups: Array[DescribedGroup]


@message(key=15, versions=(0, 6), flexible_from=5, response=DescribeGroupsResponse)
class DescribeGroupsRequest:
    groups: Array[String]
    include_authorized_operations: Bool = since(3, default=False, ignorable=True)


# --- ConsumerGroupDescribe --------------------------------------------------------------


@struct
class HeldTopic:
    topic_id: Uuid
    topic_name: String
    partitions: Array[Int32]


@struct
class HeldTopics:
    topic_partitions: Array[HeldTopic]


@struct
class ConsumerMember:
    """``target_assignment`` takes effect once other members have given up those partitions.
    ``member_type`` -1: unknown."""

    member_id: String
    instance_id: String | None = None
    rack_id: String | None = None
    member_epoch: Int32
    client_id: String
    client_host: String
    subscribed_topic_names: Array[String]
    subscribed_topic_regex: String | None = None
    assignment: HeldTopics
    target_assignment: HeldTopics
    member_type: Int8 = since(1, default=-1, ignorable=True)


@struct
class ConsumerGroup:
    """``group_state`` is one of Empty, Assigning, Reconciling, Stable, Dead."""

    error_code: Int16
    error_message: String | None = None
    group_id: String
    group_state: String
    group_epoch: Int32
    assignment_epoch: Int32
    assignor_name: String
    members: Array[ConsumerMember]
    authorized_operations: Int32 = NOT_ASKED


@struct
class ConsumerGroupDescribeResponse:
    """Error 69: the group is not of the newer kind."""

    throttle_time_ms: Int32
    groups: Array[ConsumerGroup]


@message(key=69, versions=(0, 1), flexible_from=0, response=ConsumerGroupDescribeResponse)
class ConsumerGroupDescribeRequest:
    """Asks about groups of the newer kind, in which the coordinator assigns partitions;
    DescribeGroups does not show them."""

    group_ids: Array[String]
    include_authorized_operations: Bool = False
