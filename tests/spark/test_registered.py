"""Typed landings whose schemas are in a real registry, read back by an independent Delta reader."""

from __future__ import annotations

import base64
import io
import json
import logging
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import fastavro
import pytest
from google.protobuf import message_factory
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool

import rangeland
from rangeland import run
from rangeland.errors import JobFileError, TableRefused, UndecodablePayload, Unreachable
from rangeland.job import Job
from rangeland.landing.execution import plan_settings
from rangeland.landing.landing_context import LandingContext
from rangeland.landing.landing_steps import LandingSteps
from rangeland.model import Counts
from rangeland.progress_events import NoProgress
from rangeland.queries import verify_and_find
from rangeland.queries.payload_sample import sample
from rangeland.results import WriterSchema
from rangeland.schema_registry.proto_compiler import compile_proto
from rangeland.schema_registry.registry_settings import LONG_AGO
from rangeland.testing.kafka import KafkaCluster
from rangeland.testing.producer import create_topic
from tests.brokers.registry_proxy import guarded
from tests.servers.apicurio import ApicurioRegistry
from tests.spark.landings import QUICK, job_of, stored_rows, table_of
from tests.spark.typed_landings import produced, rows_in

pytestmark = [pytest.mark.spark, pytest.mark.brokers]

SECRET = "hunter2-never-to-be-seen"
LIST = {"type": "array", "items": "string"}


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


def header(schema_id: int) -> bytes:
    return b"\0" + struct.pack(">i", schema_id)


def avro(schema_id: int, schema: Any, values: Sequence[Any]) -> list[bytes | None]:
    """As Confluent's serializer writes them, but by fastavro."""
    payloads: list[bytes | None] = []
    for value in values:
        written = io.BytesIO()
        fastavro.schemaless_writer(written, schema, value)
        payloads.append(header(schema_id) + written.getvalue())
    return payloads


def registered(
    kafka: KafkaCluster, url: str, table: str, topics: str | list[str], **given: Any
) -> Job:
    """A job for Avro values, unless ``decode`` says otherwise."""
    decode = {"value": {"format": "avro"}, "registry": {"url": url}, **given.pop("decode", {})}
    return job_of(kafka.bootstrap, table, topics, decode=decode, **given)


def values_in(table: str) -> list[Any]:
    return [row["value"] for row in rows_in(table)]


def is_proved(spark: Any, job: Job) -> bool:
    found = verify_and_find.verify(job, spark, NoProgress()).audit
    return not found.holes and not found.duplicates


def test_a_topic_that_changes_its_schema_in_mid_range(
    kafka: KafkaCluster,
    registry: ApicurioRegistry,
    spark: Any,
    table: str,
    topic: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The newest id may be late, and ends the first run. After an hour bad records go to
    quarantine, and one of them lands once its schema is registered; a new field becomes a column;
    a new type is refused. All with a login."""
    secret = tmp_path / "secret"  # a file, since processes of Spark may have another environment
    secret.write_text(SECRET)
    caplog.set_level(logging.DEBUG, logger="rangeland")
    subject = f"{topic}-value"
    fields: dict[str, Any] = {"id": "long", "name": ["null", "string"]}
    more = {"tags": ["null", LIST]}, {"tags": ["null", LIST], "more": ["null", "double"]}
    schemas = [record("Order", **fields, **added) for added in ({}, *more)]
    old, new = (registry.register(subject, one) for one in schemas[:2])
    bill = record("Bill", topic="string", id="long")
    foreign = registry.register(f"{topic}-bills", bill)
    later = foreign + 1  # the id of what is registered next
    early = [{"id": n, "name": f"näme {n}" if n % 2 else None} for n in range(30)]
    late = [{"id": n, "name": None, "tags": ["a", str(n)]} for n in range(30, 60)]
    last = [{"id": 60, "name": "last", "tags": None, "more": 0.5}]
    whole = [*avro(old, schemas[0], early), *avro(new, schemas[1], late), None]
    bad = [
        *(b"\1no magic byte", header(0), header(-7), header(2_000_000_000) + b"\2"),
        *(*avro(foreign, bill, [{"topic": "x", "id": 1}]), header(new) + b"\2\2\x80"),
        *avro(later, schemas[2], last),
    ]
    create_topic(kafka.bootstrap, topic, partitions=1)
    produced(kafka, topic, whole[:30])
    produced(kafka, topic, [*whole[30:], *bad])
    login = base64.b64encode(f"me:{SECRET}".encode()).decode()
    with guarded(registry.url, f"Basic {login}") as url:
        names = {"username": "me", "password": f"${{file:{secret}}}"}
        decode = {"key": {"format": "string"}, "registry": {"url": url, **names}}
        keep = {"undecodable": "quarantine"}
        job = registered(kafka, url, table, topic, decode=decode, policy=keep)
        in_short = {"timeouts": {**QUICK, "no_progress_ms": 1_000}}
        hasty = registered(kafka, url, table, topic, decode=decode, policy=keep, source=in_short)
        with pytest.raises(Unreachable, match=f"does not have schema id {later} yet"):
            rangeland.land(hasty, spark)
        monkeypatch.setattr(plan_settings, "WrittenBefore", lambda *_: LONG_AGO)
        first = rangeland.land(job, spark)
        assert first.counts == Counts(landed=61, quarantined=len(bad))
        assert first.schemas == (
            WriterSchema(old, 30, subject, 1),
            WriterSchema(new, 31, subject, 2),
            WriterSchema(foreign, 1, f"{topic}-bills", 1),
            WriterSchema(later, 1),
            WriterSchema(2_000_000_000, 1),
        )
        wanted = [*({**one, "tags": None} for one in early), *late, None]
        assert values_in(table) == wanted
        assert {row["key"] for row in rows_in(table)} == {"k"}
        quarantine = stored_rows(f"{table}/_rangeland/quarantine")
        kept = [one for row in quarantine for one in row["undecodable"]]
        assert [one["schema_id"] for one in sorted(kept, key=lambda one: one["offset"])] == [
            *(None, None, None, 2_000_000_000, foreign, new, later)
        ]
        reasons = " ".join(one["reason"] for one in kept)
        assert f"schema {foreign} is registered as {topic}-bills, not {subject}" in reasons
        assert "the schema registry has no schema with id 2000000000" in reasons

        until = {"from": "earliest", "until": {topic: {"0": 60}}}
        part = registered(kafka, url, f"{table}-2", topic, decode=decode, range=until)
        frame = rangeland.plan(part, spark).read(spark).orderBy("offset")
        file = tmp_path / "job.json"
        asked = {"value": {"format": "avro"}, **decode}
        document = {"source": {"servers": list(kafka.bootstrap), "topics": [topic]}, "range": until}
        file.write_text(
            json.dumps({"job": "j", "sink": {"table": table}, "decode": asked, **document})
        )
        source = spark.read.format("rangeland").option("job", str(file)).load().orderBy("offset")
        for one in (frame, source):
            assert one.schema["value"] == table_of(spark, table).schema["value"]
            assert [row["value"].asDict() for row in one.collect()] == wanted[:60]
        seen = sample(job, NoProgress(), 20)
        assert seen.undecodable == len(bad)
        assert seen.schema == "id BIGINT, name STRING, tags ARRAY<STRING>"
        assert WriterSchema(new, 13, subject) in seen.schemas

        assert registry.register(subject, schemas[2]) == later
        done = run.redrive(job, spark, NoProgress()).done
        assert done is not None
        assert (done.landed, done.added_columns) == (1, ("value.more",))
        assert done.schemas == (WriterSchema(later, 1, subject, 3),)
        produced(kafka, topic, avro(later, schemas[2], last))
        assert rangeland.land(job, spark).landed == 1
        assert values_in(table) == [
            *(value and {**value, "more": None} for value in wanted),
            *(last * 2),
        ]
        assert is_proved(spark, job)
        # A type that changes.
        wrong = record("Order", id="string")
        newest = registry.register(subject, wrong)
        produced(kafka, topic, avro(newest, wrong, [{"id": "x"}]))
        with pytest.raises(TableRefused) as refused:
            rangeland.land(job, spark)
        assert refused.value.exit_code == 73
        assert "BIGINT" in str(refused.value)
        assert f"schema {newest}, the latest of {subject}" in str(refused.value)
        assert f"the last landing was written with {later}" in str(refused.value)
        assert len(values_in(table)) == 63
        # Records of earlier schemas, for a new table with the latest one.
        other = registered(kafka, url, f"{table}-3", topic, decode=decode)
        with pytest.raises(TableRefused, match="the field id of records in") as refused:
            rangeland.land(other, spark)
        assert refused.value.facts["schema_ids"] == [old, newest]
        assert not Path(f"{table}-3").exists()
    assert SECRET not in caplog.text
    assert login not in caplog.text
    for file in Path(table).rglob("*"):
        assert not file.is_file() or SECRET.encode() not in file.read_bytes()


PROTO = """syntax = "proto3";
package shop;
message Nested { string text = 1; }
message Order { int64 id = 1; optional string name = 2; repeated Nested parts = 3; %s }
"""
JSON_SCHEMA = {
    "type": "object",
    "properties": {"id": {"type": "integer"}, "name": {"type": "string"}},
    "required": ["id"],
}


def of_protobuf(schema_id: int, text: str, values: Sequence[Any]) -> list[bytes | None]:
    """As Confluent's serializer writes the second message of a file, but by Google's library."""
    found = FileDescriptorSet.FromString(compile_proto("order.proto", {"order.proto": text}))
    pool = DescriptorPool()
    for one in found.file:
        pool.Add(one)
    kind = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))
    return [header(schema_id) + b"\2\2" + kind(**one).SerializeToString() for one in values]


@pytest.mark.slow
def test_protobuf(
    kafka: KafkaCluster, registry: ApicurioRegistry, spark: Any, table: str, topic: str
) -> None:
    texts = [PROTO % "", PROTO % "double more = 4;"]
    old, new = (registry.register(f"{topic}-value", one, "PROTOBUF") for one in texts)
    early = [{"id": n, "parts": [{"text": "x"}] * (n % 3)} for n in range(20)]
    late = [{"id": n, "name": "n", "more": n / 4} for n in range(20, 40)]
    create_topic(kafka.bootstrap, topic, partitions=1)
    produced(kafka, topic, of_protobuf(old, texts[0], early))
    produced(kafka, topic, [*of_protobuf(new, texts[1], late), header(new) + b"\2\0\2"])
    decode = {"value": {"format": "protobuf", "message": "shop.Order"}, "layout": "flat"}
    job = registered(
        kafka, registry.url, table, topic, decode=decode, policy={"undecodable": "skip"}
    )
    result = rangeland.land(job, spark)
    assert result.counts == Counts(landed=40, lost=1)
    assert [(one.id, one.records, one.version) for one in result.schemas or ()] == [
        *((old, 20, 1), (new, 21, 2))
    ]
    none = {"name": None, "parts": [], "more": 0.0}
    rows = rows_in(table, "_offset")
    assert [{k: row[k] for k in ("id", *none)} for row in rows] == [
        *({**none, **one} for one in [*early, *late])
    ]
    assert is_proved(spark, job)


@pytest.mark.slow
def test_json_schema(
    kafka: KafkaCluster, registry: ApicurioRegistry, spark: Any, table: str, topic: str
) -> None:
    old = registry.register(f"{topic}-value", JSON_SCHEMA | {"title": topic}, "JSON")
    wanted = [{"id": n, "name": f"n{n}"} for n in range(20)]
    written = [header(old) + json.dumps({**one, "extra": 1}).encode() for one in wanted]
    create_topic(kafka.bootstrap, topic, partitions=1)
    produced(kafka, topic, [*written, header(old) + b'{"name": "no id"}', b'{"id": 1}'])
    asked = {"value": {"format": "json"}, "unknown_fields": "keep"}
    job = registered(kafka, registry.url, table, topic, decode=asked)
    with pytest.raises(UndecodablePayload) as caught:
        rangeland.land(job, spark)
    assert (caught.value.exit_code, caught.value.facts["offset"]) == (65, 20)
    assert caught.value.facts["schema_id"] == old
    skipping = registered(
        kafka, registry.url, table, topic, decode=asked, policy={"undecodable": "skip"}
    )
    assert rangeland.land(skipping, spark).counts == Counts(landed=20, lost=2)
    assert values_in(table) == wanted
    rescued = {row["_rescued_data"] for row in rows_in(table)}
    assert [json.loads(one) for one in rescued] == [{"extra": 1}]


@pytest.mark.slow
def test_a_registry_that_is_down_is_no_verdict_on_a_record(
    kafka: KafkaCluster,
    registry: ApicurioRegistry,
    spark: Any,
    table: str,
    topic: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In the driver before anything is read, and in a task for an id that the driver has not seen:
    neither its first nor its last records have it."""
    schema = record("Down", id="long", text="string")
    between = record("Down", id="long", text="string", more=["null", "long"])
    ids = [registry.register(f"{topic}-value", one) for one in (schema, between, schema)]
    large = [{"id": n, "text": "x" * 2000} for n in range(20)]
    other = [{"id": 100, "text": "y", "more": 1}]
    create_topic(kafka.bootstrap, topic, partitions=1)
    for _ in range(2):
        produced(kafka, topic, avro(ids[0], schema, large))
    produced(kafka, topic, avro(ids[1], between, other))
    produced(kafka, topic, avro(ids[0], schema, large))
    job = registered(kafka, registry.url, table, topic, policy={"undecodable": "skip"})
    down = registered(kafka, "http://127.0.0.1:1", table, topic, policy={"undecodable": "skip"})
    with pytest.raises(Unreachable) as caught:
        rangeland.land(down, spark)
    assert caught.value.exit_code == 75
    assert not Path(table).exists()
    enter = LandingSteps._enter

    def paused(self: LandingSteps, *about: Any) -> Any:
        assert ids[1] not in catalogue_of(self._context)
        registry.pause()
        return enter(self, *about)

    try:
        with monkeypatch.context() as patch:
            patch.setattr(LandingSteps, "_enter", paused)
            with pytest.raises(Unreachable) as caught:
                rangeland.land(job, spark)
    finally:
        registry.resume()
    assert caught.value.exit_code == 75
    assert stored_rows(table) == []
    result = rangeland.land(job, spark)
    assert result.counts == Counts(landed=61)
    assert [(one.id, one.records) for one in result.schemas or ()] == [(ids[0], 60), (ids[1], 1)]
    assert values_in(table)[40] == other[0]


def catalogue_of(context: LandingContext) -> Any:
    assert context.row_format is not None
    return context.row_format.catalogue.schemas


@pytest.mark.slow
def test_several_subjects_in_one_table(
    kafka: KafkaCluster, registry: ApicurioRegistry, spark: Any, table: str, topic: str
) -> None:
    """Two topics with a subject each, or one topic with two. Types that disagree are refused."""
    order = record(f"Order{topic[-8:]}", id="long", name="string")
    bill = record(f"Bill{topic[-8:]}", id="long", cents="long")
    topics = [f"{topic}-a", f"{topic}-b"]
    subjects = [
        *((f"{topics[0]}-value", order), (f"{topics[1]}-value", bill)),
        *((f"{topics[1]}-{one['namespace']}.{one['name']}", one) for one in (order, bill)),
    ]
    ids = [registry.register(*one) for one in subjects]
    orders = [{"id": n, "name": "o"} for n in range(3)]
    bills = [{"id": n, "cents": 7} for n in range(3)]
    written = avro(ids[0], order, orders), avro(ids[1], bill, bills)
    for one, payloads in zip(topics, written, strict=True):
        create_topic(kafka.bootstrap, one, partitions=1)
        produced(kafka, one, payloads)
    job = registered(kafka, registry.url, table, topics)
    assert rangeland.land(job, spark).landed == 6
    wanted = [
        *({**one, "cents": None} for one in orders),
        *({**one, "name": None} for one in bills),
    ]
    assert [row["value"] for row in sorted(rows_in(table), key=lambda row: row["topic"])] == wanted

    produced(kafka, topics[1], avro(ids[0], order, orders[:1]))
    with pytest.raises(UndecodablePayload, match="is registered as"):
        rangeland.land(job, spark)
    named = {"url": registry.url, "subject_name_strategy": "TopicRecordNameStrategy"}
    mixed = registered(
        kafka, registry.url, f"{table}-2", topics[1], decode={"registry": named}, name="mixed"
    )
    result = rangeland.land(mixed, spark)
    assert [(one.subject, one.records) for one in result.schemas or ()] == [
        *((subjects[2][0], 1), (subjects[3][0], 3))
    ]
    assert values_in(f"{table}-2") == [
        *({**one, "name": None} for one in bills),
        {**orders[0], "cents": None},
    ]

    wrong = registry.register(f"{topics[1]}-value", record("Wrong", id="long", name="long"))
    with pytest.raises(TableRefused, match="name would have two types") as refused:
        rangeland.land(job, spark)
    assert f"STRING in schema {ids[0]}" in str(refused.value)
    assert f"BIGINT in schema {wrong}" in str(refused.value)
    nowhere = registered(kafka, registry.url, table, topics, decode={"key": {"format": "avro"}})
    with pytest.raises(JobFileError, match=f"there is no subject {topics[0]}-key"):
        rangeland.land(nowhere, spark)
