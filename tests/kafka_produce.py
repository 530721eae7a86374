"""Produce of Kafka, for tests that write entries as bytes: the library sends none.

Brokers of version 4 list Produce from version 0 on, for the sake of an old client, but close the
connection on versions 0 to 2, so their lower bound cannot be trusted.
"""

from __future__ import annotations

from rangeland.wire.declarations import (
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
    """There is no response to a request with ``acks`` 0."""

    responses: Array[ProducedTopic]
    throttle_time_ms: Int32 = 0


@struct
class ProducePartition:
    """``records`` is one record batch."""

    index: Int32
    records: Records | None


@struct
class ProduceTopic:
    name: String
    partition_data: Array[ProducePartition]


@message(key=0, versions=(3, 9), flexible_from=9, response=ProduceResponse)
class ProduceRequest:
    """``acks`` -1: all in-sync replicas; 1: the leader."""

    transactional_id: String | None = None
    acks: Int16
    timeout_ms: Int32
    topic_data: Array[ProduceTopic]
