"""Typed landings whose schemas are in a real registry, read back by an independent Delta reader."""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from typing import Any

import fastavro
import pytest

import rangeland
from rangeland.job import Job
from rangeland.model import Counts
from rangeland.testing.apicurio import ApicurioRegistry
from rangeland.testing.kafka import KafkaCluster
from rangeland.testing.producing import create_topic
from tests.spark.landings import job_of
from tests.spark.typed_landings import produced, rows_in

pytestmark = [pytest.mark.spark, pytest.mark.brokers]


@pytest.fixture(scope="module")
def registry() -> Iterator[ApicurioRegistry]:
    with ApicurioRegistry() as running:
        yield running


def record(name: str, /, **fields: Any) -> dict[str, Any]:
    """An Avro schema. A field with a null in its type has it as its default."""
    listed = [
        {"name": field, "type": kind, **({"default": None} if isinstance(kind, list) else {})}
        for field, kind in fields.items()
    ]
    return {"type": "record", "name": name, "namespace": "shop", "fields": listed}


def framed(schema_id: int, schema: Any, value: Any) -> bytes:
    written = io.BytesIO()
    fastavro.schemaless_writer(written, schema, value)
    return b"\0" + struct.pack(">i", schema_id) + written.getvalue()


def registered(
    kafka: KafkaCluster, registry: ApicurioRegistry, table: str, topic: str, **given: Any
) -> Job:
    """A job for Avro values, unless ``decode`` says otherwise."""
    decode = {"value": {"format": "avro"}, "registry": {"url": registry.url}}
    decode |= given.pop("decode", {})
    return job_of(kafka.bootstrap, table, topic, decode=decode, **given)


def test_a_topic_that_changes_its_schema_in_mid_range(
    kafka: KafkaCluster, registry: ApicurioRegistry, spark: Any, table: str, topic: str
) -> None:
    old_schema = record("Order", id="long", name=["null", "string"])
    new_schema = record(
        "Order",
        id="long",
        name=["null", "string"],
        tags=["null", {"type": "array", "items": "string"}],
    )
    old = registry.register(f"{topic}-value", old_schema)
    new = registry.register(f"{topic}-value", new_schema)
    early = [{"id": n, "name": f"n{n}" if n % 2 else None} for n in range(30)]
    late = [{"id": n, "name": None, "tags": ["a", str(n)]} for n in range(30, 60)]
    create_topic(kafka.bootstrap, topic, partitions=1)
    produced(kafka, topic, [framed(old, old_schema, one) for one in early])
    produced(kafka, topic, [framed(new, new_schema, one) for one in late])
    job = registered(kafka, registry, table, topic)
    result = rangeland.land(job, spark)
    assert result.counts == Counts(landed=60)
    wanted = [*({**one, "tags": None} for one in early), *late]
    assert [row["value"] for row in rows_in(table)] == wanted
