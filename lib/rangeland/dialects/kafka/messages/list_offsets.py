"""ListOffsets and OffsetFetch: where a log begins and ends, and the offsets of a group.

The special values in these messages do not appear in the values that the dialect returns.
"""

from __future__ import annotations

from rangeland.wire.declarations import *

LATEST_TIMESTAMP = -1
"""The end: the last stable offset with isolation 1, the high watermark with 0."""
EARLIEST_TIMESTAMP = -2
"""The first offset in the log."""
MAX_TIMESTAMP = -3
"""The record with the highest timestamp (version 7 and later)."""

READ_UNCOMMITTED = 0
READ_COMMITTED = 1


# --- ListOffsets ------------------------------------------------------------------------


@struct
class ListOffsetsPartitionResponse:
    """``offset`` -1: no record is that late, or there is an error. ``old_style_offsets``, in
    version 0 only: segment starts, newest first, preceded by the end of the log if that is early
    enough. Empty if all segments are later, or if there is an error."""

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
    throttle_time_ms: Int32 = since(2, default=0, ignorable=True)
    topics: Array[ListOffsetsTopicResponse]


@struct
class ListOffsetsPartition:
    """``timestamp`` is in milliseconds, or one of the special values above.
    ``current_leader_epoch`` -1: not checked."""

    partition_index: Int32
    current_leader_epoch: Int32 = since(4, default=-1, ignorable=True)
    timestamp: Int64
    max_num_offsets: Int32 = since(0, until=0, default=1)


@struct
class ListOffsetsTopic:
    name: String
    partitions: Array[ListOffsetsPartition]


@message(key=2, versions=(0, 10), flexible_from=6, response=ListOffsetsResponse)
class ListOffsetsRequest:
    """``replica_id`` -1: a client. Isolation 1 cannot be sent before version 2."""

    replica_id: Int32 = -1
    isolation_level: Int8 = since(2, default=READ_UNCOMMITTED)
    topics: Array[ListOffsetsTopic]
    timeout_ms: Int32 = since(10, default=0, ignorable=True)


# --- OffsetFetch ------------------------------------------------------------------------


@struct
class OffsetFetchPartitionResponse:
    """``committed_offset`` -1: the group has not committed an offset for this partition."""

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
class OffsetFetchResponse:
    throttle_time_ms: Int32 = since(3, default=0, ignorable=True)
    topics: Array[OffsetFetchTopicResponse] = ()
    error_code: Int16 = since(2, default=0, ignorable=True)


@struct
class OffsetFetchTopic:
    name: String
    partition_indexes: Array[Int32]


@message(key=9, versions=(0, 7), flexible_from=6, response=OffsetFetchResponse)
class OffsetFetchRequest:
    """``topics`` None, from version 2 on: everything that the group has committed. Version 0 reads
    offsets from ZooKeeper, all others from the group coordinator. With ``require_stable``, offsets
    in open transactions are an error (88); older brokers return the last stable ones. Later
    versions take several groups, but every broker still accepts these."""

    group_id: String = ""
    topics: Array[OffsetFetchTopic] | None = since(0, default=(), nullable_from=2)
    require_stable: Bool = since(7, default=False, ignorable=True)
