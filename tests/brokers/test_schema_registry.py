"""A real schema registry: schemas of three formats with references, logins, TLS, outages; and a
real topic whose records name their schemas."""

from __future__ import annotations

import base64
import json
import ssl
import struct
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rangeland.cluster_settings import TlsSettings
from rangeland.connection.pool import ConnectionPool
from rangeland.decode.payload.avro.avro_format import AvroFormat
from rangeland.decode.payload.schema_ids.schema_catalogue import (
    ReferencedSchema,
    RegisteredSchema,
    SchemaCatalogue,
    SchemaFormat,
    SubjectVersion,
    TopicField,
    UnusableSchema,
)
from rangeland.decode.payload.schema_ids.subject_writers import SubjectWriters
from rangeland.errors import AccessDenied, JobFileError, Unreachable
from rangeland.model import Partition
from rangeland.schema_registry import executor_schemas
from rangeland.schema_registry.executor_schemas import ExecutorSchemas
from rangeland.schema_registry.registry_client import Absence, RegistryClient
from rangeland.schema_registry.registry_settings import LONG_AGO, RegistrySettings
from rangeland.schema_registry.schema_lookup import make_catalogue
from rangeland.schema_registry.subject_names import SubjectNameStrategy
from rangeland.survey.seen_schema_ids import look_at_ends, seen_schema_ids
from rangeland.testing.kafka import KafkaCluster
from rangeland.testing.ports import free_ports
from rangeland.testing.producer import Record, create_topic, produce, produce_transaction
from tests.brokers.reading import settings_of
from tests.brokers.registry_proxy import guarded
from tests.brokers.surveys import look, slices_of
from tests.certificates import Authority
from tests.fakes.schemas import decode_framed
from tests.servers.apicurio import ApicurioRegistry

pytestmark = pytest.mark.brokers

SECRET = "hunter2-never-to-be-seen"


@pytest.fixture(scope="module")
def registry() -> Iterator[ApicurioRegistry]:
    with ApicurioRegistry() as running:
        yield running


def client(*urls: str, **changed: Any) -> RegistryClient:
    return RegistryClient(RegistrySettings(urls, **{"no_progress_ms": 3_000} | changed))


def catalogue(registry: ApicurioRegistry, *ids: int, topic: str = "none") -> SchemaCatalogue:
    seen = {TopicField(topic, "value"): ids, TopicField(topic, "key"): ()}
    return make_catalogue(client(registry.url), SubjectNameStrategy.TOPIC, seen)


def record(name: str, **fields: Any) -> dict[str, Any]:
    """Equal schemas have one id in all subjects, so a test that counts subjects has a name of its
    own."""
    listed = [{"name": field, "type": kind} for field, kind in fields.items()]
    return {"type": "record", "name": name, "namespace": "shop", "fields": listed}


# --- schemas --------------------------------------------------------------------------------


def test_versions_of_a_subject(registry: ApicurioRegistry, topic: str) -> None:
    subject = f"{topic}-value"
    old = registry.register(subject, record("Versioned", id="long"))
    new = registry.register(subject, record("Versioned", id="long", note=["null", "string"]))
    assert registry.register(subject, record("Versioned", id="long")) == old
    found = catalogue(registry, old, new, topic=topic)
    assert found.versions == {
        old: (SubjectVersion(subject, 1),),
        new: (SubjectVersion(subject, 2),),
    }
    latest = found.latest[subject]
    assert (latest.id, latest.version) == (new, 2)
    assert latest.schema == found.schemas[new]
    assert isinstance(latest.schema, RegisteredSchema)
    assert json.loads(latest.schema.text)["fields"][1]["name"] == "note"
    assert f"{topic}-key" not in found.latest


def test_avro_with_references_is_one_schema(registry: ApicurioRegistry, topic: str) -> None:
    registry.register(f"{topic}-zip", record("Zip", code="string"))
    zip_at = ("shop.Zip", f"{topic}-zip", 1)
    registry.register(f"{topic}-addr", record("Addr", zip="shop.Zip"), "AVRO", [zip_at])
    addr_at = ("shop.Addr", f"{topic}-addr", 1)
    both = record("Order", home="shop.Addr", work=["null", "shop.Addr"])
    number = registry.register(f"{topic}-value", both, "AVRO", [addr_at])
    found = catalogue(registry, number).schemas[number]
    assert isinstance(found, RegisteredSchema)
    home, work = (one["type"] for one in json.loads(found.text)["fields"])
    assert home == {
        **record("Addr"),
        "fields": [{"name": "zip", "type": record("Zip", code="string")}],
    }
    assert work == ["null", "shop.Addr"]


def test_protobuf_with_references(registry: ApicurioRegistry, topic: str) -> None:
    money = 'syntax = "proto3"; package shop; message Money { int64 units = 1; }'
    registry.register(f"{topic}-money", money, "PROTOBUF")
    pay = 'syntax = "proto3"; package shop; import "money.proto"; message Pay { Money m = 1; }'
    number = registry.register(
        f"{topic}-value", pay, "PROTOBUF", [("money.proto", f"{topic}-money", 1)]
    )
    found = catalogue(registry, number).schemas[number]
    assert found == RegisteredSchema(
        SchemaFormat.PROTOBUF, pay, (ReferencedSchema("money.proto", money),)
    )


def test_json_schema_with_references(registry: ApicurioRegistry, topic: str) -> None:
    base = '{"$id":"base.json","type":"object","properties":{"z":{"type":"string"}}}'
    registry.register(f"{topic}-base", base, "JSON")
    top = '{"$id":"top.json","type":"object","properties":{"b":{"$ref":"base.json"}}}'
    number = registry.register(f"{topic}-value", top, "JSON", [("base.json", f"{topic}-base", 1)])
    found = catalogue(registry, number).schemas[number]
    assert found == RegisteredSchema(SchemaFormat.JSON, top, (ReferencedSchema("base.json", base),))


@pytest.mark.parametrize("kind", ["AVRO", "JSON", "PROTOBUF"])
def test_subjects_that_are_named_after_records(
    registry: ApicurioRegistry, topic: str, kind: str
) -> None:
    text = {
        "AVRO": json.dumps(record("Named", id="long")),
        "JSON": '{"$schema": "http://json-schema.org/draft-07/schema#", "title": "shop.Named"}',
        "PROTOBUF": 'syntax = "proto3"; package shop; message Named { int64 id = 1; }',
    }[kind]
    subject = f"{topic}-shop.Named"
    number = registry.register(subject, text, kind)
    seen = {TopicField(topic, "value"): [number]}
    found = make_catalogue(client(registry.url), SubjectNameStrategy.TOPIC_RECORD, seen)
    assert found.latest[subject].id == number


def test_an_id_of_another_subject(registry: ApicurioRegistry, topic: str) -> None:
    number = registry.register(f"{topic}-bills", record("Bill", id="long"))
    found = catalogue(registry, number)
    schema = ExecutorSchemas(found).of_id(number)
    accepted = SubjectWriters(f"{topic}-bills").judge(number, schema)
    assert isinstance(accepted, RegisteredSchema)
    refused = SubjectWriters(f"{topic}-value").judge(number, schema)
    assert refused == UnusableSchema(
        f"schema {number} is registered as {topic}-bills, not {topic}-value"
    )


def test_unknown_ids_subjects_and_versions(registry: ApicurioRegistry, topic: str) -> None:
    asked = client(registry.url)
    assert asked.schema(2_000_000_000) is None
    assert asked.versions(2_000_000_000, Absence.BELIEVED_ONCE_CONFIRMED) == ()
    assert asked.latest(topic) is None
    registry.register(topic, record("Order", id="long"))
    with pytest.raises(Unreachable, match="although a registered schema refers to it"):
        asked.referenced_version(SubjectVersion(topic, 99))
    assert catalogue(registry, 2_000_000_000).schemas == {}


def test_an_unknown_id_is_one_that_cannot_be_late(registry: ApicurioRegistry, topic: str) -> None:
    number = registry.register(topic, record("Newest", id="long"))
    empty = SchemaCatalogue(latest=catalogue(registry, number, topic=topic).latest, made_as=topic)
    settings = RegistrySettings((registry.url,), no_progress_ms=1_000)
    tasks = ExecutorSchemas(empty, settings)
    assert isinstance(tasks.of_id(number).schema, RegisteredSchema)
    forged = tasks.of_id(2_000_000_000).schema
    assert isinstance(forged, UnusableSchema)
    assert f"its ids are far lower, such as {number}" in forged.reason
    with pytest.raises(Unreachable, match=f"does not have schema id {number + 1} yet"):
        tasks.of_id(number + 1)
    of_old_records = replace(tasks, written=LONG_AGO)
    assert isinstance(of_old_records.of_id(number + 1).schema, UnusableSchema)
    again = ExecutorSchemas(replace(empty, made_as=f"{topic}-2"), settings)
    assert registry.register(f"{topic}-2", record("Newer", id="long")) == number + 1
    assert isinstance(again.of_id(number + 1).schema, RegisteredSchema)


def test_a_url_without_the_path_of_the_api(registry: ApicurioRegistry) -> None:
    root = f"http://127.0.0.1:{registry.port}"
    with pytest.raises(Unreachable, match="/apis/ccompat/v7 for Apicurio"):
        client(root, no_progress_ms=500).schema(1)


# --- logins and TLS -------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["Basic", "Bearer"])
def test_logins(registry: ApicurioRegistry, topic: str, kind: str) -> None:
    number = registry.register(topic, record("Order", id="long"))
    basic = kind == "Basic"
    sent = base64.b64encode(f"me:{SECRET}".encode()).decode() if basic else SECRET
    login = {"username": "me", "password": SECRET} if basic else {"token": SECRET}
    wrong = {"username": "me", "password": "x"} if basic else {"token": "x"}
    with guarded(registry.url, f"{kind} {sent}") as url:
        assert client(url, **login).schema(number) is not None
        for bad in (wrong, {}):
            with pytest.raises(AccessDenied, match="it answered 401") as raised:
                client(url, **bad).schema(number)
            assert raised.value.exit_code == 78


def test_tls(registry: ApicurioRegistry, topic: str, tmp_path: Path) -> None:
    number = registry.register(topic, record("Order", id="long"))
    authority = Authority(tmp_path)
    issued = authority.issue("registry")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(issued.certificate, issued.key)
    with guarded(registry.url, f"Bearer {SECRET}", context) as url:
        trusting = client(url, token=SECRET, tls=TlsSettings(ca=str(authority.ca)))
        assert trusting.schema(number) is not None
        with pytest.raises(JobFileError, match="is not trusted"):
            client(url, token=SECRET).schema(number)
        with pytest.raises(Unreachable):
            client(url.replace("https:", "http:"), token=SECRET, no_progress_ms=1).schema(number)


# --- outages --------------------------------------------------------------------------------


def test_a_registry_that_hangs_is_given_up_and_answers_again(
    registry: ApicurioRegistry, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executor_schemas, "_of_runs", {})
    number = registry.register(topic, record("Hung", id="long"))
    empty = catalogue(registry)
    settings = RegistrySettings((registry.url,), request_ms=500, no_progress_ms=1_500)
    tasks = ExecutorSchemas(empty, settings)
    registry.pause()
    try:
        started = time.monotonic()
        with pytest.raises(Unreachable, match=r"no complete response in 0\.5 s"):
            tasks.of_id(number)
        assert time.monotonic() - started < 30
    finally:
        registry.resume()
    # It may need a while to come round, as long as its clients wait for it.
    longer = replace(settings, request_ms=10_000, no_progress_ms=60_000)
    patient = ExecutorSchemas(replace(empty, made_as="later"), longer)
    assert isinstance(patient.of_id(number).schema, RegisteredSchema)
    assert patient.versions_of(number) == (SubjectVersion(topic, 1),)


def test_the_address_of_a_dead_registry_costs_nothing_but_a_moment(
    registry: ApicurioRegistry, topic: str
) -> None:
    number = registry.register(topic, record("Order", id="long"))
    dead = f"http://127.0.0.1:{free_ports(1)[0]}"
    assert client(dead, registry.url).schema(number) is not None
    with pytest.raises(Unreachable, match=dead):
        client(dead, registry.url, no_progress_ms=500).schema(2_000_000_000)


# --- which ids a topic has ------------------------------------------------------------------


def framed(number: int) -> bytes:
    return b"\0" + struct.pack(">i", number) + b"body"


def ids_at_the_ends(kafka: KafkaCluster, topic: str) -> tuple[Counter[tuple[int, int]], int]:
    settings = settings_of(kafka.bootstrap)
    slices = slices_of(look(settings, topics=(topic,)))
    found: Counter[tuple[int, int]] = Counter()

    def see(partition: Partition, rows: pa.RecordBatch) -> None:
        for value in rows.column("value").to_pylist():
            found[partition.number, struct.unpack(">i", value[1:5])[0]] += 1

    with ConnectionPool(settings) as brokers:
        look_at_ends(brokers, slices, see)
        return found, brokers.requests


def test_the_ends_of_ranges_show_which_ids_they_have(kafka: KafkaCluster, topic: str) -> None:
    create_topic(kafka.bootstrap, topic, partitions=3)
    large = bytes(90_000)  # so that the first bytes of the log do not reach its end
    for number in (1, 2, 3):
        records = [Record(framed(10 * number) + large, b"k") for _ in range(30)]
        produce(kafka.bootstrap, topic, records, partition=0)
    produce(kafka.bootstrap, topic, [Record(framed(7), b"k")], partition=1)
    found, requests = ids_at_the_ends(kafka, topic)
    assert {key for key in found if key[0] == 0} >= {(0, 10), (0, 30)}
    assert {key for key in found if key[0] == 1} == {(1, 7)}
    assert requests <= 4  # beginnings and ends, and again where nothing had arrived


def test_the_markers_of_a_transaction_do_not_hide_its_records(
    kafka: KafkaCluster, topic: str
) -> None:
    create_topic(kafka.bootstrap, topic, partitions=1)
    for number in (4, 5):
        records = [Record(framed(number) + bytes(2_000), b"k") for _ in range(60)]
        produce_transaction(kafka.bootstrap, topic, records, commit=True, partition=0)
    found, _ = ids_at_the_ends(kafka, topic)
    assert set(found) == {(0, 4), (0, 5)}


def test_records_are_decoded_with_the_schemas_that_they_name(
    kafka: KafkaCluster, registry: ApicurioRegistry, topic: str
) -> None:
    """The second schema refers to another subject. The last id is known to nobody."""
    registry.register(f"{topic}-addr", record("Place", zip="string"))
    old = registry.register(f"{topic}-value", record("Stay", id="long"))
    place_at = ("shop.Place", f"{topic}-addr", 1)
    evolved = record("Stay", id="long", at=["null", "shop.Place"])
    evolved["fields"][1]["default"] = None
    new = registry.register(f"{topic}-value", evolved, "AVRO", [place_at])
    bodies = [(old, b"\x02"), (new, b"\x04\x02\x06abc"), (2_000_000_000, b"\x02")]
    create_topic(kafka.bootstrap, topic, partitions=1)
    payloads = [b"\0" + struct.pack(">i", number) + body for number, body in bodies]
    produce(kafka.bootstrap, topic, [Record(one, b"k") for one in payloads], partition=0)
    settings = settings_of(kafka.bootstrap)
    with ConnectionPool(settings) as brokers:
        seen = seen_schema_ids(brokers, slices_of(look(settings, topics=(topic,))), ["value"])
    values = TopicField(topic, "value")
    assert seen == {values: Counter({old: 1, new: 1, 2_000_000_000: 1})}
    found = make_catalogue(client(registry.url), SubjectNameStrategy.TOPIC, seen)
    tasks = ExecutorSchemas(found, RegistrySettings((registry.url,)))
    form = AvroFormat(found.latest[f"{topic}-value"].schema.text, SubjectWriters())
    decoded = decode_framed(form.decoder(), pa.array(payloads, pa.binary()), tasks)
    assert decoded.values.to_pylist() == [
        {"id": 1, "at": None},
        {"id": 2, "at": {"zip": "abc"}},
        None,
    ]
    assert [(one.row, one.schema_id) for one in decoded.undecodable] == [(2, 2_000_000_000)]
