"""Sending records: for the testing room alone. Rangeland reads.

Upstream: ProduceRequest.json, ProduceResponse.json. Brokers of the 4 line list Produce from
version 0, for the sake of an old client, and close the socket on versions 0 to 2: the lower
bound here is ours, and theirs is not to be trusted.
"""

from __future__ import annotations

from rangeland.wire.encoding import (
    Array,
    Int16,
    Int32,
    Int64,
    Records,
    String,
    message,
    since,
    struct,
)


@struct
class RecordError:
    batch_index: Int32
    batch_index_error_message: String | None = None


@struct
class ProducedPartition:
    """``log_append_time_ms`` -1: the topic keeps the producer's times."""

    index: Int32
    error_code: Int16
    base_offset: Int64
    log_append_time_ms: Int64 = -1
    log_start_offset: Int64 = since(5, default=-1, ignorable=True)
    record_errors: Array[RecordError] = since(8, default=(), ignorable=True)
    error_message: String | None = since(8, default=None, ignorable=True)


@struct
class ProducedTopic:
    name: String
    partition_responses: Array[ProducedPartition]


@struct
class ProduceResponse:
    """Source: ProduceResponse.json. There is none for a request with ``acks`` 0."""

    responses: Array[ProducedTopic]
    throttle_time_ms: Int32 = 0


@struct
class ProducePartition:
    """``records``: one record batch."""

    index: Int32
    records: Records | None


@struct
class ProduceTopic:
    name: String
    partition_data: Array[ProducePartition]


@message(key=0, versions=(3, 9), flexible_from=9, answer=ProduceResponse)
class ProduceRequest:
    """Source: ProduceRequest.json. ``acks`` -1: all replicas in sync, 1: the leader."""

    transactional_id: String | None = None
    acks: Int16
    timeout_ms: Int32
    topic_data: Array[ProduceTopic]
