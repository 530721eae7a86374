"""OffsetForLeaderEpoch: where the records of a leader epoch end in a log. Versions 0 and 1 are for
brokers 0.11 to 3, where they require the permissions of a broker.
"""

from __future__ import annotations

from rangeland.wire.declarations import *

CONSUMER = -1
"""The replica id of a client."""


@struct
class EpochEnd:
    """``leader_epoch``: the newest epoch in the log that is not above the requested one.
    ``end_offset``: the offset after its last record. -1: unknown."""

    error_code: Int16
    partition: Int32
    leader_epoch: Int32 = since(1, default=-1, ignorable=True)
    end_offset: Int64 = -1


@struct
class EpochEndTopic:
    topic: String
    partitions: Array[EpochEnd]


@struct
class OffsetForLeaderEpochResponse:
    throttle_time_ms: Int32 = since(2, default=0, ignorable=True)
    topics: Array[EpochEndTopic]


@struct
class EpochPartition:
    """``current_leader_epoch`` -1: not checked."""

    partition: Int32
    current_leader_epoch: Int32 = since(2, default=-1, ignorable=True)
    leader_epoch: Int32


@struct
class EpochTopic:
    topic: String
    partitions: Array[EpochPartition]


@message(key=23, versions=(0, 4), flexible_from=4, response=OffsetForLeaderEpochResponse)
class OffsetForLeaderEpochRequest:
    replica_id: Int32 = since(3, default=CONSUMER, ignorable=True)
    topics: Array[EpochTopic]
