"""Which open transaction holds back a partition's last stable offset. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from rangeland.dialects.error_meaning import ErrorMeaning
from rangeland.dialects.kafka import messages as m
from rangeland.dialects.kafka.error_codes import judge
from rangeland.dialects.protocol_session import Question
from rangeland.model import OpenTransaction, Partition


def ask_transactions(partitions: Collection[Partition]) -> list[Question]:
    """One request for all partitions, which must all be led by the same broker."""
    topics: dict[str, list[int]] = {}
    for partition in sorted(partitions):
        topics.setdefault(partition.topic, []).append(partition.number)
    wanted = tuple(
        m.DescribeProducersTopic(name=topic, partition_indexes=tuple(numbers))
        for topic, numbers in topics.items()
    )
    return [Question(m.DescribeProducersRequest(topics=wanted))]


def read_transactions(
    answers: Sequence[m.DescribeProducersResponse],
) -> dict[Partition, OpenTransaction]:
    """The open transaction that began first, by partition."""
    found: dict[Partition, OpenTransaction] = {}
    for topic in (topic for answer in answers for topic in answer.topics):
        for part in topic.partitions:
            if judge(part.error_code).verdict is not ErrorMeaning.OK:
                continue
            begun = [x for x in part.active_producers if x.current_txn_start_offset >= 0]
            if begun:
                first = min(begun, key=lambda x: x.current_txn_start_offset)
                found[Partition(topic.name, part.partition_index)] = _transaction(first)
    return found


def _transaction(producer: m.ActiveProducer) -> OpenTransaction:
    return OpenTransaction(
        first_offset=producer.current_txn_start_offset,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        last_write_ms=producer.last_timestamp if producer.last_timestamp >= 0 else None,
    )
