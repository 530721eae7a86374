"""Reads whole topics with confluent-kafka: the judge of what a log holds.

Tests compare what Rangeland landed with what somebody else's client reads. Slow and
simple; for small topics only.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rangeland.errors import Unreachable
from rangeland.testing.clients import TIMEOUT_S, admin, consumer, library, our_errors


@dataclass(frozen=True, slots=True)
class Consumed:
    """One record as the client gave it. ``headers`` None means that it had none."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: tuple[tuple[str, bytes | None], ...] | None


def offsets(bootstrap: str | Sequence[str], topic: str) -> dict[int, tuple[int, int]]:
    """Partition -> (log start, high watermark). A leader that is too new to know its high
    watermark is asked again; one that is somewhat older may still name a lower one than
    was acknowledged, for the part of a second in which its followers catch up."""
    reader = consumer(bootstrap, {"group.id": "rangeland-testing"})
    try:
        numbers = _partitions(bootstrap, topic)
        return {number: _watermarks(reader, topic, number) for number in numbers}
    finally:
        reader.close()


def _watermarks(reader: Any, topic: str, partition: int) -> tuple[int, int]:
    place = library().TopicPartition(topic, partition)
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        try:
            with our_errors(f"The offsets of {topic}/{partition} were not read"):
                start, end = reader.get_watermark_offsets(place, timeout=TIMEOUT_S)
                return start, end
        except Unreachable:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def consume(
    bootstrap: str | Sequence[str], topic: str, *, isolation: str = "read_committed"
) -> list[Consumed]:
    """All records from the log start to the end as it is now, by partition and offset.

    Under ``read_committed`` the end is the last stable offset."""
    settings = {
        "group.id": "rangeland-testing",
        "isolation.level": isolation,
        "enable.auto.commit": False,
        "auto.offset.reset": "error",
        "enable.partition.eof": True,
    }
    library_ = library()
    waiting = {number for number, (start, end) in offsets(bootstrap, topic).items() if end > start}
    place, eof = library_.TopicPartition, library_.KafkaError._PARTITION_EOF
    found: list[Consumed] = []
    reader = consumer(bootstrap, settings)
    deadline = time.monotonic() + TIMEOUT_S
    try:
        with our_errors(f"Topic {topic} was not read"):
            reader.assign([place(topic, number, library_.OFFSET_BEGINNING) for number in waiting])
            while waiting:
                message = reader.poll(0.5)
                if time.monotonic() > deadline:
                    why = f"partitions {sorted(waiting)} did not end in {TIMEOUT_S} s"
                    raise Unreachable(f"Topic {topic} was not read", why=why)
                if message is None:
                    continue
                if message.error() is None:
                    found.append(_consumed(message))
                elif message.error().code() == eof:
                    waiting.discard(message.partition())
                else:
                    raise library_.KafkaException(message.error())
    finally:
        reader.close()
    return sorted(found, key=lambda record: (record.partition, record.offset))


def _partitions(bootstrap: str | Sequence[str], topic: str) -> list[int]:
    with our_errors(f"The partitions of {topic} were not read"):
        found = admin(bootstrap).list_topics(topic, timeout=TIMEOUT_S).topics[topic]
        if found.error is not None:
            raise library().KafkaException(found.error)
    return sorted(found.partitions)


def _consumed(message: Any) -> Consumed:
    headers = message.headers()
    return Consumed(
        message.topic(),
        message.partition(),
        message.offset(),
        message.key(),
        message.value(),
        message.timestamp()[1],
        tuple(headers) if headers is not None else None,
    )
