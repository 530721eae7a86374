"""DescribeProducers: the active producers of a partition, and their transactions. Brokers support
it from 2.8 on.
"""

from __future__ import annotations

from rangeland.wire.declarations import *

NO_TRANSACTION = -1
"""The transaction start of a producer that has no open transaction in this partition."""


@struct
class ActiveProducer:
    """``last_timestamp`` is that of the producer's last batch, in ms; -1 if unknown."""

    producer_id: Int64
    producer_epoch: Int32
    last_sequence: Int32 = -1
    last_timestamp: Int64 = -1
    coordinator_epoch: Int32
    current_txn_start_offset: Int64 = NO_TRANSACTION


@struct
class ProducersPartition:
    partition_index: Int32
    error_code: Int16
    error_message: String | None = None
    active_producers: Array[ActiveProducer]


@struct
class ProducersTopic:
    name: String
    partitions: Array[ProducersPartition]


@struct
class DescribeProducersResponse:
    throttle_time_ms: Int32
    topics: Array[ProducersTopic]


@struct
class DescribeProducersTopic:
    name: String
    partition_indexes: Array[Int32]


@message(key=61, versions=(0, 0), flexible_from=0, response=DescribeProducersResponse)
class DescribeProducersRequest:
    """Sent to the leader of each partition."""

    topics: Array[DescribeProducersTopic]
