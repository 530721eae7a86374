"""What tests of typed landings share: JSON in a topic, and the same values beside a table."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rangeland.job import Job
from rangeland.testing.kafka import KafkaCluster
from rangeland.testing.producer import Record, create_topic, produce
from tests.spark.landings import job_of, stored_rows

DDL = (
    "id BIGINT NOT NULL, name STRING, price DECIMAL(10,2), at TIMESTAMP, tags ARRAY<STRING>, "
    "shop STRUCT<city: STRING, open: BOOLEAN>, sizes MAP<STRING, INT>"
)
OLD = "id BIGINT NOT NULL, name STRING"
BAD = [b"{", b"[]", b'{"name": "without an id"}', b"\xff", b'{"id": "seven"}']


def order(number: int) -> dict[str, Any]:
    return {
        "id": number,
        "name": f"näme {number}" if number % 3 else None,
        "price": f"{number}.25",
        "at": f"2026-01-02T03:04:{number % 60:02}.123456Z",
        "tags": ["a", str(number)] if number % 2 else [],
        "shop": {"city": "Zürich", "open": number % 2 == 0} if number % 4 else None,
        "sizes": {"s": number, "m": 0},
    }


def produced(kafka: KafkaCluster, topic: str, values: Sequence[bytes | None]) -> None:
    """More records at the end of partition 0."""
    produce(kafka.bootstrap, topic, [Record(value, b"k") for value in values], partition=0)


def orders_topic(kafka: KafkaCluster, topic: str, count: int) -> None:
    """A topic with so many orders."""
    create_topic(kafka.bootstrap, topic, partitions=1)
    produced(kafka, topic, orders(range(count)))


def orders(numbers: Sequence[int]) -> list[bytes | None]:
    return [json.dumps(order(number)).encode() for number in numbers]


def typed(
    kafka: KafkaCluster, table: str | Path, topic: str, schema: str = DDL, **given: Any
) -> Job:
    """A job for JSON with this schema. Sections are merged with what they are given."""
    decode = {"value": {"format": "json", "schema": schema}, **given.pop("decode", {})}
    return job_of(kafka.bootstrap, table, topic, decode=decode, **given)


def rows_in(table: str | Path, column: str = "offset") -> list[dict[str, Any]]:
    """As delta-rs reads them, in order of offsets."""
    return sorted(stored_rows(table), key=lambda row: row[column])
