"""Reads whole topics with confluent-kafka, as the reference for the contents of a log.

Tests compare the rows that Rangeland has landed with the records that this client reads. Slow and
simple; for small topics only.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rangeland.errors import Unreachable
from rangeland.testing.client_library import (
    TIMEOUT_S,
    consumer,
    library,
    our_errors,
    reaching_back,
)


@dataclass(frozen=True, slots=True)
class Consumed:
    """One record as the client returned it. For a record without headers, ``headers`` is None; for
    one without a timestamp, ``timestamp_ms`` is -1."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: tuple[tuple[str, bytes | None], ...] | None


def offsets(
    bootstrap: str | Sequence[str], topic: str, *, version: str = ""
) -> dict[int, tuple[int, int]]:
    """Partition -> (log start, high watermark). A leader that has just been elected and does not
    know its high watermark yet is asked again. For a fraction of a second, until its followers have
    caught up, a new leader may still report a lower one than was acknowledged."""
    reader = consumer(bootstrap, {"group.id": "rangeland-testing", **reaching_back(version)})
    try:
        numbers = _partitions(reader, topic)
        return {number: _watermarks(reader, topic, number) for number in numbers}
    finally:
        reader.close()


def _watermarks(reader: Any, topic: str, partition: int) -> tuple[int, int]:
    topic_partition = library().TopicPartition(topic, partition)
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        try:
            with our_errors(f"The offsets of {topic}/{partition} were not read"):
                start, end = reader.get_watermark_offsets(topic_partition, timeout=TIMEOUT_S)
                return start, end
        except Unreachable:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def consume(
    bootstrap: str | Sequence[str],
    topic: str,
    *,
    isolation: str = "read_committed",
    version: str = "",
) -> list[Consumed]:
    """All records from the log start to the current end, by partition and offset. ``version`` is
    the brokers' version, if they are too old to report it.

    Under ``read_committed``, the end is the last stable offset.
    """
    settings = {
        "group.id": "rangeland-testing",
        "isolation.level": isolation,
        "enable.auto.commit": False,
        "auto.offset.reset": "error",
        "enable.partition.eof": True,
        **reaching_back(version),
    }
    library_ = library()
    ends = offsets(bootstrap, topic, version=version)
    unfinished = {number for number, (start, end) in ends.items() if end > start}
    TopicPartition, eof = library_.TopicPartition, library_.KafkaError._PARTITION_EOF
    records: list[Consumed] = []
    reader = consumer(bootstrap, settings)
    deadline = time.monotonic() + TIMEOUT_S
    try:
        with our_errors(f"Topic {topic} was not read"):
            reader.assign(
                [TopicPartition(topic, number, library_.OFFSET_BEGINNING) for number in unfinished]
            )
            while unfinished:
                message = reader.poll(0.5)
                if time.monotonic() > deadline:
                    reason = f"partitions {sorted(unfinished)} did not end in {TIMEOUT_S} s"
                    remedy = "check that the brokers are up"
                    raise Unreachable(f"Topic {topic} was not read", why=reason, do=remedy)
                if message is None:
                    continue
                if message.error() is None:
                    records.append(_record_of(message))
                elif message.error().code() == eof:
                    unfinished.discard(message.partition())
                else:
                    raise library_.KafkaException(message.error())
    finally:
        reader.close()
    return sorted(records, key=lambda record: (record.partition, record.offset))


def _partitions(reader: Any, topic: str) -> list[int]:
    with our_errors(f"The partitions of {topic} were not read"):
        metadata = reader.list_topics(topic, timeout=TIMEOUT_S).topics[topic]
        if metadata.error is not None:
            raise library().KafkaException(metadata.error)
    return sorted(metadata.partitions)


def _record_of(message: Any) -> Consumed:
    headers = message.headers()
    kind, timestamp_ms = message.timestamp()
    has_time = kind != library().TIMESTAMP_NOT_AVAILABLE
    return Consumed(
        topic=message.topic(),
        partition=message.partition(),
        offset=message.offset(),
        key=message.key(),
        value=message.value(),
        timestamp_ms=timestamp_ms if has_time else -1,
        headers=tuple(headers) if headers is not None else None,
    )
