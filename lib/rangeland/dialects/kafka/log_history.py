"""A log's leader epochs and open transactions.

Pure. A partition's epoch counts its leaders: it grows with each election, so if a new leader never
received some records, their epoch ends too early. Batches carry the epoch in their header; metadata
has it from 2.1 on.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from rangeland.dialects.error_meaning import ErrorMeaning
from rangeland.dialects.fetch_values import FetchedRecords
from rangeland.dialects.kafka import messages as m
from rangeland.dialects.kafka.error_codes import error_code_of
from rangeland.dialects.kafka.requests import MAGIC_AT, or_unknown
from rangeland.dialects.protocol_session import BrokerRequest
from rangeland.grouping import group_by
from rangeland.model import Leader, OpenTransaction, Partition

EPOCH_AT = 12


def epochs_requests(
    leaders: Mapping[Partition, Leader], epochs: Mapping[Partition, int]
) -> list[BrokerRequest]:
    """One request for all partitions, which must all have the same leader."""
    topics = tuple(
        m.EpochTopic(
            topic=topic,
            partitions=tuple(
                m.EpochPartition(
                    partition=partition.number,
                    current_leader_epoch=or_unknown(leaders[partition].epoch),
                    leader_epoch=epochs[partition],
                )
                for partition in partitions
            ),
        )
        for topic, partitions in group_by(epochs, lambda p: p.topic).items()
    )
    return [BrokerRequest(m.OffsetForLeaderEpochRequest(topics=topics))]


def read_epochs(
    responses: Sequence[m.OffsetForLeaderEpochResponse],
) -> dict[Partition, int | None]:
    """The end offsets of the epochs; None if the broker knows none, or if this client may not ask:
    before 2.1, this requires the ``ClusterAction`` permission."""
    ends: dict[Partition, int | None] = {}
    for topic in (topic for response in responses for topic in response.topics):
        for partition in topic.partitions:
            meaning = error_code_of(partition.error_code).meaning
            if meaning is ErrorMeaning.OK or meaning.is_final:
                is_known = meaning is ErrorMeaning.OK and partition.end_offset >= 0
                ends[Partition(topic.topic, partition.partition)] = (
                    partition.end_offset if is_known else None
                )
    return ends


def epoch_of(fetched: FetchedRecords) -> int | None:
    """The leader epoch of the first batch; None for formats older than batches."""
    records = fetched.data
    if len(records) <= MAGIC_AT or records[MAGIC_AT] < 2:
        return None
    epoch = int.from_bytes(records[EPOCH_AT : EPOCH_AT + 4], "big", signed=True)
    return epoch if epoch >= 0 else None


def transactions_requests(partitions: Collection[Partition]) -> list[BrokerRequest]:
    """One request for all partitions, which must all have the same leader."""
    topics = tuple(
        m.DescribeProducersTopic(name=topic, partition_indexes=tuple(p.number for p in group))
        for topic, group in group_by(sorted(partitions), lambda p: p.topic).items()
    )
    return [BrokerRequest(m.DescribeProducersRequest(topics=topics))]


def read_transactions(
    responses: Sequence[m.DescribeProducersResponse],
) -> dict[Partition, OpenTransaction]:
    """The earliest open transaction, by partition."""
    transactions: dict[Partition, OpenTransaction] = {}
    for topic in (topic for response in responses for topic in response.topics):
        for partition in topic.partitions:
            if error_code_of(partition.error_code).meaning is not ErrorMeaning.OK:
                continue
            producers = [p for p in partition.active_producers if p.current_txn_start_offset >= 0]
            if producers:
                first = min(producers, key=lambda p: p.current_txn_start_offset)
                transactions[Partition(topic.name, partition.partition_index)] = _transaction(first)
    return transactions


def _transaction(producer: m.ActiveProducer) -> OpenTransaction:
    return OpenTransaction(
        first_offset=producer.current_txn_start_offset,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        last_write_ms=producer.last_timestamp if producer.last_timestamp >= 0 else None,
    )
