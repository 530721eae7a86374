"""The cluster: versions, brokers, leaders, coordinators, sizes on disk."""

from __future__ import annotations

from rangeland.wire.declarations import *

NOT_ASKED = -(2**31)
"""The value of a bit field of authorized operations that was not requested."""


# --- ApiVersions ------------------------------------------------------------------------


@struct
class ApiVersion:
    """The versions of one kind of request, inclusive on both sides."""

    api_key: Int16
    min_version: Int16
    max_version: Int16


@struct
class SupportedFeature:
    name: String
    min_version: Int16
    max_version: Int16


@struct
class FinalizedFeature:
    name: String
    max_version_level: Int16
    min_version_level: Int16


@struct
class ApiVersionsResponse:
    """A broker sends error 35 in version 0, whatever the version of the request.
    ``finalized_features_epoch`` -1: unknown."""

    error_code: Int16
    api_keys: Array[ApiVersion]
    throttle_time_ms: Int32 = since(1, default=0, ignorable=True)
    supported_features: Array[SupportedFeature] = tagged_field(
        0, since=3, default=(), ignorable=True
    )
    finalized_features_epoch: Int64 = tagged_field(1, since=3, default=-1, ignorable=True)
    finalized_features: Array[FinalizedFeature] = tagged_field(
        2, since=3, default=(), ignorable=True
    )
    zk_migration_ready: Bool = tagged_field(3, since=3, default=False, ignorable=True)


@message(key=18, versions=(0, 4), flexible_from=3, response=ApiVersionsResponse)
class ApiVersionsRequest:
    """Brokers refuse a software name that is empty or contains anything but letters, digits,
    hyphens and dots."""

    client_software_name: String = since(3, default="", ignorable=True)
    client_software_version: String = since(3, default="", ignorable=True)


# --- Metadata ---------------------------------------------------------------------------


@struct
class MetadataBroker:
    node_id: Int32
    host: String
    port: Int32
    rack: String | None = since(1, default=None, ignorable=True)


@struct
class MetadataPartition:
    """``leader_id`` -1: there is no leader. Error 9 with a leader only means that some replica is
    down: the leader can be used."""

    error_code: Int16
    partition_index: Int32
    leader_id: Int32
    leader_epoch: Int32 = since(7, default=-1, ignorable=True)
    replica_nodes: Array[Int32]
    isr_nodes: Array[Int32]
    offline_replicas: Array[Int32] = since(5, default=(), ignorable=True)


@struct
class MetadataTopic:
    """``name`` is None if the requested id is unknown, ``topic_id`` if the name is."""

    error_code: Int16
    name: String | None = since(0, default="", nullable_from=12)
    topic_id: Uuid = since(10, default=None, ignorable=True)
    is_internal: Bool = since(1, default=False, ignorable=True)
    partitions: Array[MetadataPartition]
    topic_authorized_operations: Int32 = since(8, default=NOT_ASKED, ignorable=True)


@struct
class MetadataResponse:
    """The order of brokers, topics and partitions has no meaning."""

    throttle_time_ms: Int32 = since(3, default=0, ignorable=True)
    brokers: Array[MetadataBroker]
    cluster_id: String | None = since(2, default=None, ignorable=True)
    controller_id: Int32 = since(1, default=-1, ignorable=True)
    topics: Array[MetadataTopic]
    cluster_authorized_operations: Int32 = since(8, until=10, default=NOT_ASKED, ignorable=True)
    error_code: Int16 = since(13, default=0, ignorable=True)


@struct
class MetadataRequestTopic:
    """A requested topic: in every version it can be named by ``name``, but by ``topic_id`` alone
    only from version 12 on."""

    topic_id: Uuid = since(10, default=None)
    name: String | None = since(0, default=None, nullable_from=10)


@message(key=3, versions=(0, 13), flexible_from=9, response=MetadataResponse)
class MetadataRequest:
    """``topics`` None: all topics; version 0 uses an empty array for this, which later means none.

    Before version 4, the broker's configuration decides whether the request creates a topic; from
    then on ``allow_auto_topic_creation`` does, and a reader never wants that.
    """

    topics: Array[MetadataRequestTopic] | None = since(0, default=None, nullable_from=1)
    allow_auto_topic_creation: Bool = since(4, default=False)
    include_cluster_authorized_operations: Bool = since(8, until=10, default=False)
    include_topic_authorized_operations: Bool = since(8, default=False)


# --- FindCoordinator --------------------------------------------------------------------


@struct
class FindCoordinatorResponse:
    throttle_time_ms: Int32 = since(1, default=0, ignorable=True)
    error_code: Int16 = 0
    error_message: String | None = since(1, default=None, ignorable=True)
    node_id: Int32 = 0
    host: String = ""
    port: Int32 = 0


@message(key=10, versions=(0, 3), flexible_from=3, response=FindCoordinatorResponse)
class FindCoordinatorRequest:
    """``key_type`` 0 group, 1 transaction, 2 share group. Later versions take several keys, but
    every broker still accepts these."""

    key: String = ""
    key_type: Int8 = since(1, default=0)


# --- DescribeLogDirs --------------------------------------------------------------------


@struct
class LogDirPartition:
    """``partition_size``: the total size of all segments in bytes. ``offset_lag``: how many offsets
    the log is behind. A future log is one that is being moved to another directory."""

    partition_index: Int32
    partition_size: Int64
    offset_lag: Int64
    is_future_key: Bool


@struct
class LogDirTopic:
    name: String
    partitions: Array[LogDirPartition]


@struct
class LogDir:
    """``total_bytes`` and ``usable_bytes`` of the volume; -1: unknown."""

    error_code: Int16
    log_dir: String
    topics: Array[LogDirTopic]
    total_bytes: Int64 = since(4, default=-1, ignorable=True)
    usable_bytes: Int64 = since(4, default=-1, ignorable=True)


@struct
class DescribeLogDirsResponse:
    """Clients that may not describe the cluster get an error code from version 3 on; before that
    they only get an empty list."""

    throttle_time_ms: Int32
    error_code: Int16 = since(3, default=0, ignorable=True)
    results: Array[LogDir]


@struct
class DescribableLogDirTopic:
    topic: String
    partitions: Array[Int32]


@message(key=35, versions=(0, 4), flexible_from=2, response=DescribeLogDirsResponse)
class DescribeLogDirsRequest:
    """``topics`` None: all topics on this broker."""

    topics: Array[DescribableLogDirTopic] | None = None
