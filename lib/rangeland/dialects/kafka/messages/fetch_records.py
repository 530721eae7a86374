"""Fetch: records, a range of bytes per partition.

Versions 0 and 1 return messages of format 0, versions 2 and 3 may return format 1, version 4 and
later record batches. Version 10 is the first that may return zstd. From version 13 on, topics have
ids instead of names, so that a topic that was created again is not mistaken for the old one.
"""

from __future__ import annotations

from rangeland.wire.declarations import *

NO_SESSION_EPOCH = -1
"""The epoch for a full fetch that neither belongs to a fetch session nor opens one."""


@struct
class EpochEndOffset:
    epoch: Int32 = -1
    end_offset: Int64 = -1


@struct
class LeaderIdAndEpoch:
    """-1: unknown."""

    leader_id: Int32 = -1
    leader_epoch: Int32 = -1


@struct
class SnapshotId:
    end_offset: Int64 = -1
    epoch: Int32 = -1


@struct
class AbortedTransaction:
    """Records of ``producer_id`` from ``first_offset`` to its next abort marker are aborted."""

    producer_id: Int64
    first_offset: Int64


@struct
class FetchedPartitionData:
    """One partition in a response. With most errors, its offsets are -1: unknown."""

    partition_index: Int32
    error_code: Int16
    high_watermark: Int64
    last_stable_offset: Int64 = since(4, default=-1, ignorable=True)
    log_start_offset: Int64 = since(5, default=-1, ignorable=True)
    aborted_transactions: Array[AbortedTransaction] | None = since(4, default=None, ignorable=True)
    """None with read_uncommitted."""
    preferred_read_replica: Int32 = since(11, default=-1)
    """-1: no other replica is preferred."""
    records: Records | None = None
    """Batches as in the log; the last may be incomplete."""
    diverging_epoch: EpochEndOffset | None = tagged_field(0, since=12, default=None)
    """Only in responses to requests with ``last_fetched_epoch``: our log and the broker's differ
    from some point before its end offset."""
    current_leader: LeaderIdAndEpoch | None = tagged_field(1, since=12, default=None)
    """Accompanies errors 6 and 74."""
    snapshot_id: SnapshotId | None = tagged_field(2, since=12, default=None)


@struct
class FetchedTopic:
    topic: String = since(0, until=12, default="", ignorable=True)
    topic_id: Uuid = since(13, default=None, ignorable=True)
    partitions: Array[FetchedPartitionData]


@struct
class NodeEndpoint:
    node_id: Int32
    host: String
    port: Int32
    rack: String | None = None


@struct
class FetchResponse:
    """``error_code`` is for the whole request (session errors, unknown ids); each partition has its
    own. ``node_endpoints``: the addresses of the leaders named with errors 6 and 74."""

    throttle_time_ms: Int32 = since(1, default=0, ignorable=True)
    error_code: Int16 = since(7, default=0, ignorable=True)
    session_id: Int32 = since(7, default=0)
    responses: Array[FetchedTopic]
    node_endpoints: Array[NodeEndpoint] = tagged_field(0, since=16, default=(), ignorable=True)


@struct
class FetchPartition:
    """Epochs -1: not checked. ``log_start_offset`` is for followers. From version 3 on, the first
    batch may exceed ``partition_max_bytes``, so that a reader always makes progress."""

    partition: Int32
    current_leader_epoch: Int32 = since(9, default=-1, ignorable=True)
    fetch_offset: Int64
    last_fetched_epoch: Int32 = since(12, default=-1)
    log_start_offset: Int64 = since(5, default=-1, ignorable=True)
    partition_max_bytes: Int32
    replica_directory_id: Uuid = tagged_field(0, since=17, default=None, ignorable=True)
    high_watermark: Int64 = tagged_field(1, since=18, default=2**63 - 1, ignorable=True)


@struct
class FetchTopic:
    topic: String = since(0, until=12, default="", ignorable=True)
    topic_id: Uuid = since(13, default=None, ignorable=True)
    partitions: Array[FetchPartition]


@struct
class ForgottenTopic:
    topic: String = since(7, until=12, default="", ignorable=True)
    topic_id: Uuid = since(13, default=None, ignorable=True)
    partitions: Array[Int32]


@struct
class ReplicaState:
    replica_id: Int32 = -1
    replica_epoch: Int64 = -1


@message(key=1, versions=(0, 18), flexible_from=12, response=FetchResponse)
class FetchRequest:
    """The broker waits until it has ``min_bytes``, but at most ``max_wait_ms``. It fills partitions
    in the order of the request, up to ``max_bytes``. ``replica_id`` -1: a client. Isolation 1
    cannot be sent to brokers without transactions."""

    cluster_id: String | None = tagged_field(0, since=12, default=None, ignorable=True)
    replica_id: Int32 = since(0, until=14, default=-1)
    replica_state: ReplicaState | None = tagged_field(1, since=15, default=None)
    max_wait_ms: Int32
    min_bytes: Int32
    max_bytes: Int32 = since(3, default=2**31 - 1, ignorable=True)
    isolation_level: Int8 = since(4, default=0)
    session_id: Int32 = since(7, default=0, ignorable=True)
    session_epoch: Int32 = since(7, default=NO_SESSION_EPOCH, ignorable=True)
    topics: Array[FetchTopic]
    forgotten_topics_data: Array[ForgottenTopic] = since(7, default=())
    rack_id: String = since(11, default="", ignorable=True)
