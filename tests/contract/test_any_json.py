"""For any JSON, each of its readers returns a value or raises an error of ours.

``READERS`` lists all of them, with a document that each understands: the tests change one value
of it at a time to anything that JSON can say, cut it, and nest it. A reader of JSON that is
added belongs here; the last test finds those that go around ``untrusted``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rangeland.connection.tokens import _read_response
from rangeland.decode.payload.schema_ids.schema_catalogue import SchemaFormat, SubjectVersion
from rangeland.delta.ledger.event_codec import from_row
from rangeland.delta.transaction_log.log_actions import commit_metadata
from rangeland.dialects.kafka.sasl_mechanisms import _status
from rangeland.dialects.rocketmq import messages as m
from rangeland.dialects.rocketmq.frames import read_frame
from rangeland.dialects.rocketmq.routes import read_brokers, read_route, read_topics
from rangeland.dialects.rocketmq.topic_types import has_attribute
from rangeland.errors import RangelandError, RemoteProtocolError
from rangeland.groups.rocketmq.group_requests import read_connections, read_locked
from rangeland.groups.zookeeper.znode_layout import read_topics as read_subscription
from rangeland.job.command_line_overrides import read_bound
from rangeland.landing.drafts.plan_file import read_plan_file
from rangeland.planning.plan import Plan
from rangeland.schema_registry.registry_responses import (
    SchemaReference,
    SchemaResponse,
    read_error_code,
    read_schema,
    read_version,
    read_versions,
)
from rangeland.schema_registry.schema_references import resolve_references
from rangeland.untrusted import Unreadable
from rangeland.zookeeper.broker_registry import parse_broker, parse_kafka_topic
from tests.unit.test_planning_plan import PLAN

LIBRARY = Path(__file__).parents[2] / "lib" / "rangeland"


def _response(body: bytes) -> m.RemotingResponse:
    return m.RemotingResponse(m.RemotingRequest(203, {}), 0, "", {}, memoryview(body))


def _frame(body: bytes) -> object:
    return read_frame(memoryview(len(body).to_bytes(4, "big") + body))


def _row(event: str) -> Callable[[bytes], object]:
    """A row of the ledger with the document; all else in it has the types of its columns."""
    row = {
        "event": event,
        "application": "rangeland/a",
        "job": "a",
        "sequence": 1,
        "plan": "h",
        "attempt": 1,
        "written_at": datetime(2026, 1, 1, tzinfo=UTC),
        "ranges": [],
        "files": [],
    }
    return lambda body: from_row({**row, "document": body.decode()})


def _registry(read: Callable[[bytes], object]) -> Callable[[bytes], object]:
    """As the client of the schema registry calls its readers."""

    def answered(body: bytes) -> object:
        try:
            return read(body)
        except Unreadable as error:
            raise RemoteProtocolError(str(error)) from error

    return answered


def _resolved(body: bytes) -> object:
    """An Avro schema that refers to itself under another subject."""
    text = body.decode()
    schema = SchemaResponse(
        SchemaFormat.AVRO, text, (SchemaReference("a.B", SubjectVersion("s", 1)),)
    )
    return resolve_references(schema, lambda _: SchemaResponse(SchemaFormat.AVRO, text, ()))


REGISTERED = {
    "schema": "{}",
    "schemaType": "JSON",
    "references": [{"name": "n", "subject": "s", "version": 1}],
}
AVRO = {
    "type": "record",
    "name": "A",
    "namespace": "a",
    "fields": [{"name": "b", "type": ["null", {"type": "enum", "name": "E", "symbols": ["x"]}]}],
}
FILE = {"path": "p", "size_bytes": 1, "rows": 1, "stats": "{}", "modified_at_ms": 1}
FRAME = {"code": 0, "opaque": 1, "flag": 1, "remark": None, "extFields": {"offset": "1"}}
ROUTE = {
    "brokerDatas": [{"cluster": "c", "brokerName": "b", "brokerAddrs": {"0": "h:1"}}],
    "queueDatas": [{"brokerName": "b", "readQueueNums": 4}],
}
LOCKED = {"lockOKMQSet": [{"topic": "t", "queueId": 1, "brokerName": "b"}]}
MEMBERS = {
    "connectionSet": [{"clientId": "c", "clientAddr": "h:1", "language": "JAVA"}],
    "subscriptionTable": {"t": {}},
}
COMMIT = {
    "version": 1,
    "timestamp": 1,
    "commitInfo": {"operation": "RESTORE", "operationParameters": {"version": "3"}},
    "txn": {"appId": "a", "version": 1},
}

Reader = Callable[[bytes], object]
READERS: dict[str, tuple[Reader, Any]] = {
    "RocketMQ: header": (_frame, FRAME),
    "RocketMQ: route": (read_route, ROUTE),
    "RocketMQ: topics": (read_topics, {"topicList": ["t"]}),
    "RocketMQ: brokers": (read_brokers, {"brokerAddrTable": {"b": {}}}),
    "RocketMQ: topic": (
        lambda body: has_attribute(_response(body), "queue.type", "BatchCQ"),
        {"attributes": {"queue.type": "BatchCQ"}},
    ),
    "RocketMQ: members": (lambda body: read_connections(_response(body)), MEMBERS),
    "RocketMQ: locks": (lambda body: read_locked(_response(body)), LOCKED),
    "ZooKeeper: broker": (
        lambda body: parse_broker("1", body),
        {"host": "h", "port": -1, "endpoints": ["SSL://h:9093"]},
    ),
    "ZooKeeper: topic": (
        lambda body: parse_kafka_topic("t", body),
        {"partitions": {"0": [1], "1": [1]}},
    ),
    "ZooKeeper: member": (
        read_subscription,
        {"version": 1, "subscription": {"t": 1}, "pattern": "static"},
    ),
    "Kafka: why a token was refused": (
        lambda body: _status(body.decode()),
        {"status": "invalid_token", "scope": "s"},
    ),
    "token endpoint": (_read_response, {"access_token": "t", "error": "e"}),
    "schema registry: schema": (_registry(read_schema), REGISTERED),
    "schema registry: version": (
        _registry(read_version),
        {"id": 1, "subject": "s", "version": 1, **REGISTERED},
    ),
    "schema registry: versions": (_registry(read_versions), [{"subject": "s", "version": 1}]),
    "schema registry: error": (read_error_code, {"error_code": 40403, "message": "m"}),
    "schema registry: Avro": (_resolved, AVRO),
    "ledger: plan": (lambda body: Plan.parse(body.decode()), PLAN.to_json()),
    "ledger: outcome": (_row("outcome"), {"kept": [FILE]}),
    "ledger: part": (_row("part"), {"member": "me", "slices": []}),
    "flag": (
        lambda body: read_bound("--from", body.decode()),
        {"orders": {"0": 23, "1": "earliest"}},
    ),
}


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of all values in a document, itself included."""
    inner = (
        list(value.items())
        if isinstance(value, Mapping)
        else list(enumerate(value))
        if isinstance(value, list)
        else []
    )
    return [path, *(found for key, one in inner for found in places(one, (*path, key)))]


def changed(value: Any, path: tuple[Any, ...], to: Any) -> Any:
    if not path:
        return to
    if isinstance(value, Mapping):
        return {k: changed(v, path[1:], to) if k == path[0] else v for k, v in value.items()}
    return [changed(v, path[1:], to) if i == path[0] else v for i, v in enumerate(value)]


NUMBERS = st.sampled_from([-1, 0, 2**31, 2**62, 2**63, 2**64, 10**400, 1e308, 0.5, 99_999])
SCALARS = st.none() | st.booleans() | NUMBERS | st.integers() | st.text(max_size=8)
ANYTHING = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=6,
)
RAW = ["NaN", "Infinity", "-Infinity", "1e999", "9" * 5_000, "[" * 5_000, '{"a":' * 5_000]
HOLE = "a place for raw text"


def gives_a_value_or_an_error_of_ours(read: Reader, body: bytes) -> None:
    try:
        read(body)
    except RangelandError as error:
        caught = error
    else:
        return
    assert caught.exit_code != 70, f"called our own bug: {caught}"


@pytest.mark.parametrize("name", READERS)
def test_a_reader_understands_its_document(name: str) -> None:
    read, document = READERS[name]
    read(json.dumps(document).encode())


@pytest.mark.parametrize("name", READERS)
@given(data=st.data())
def test_any_value_in_any_place_is_read_or_refused(name: str, data: st.DataObject) -> None:
    read, document = READERS[name]
    path = data.draw(st.sampled_from(places(document)))
    body = json.dumps(changed(document, path, data.draw(ANYTHING)))
    gives_a_value_or_an_error_of_ours(read, body.encode())


@pytest.mark.parametrize("name", READERS)
def test_what_is_not_json_in_any_place_is_read_or_refused(name: str) -> None:
    read, document = READERS[name]
    for path in places(document):
        text = json.dumps(changed(document, path, HOLE))
        for raw in RAW:
            gives_a_value_or_an_error_of_ours(read, text.replace(f'"{HOLE}"', raw).encode())


@pytest.mark.parametrize("name", READERS)
def test_a_field_that_is_missing_is_read_or_refused(name: str) -> None:
    read, document = READERS[name]
    for path in places(document):
        holder = document
        for key in path[:-1]:
            holder = holder[key]
        if path and isinstance(holder, Mapping):
            left = {key: value for key, value in holder.items() if key != path[-1]}
            body = json.dumps(changed(document, path[:-1], left))
            gives_a_value_or_an_error_of_ours(read, body.encode())


@pytest.mark.parametrize("name", READERS)
def test_a_document_that_is_cut_anywhere_is_read_or_refused(name: str) -> None:
    read, document = READERS[name]
    body = json.dumps(document).encode()
    for end in range(0, len(body), 7):
        gives_a_value_or_an_error_of_ours(read, body[:end])


@given(value=ANYTHING)
def test_a_plan_file_of_anything_is_refused(value: Any, tmp_path_factory: Any) -> None:
    path = tmp_path_factory.mktemp("plans") / "plan.json"
    for document in (
        value,
        {"rangeland_plan_file": value},
        {"rangeland_plan_file": 3, "job": value},
    ):
        path.write_text(json.dumps(document))
        gives_a_value_or_an_error_of_ours(lambda _: read_plan_file(path), b"")


@given(row=ANYTHING)
def test_what_a_commit_says_of_itself_is_taken_as_it_comes(row: Any) -> None:
    """The rows come from Delta Kernel, which reads the log; the parameters of an operation are
    what its writer put there."""
    info = {"operation": "RESTORE", "operationParameters": {"version": row}}
    (found,) = commit_metadata(iter([{**COMMIT, "commitInfo": info}]))
    assert found.version == 1


# Those that read what this process has just made, or what Delta Kernel gives.
OWN = {
    "decode/payload/json/json_parser.py": "json.loads(",  # payloads have rules of their own
    "delta/table_schema/table_features.py": "json.loads(metadata.schema_json)",
    "delta/transaction_log/table_history.py": "json.loads(line)",
    "delta/table_schema/arrow_schema.py": "json.loads(schema_text)",
    "delta/table_schema/column_mapping.py": "json.loads(schema_text)",
    "landing/target/table_location.py": "json.loads(definition.schema_json)",
    "landing/drafts/plan_file.py": "json.loads(json.dumps(",
}


def test_no_other_reader_of_json_is_in_the_library() -> None:
    found = {
        str(path.relative_to(LIBRARY)): call
        for path in LIBRARY.rglob("*.py")
        if path.name != "untrusted.py" and "testing" not in path.parts
        for call in re.findall(r"json\.loads?\((?:\w|\.)*", path.read_text())
    }
    assert {name: own for name, own in OWN.items() if name not in found} == {}
    assert {
        name: call for name, call in found.items() if not OWN.get(name, "").startswith(call)
    } == {}
