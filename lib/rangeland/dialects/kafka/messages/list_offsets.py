"""Where a log begins and ends, and where a group stands.

Upstream: ListOffsetsRequest.json, OffsetFetchRequest.json and their responses, as of Kafka 4.1.
The sentinels of these messages stay below the dialect's answers.
"""

from __future__ import annotations

from rangeland.wire.encoding import (
    Array,
    Bool,
    Int8,
    Int16,
    Int32,
    Int64,
    String,
    message,
    since,
    struct,
)

LATEST_TIMESTAMP = -1
"""Asks for the end: the last stable offset with isolation 1, the high watermark with 0."""
EARLIEST_TIMESTAMP = -2
"""Asks for the first offset that is in the log."""
MAX_TIMESTAMP = -3
"""Asks for the record with the highest timestamp (version 7 and later)."""

READ_UNCOMMITTED = 0
READ_COMMITTED = 1


# --- ListOffsets ------------------------------------------------------------------------


@struct
class ListOffsetsPartitionResponse:
    """``offset`` -1: no record is that late, or an error. ``old_style_offsets``, version 0 only:
    segment starts, newest first, before them the end of the log if that is not too late. None
    is there if all began to be written later, or beside an error."""

    partition_index: Int32
    error_code: Int16
    old_style_offsets: Array[Int64] | None = since(0, until=0, default=None, nullable_from=1)
    timestamp: Int64 = since(1, default=-1)
    offset: Int64 = since(1, default=-1)
    leader_epoch: Int32 = since(4, default=-1, ignorable=True)


@struct
class ListOffsetsTopicResponse:
    name: String
    partitions: Array[ListOffsetsPartitionResponse]


@struct
class ListOffsetsResponse:
    """Source: ListOffsetsResponse.json."""

    throttle_time_ms: Int32 = since(2, default=0, ignorable=True)
    topics: Array[ListOffsetsTopicResponse]


@struct
class ListOffsetsPartition:
    """``timestamp`` in milliseconds, or one of the sentinels above. ``current_leader_epoch`` -1:
    do not check it."""

    partition_index: Int32
    current_leader_epoch: Int32 = since(4, default=-1, ignorable=True)
    timestamp: Int64
    max_num_offsets: Int32 = since(0, until=0, default=1)


@struct
class ListOffsetsTopic:
    name: String
    partitions: Array[ListOffsetsPartition]


@message(key=2, versions=(0, 10), flexible_from=6, answer=ListOffsetsResponse)
class ListOffsetsRequest:
    """Source: ListOffsetsRequest.json. ``replica_id`` -1: we are a client. Brokers before
    version 2 know no isolation, and asking them for 1 is refused here."""

    replica_id: Int32 = -1
    isolation_level: Int8 = since(2, default=READ_UNCOMMITTED)
    topics: Array[ListOffsetsTopic]
    timeout_ms: Int32 = since(10, default=0, ignorable=True)


# --- OffsetFetch ------------------------------------------------------------------------


@struct
class OffsetFetchPartitionResponse:
    """``committed_offset`` -1: the group has committed nothing here."""

    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Int32 = since(5, default=-1, ignorable=True)
    metadata: String | None = ""
    error_code: Int16


@struct
class OffsetFetchTopicResponse:
    name: String
    partitions: Array[OffsetFetchPartitionResponse]


@struct
class OffsetFetchGroupResponse:
    group_id: String
    topics: Array[OffsetFetchTopicResponse]
    error_code: Int16 = 0


@struct
class OffsetFetchResponse:
    """Source: OffsetFetchResponse.json. Up to version 7 the answer is one group's ``topics`` in
    the message itself, from 8 on ``groups`` has one for every group that was asked for."""

    throttle_time_ms: Int32 = since(3, default=0, ignorable=True)
    topics: Array[OffsetFetchTopicResponse] = since(0, until=7, default=())
    error_code: Int16 = since(2, until=7, default=0, ignorable=True)
    groups: Array[OffsetFetchGroupResponse] = since(8, default=())


@struct
class OffsetFetchTopic:
    name: String
    partition_indexes: Array[Int32]


@struct
class OffsetFetchGroup:
    """``member_id`` None and ``member_epoch`` -1: the asker is not a member."""

    group_id: String
    member_id: String | None = since(9, default=None, ignorable=True)
    member_epoch: Int32 = since(9, default=-1, ignorable=True)
    topics: Array[OffsetFetchTopic] | None = None


@message(key=9, versions=(0, 9), flexible_from=6, answer=OffsetFetchResponse)
class OffsetFetchRequest:
    """Source: OffsetFetchRequest.json. ``topics`` None: all that the group has committed; not
    before version 2. Version 0 reads the offsets that are in ZooKeeper, all others the group
    coordinator's. With ``require_stable`` offsets of open transactions are an error (88);
    brokers that do not know it give the last ones that are settled."""

    group_id: String = since(0, until=7, default="")
    topics: Array[OffsetFetchTopic] | None = since(0, until=7, default=(), nullable_from=2)
    groups: Array[OffsetFetchGroup] = since(8, default=())
    require_stable: Bool = since(7, default=False, ignorable=True)
