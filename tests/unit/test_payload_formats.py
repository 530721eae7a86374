"""The section ``decode`` of a job file, and the formats that are made of it."""

from __future__ import annotations

import importlib.util
import json
import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rangeland.cluster_access.registry_lookup import look_up_row_format
from rangeland.decode.payload.row_format import FLAT_COLUMNS
from rangeland.decode.payload.schema_ids.schema_catalogue import TopicField
from rangeland.dialects.row_schema import typed_rows
from rangeland.errors import JobFileError
from rangeland.job import Job
from rangeland.schema_registry.executor_schemas import ExecutorSchemas
from tests.scripted_http import response, scripted

URL = {"url": "http://registry:8081"}
DDL = "id BIGINT NOT NULL, name STRING"
AVRO: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "name", "type": ["null", "string"]}],
}
PROTO = """syntax = "proto3";
package shop;
import "parts/money.proto";
message Order { int64 id = 1; parts.Money price = 2; }
message Other { string id = 1; }
"""
MONEY = """syntax = "proto3";
package parts;
message Money { int64 cents = 1; }
"""


def job(decode: Any, **sections: Any) -> Job:
    document = {
        "job": "orders",
        "source": {"servers": ["b:9092"], "topics": ["orders"]},
        "sink": {"table": "lake/orders"},
        "decode": decode,
        **sections,
    }
    return Job.parse(json.dumps(document))


def value(**given: Any) -> dict[str, Any]:
    return {"value": {"format": "json", **given}}


def columns(decode: Any) -> pa.Schema:
    return typed_rows("kafka", look_up_row_format(job(decode)))


def test_without_decode_nothing_changes() -> None:
    assert look_up_row_format(job({})) is None
    assert look_up_row_format(job({"value": {"format": "bytes"}})) is None


def test_keys_and_values_have_formats_of_their_own() -> None:
    found = columns({"key": {"format": "string"}, **value(schema=DDL)})
    assert found.field("key").type == pa.string()
    assert found.field("value").type == pa.struct([("id", pa.int64()), ("name", pa.string())])


def test_the_log_has_other_columns_where_fields_are_columns() -> None:
    flat = job({**value(schema=DDL), "layout": "flat", "unknown_fields": "keep"})
    assert flat.log_columns == FLAT_COLUMNS
    names = columns({**value(schema=DDL), "layout": "flat", "unknown_fields": "keep"}).names
    assert names[-3:] == ["id", "name", "_rescued_data"]
    assert "_offset" in names


@pytest.mark.parametrize(
    ("decode", "field", "expected"),
    [
        (value(), "decode.value.schema", "fields in Spark's DDL"),
        (value(schema="id BIGNT"), "decode.value.schema", "BIGNT"),
        (value(schema="orders.avsc"), "decode.value.schema", ".ddl or .json"),
        ({"value": {"format": "avro"}}, "decode.value.schema", ".avsc"),
        ({"value": {"format": "avro", "schema": DDL}}, "decode.value.schema", ".avsc"),
        ({"value": {"format": "string", "schema": DDL}}, "decode.value.schema", "has no fields"),
        (value(schema=DDL, message="a.B"), "decode.value.message", "has no messages"),
        ({"layout": "flat"}, "decode.layout", "nested"),
        ({"value": {"format": "string"}, "layout": "flat"}, "decode.layout", "nested"),
        (
            {"value": {"format": "string"}, "unknown_fields": "keep"},
            "decode.unknown_fields",
            "remove it: it is only for values that are json",
        ),
        (
            {"value": {"format": "string"}, "unknown_fields": "fail"},
            "decode.unknown_fields",
            "remove it: neither keys nor values are json",
        ),
        ({"key": {"format": "avro"}, **value(schema=DDL)}, "decode.key.schema", "decode.registry"),
        ({"value": {"format": "string"}, "registry": URL}, "decode.registry", "neither keys nor"),
        ({**value(), "registry": {"url": "x"}}, "decode.registry.url", "http://registry:8081"),
        ({"values": {}}, "decode.values", "did you mean decode.value"),
        ({"format": "json"}, "decode.format", "did you mean decode.value.format"),
        ({"username": "u"}, "decode.username", "did you mean decode.registry.username"),
    ],
)
def test_what_cannot_be_is_refused_with_its_line(decode: Any, field: str, expected: str) -> None:
    with pytest.raises(JobFileError) as caught:
        job(decode)
    assert caught.value.exit_code == 78
    assert caught.value.facts["field"] == field
    assert caught.value.facts["line"] == 1
    assert expected in str(caught.value)


def test_a_field_with_the_name_of_a_column_of_the_log_is_refused() -> None:
    with pytest.raises(JobFileError, match="the field _offset has the same name as a column"):
        look_up_row_format(job({**value(schema="_offset INT"), "layout": "flat"}))


def test_schemas_are_read_from_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("o.ddl").write_text(DDL)
    properties = {"id": {"type": "integer"}, "name": {"type": "string"}}
    Path("o.json").write_text(json.dumps({"type": "object", "properties": properties}))
    Path("o.avsc").write_text(json.dumps(AVRO))
    wanted = pa.struct([("id", pa.int64()), ("name", pa.string())])
    for name in ("o.ddl", "o.json"):
        assert columns(value(schema=name)).field("value").type == wanted
    avro = {"value": {"format": "avro", "schema": "o.avsc"}}
    assert columns(avro).field("value").type == wanted
    made = look_up_row_format(job(avro))
    assert pickle.loads(pickle.dumps(made)) == made


@pytest.mark.skipif(
    importlib.util.find_spec("grpc_tools") is None, reason="the extra typed is not installed"
)
def test_schemas_of_a_registry_make_the_columns(tmp_path: Path) -> None:
    """Keys are read by a file. Its subjects need not exist, and those of values are not asked
    for twice."""
    at = {"subject": "orders-value", "version": 3, "id": 7, "schema": json.dumps(AVRO)}
    replies = {
        "/schemas/ids/7": response(at),
        "/schemas/ids/7/versions": response([{"subject": "orders-value", "version": 3}]),
        "/subjects/orders-value/versions/latest": response(at),
    }
    file = tmp_path / "key.avsc"
    file.write_text(json.dumps({**AVRO, "fields": AVRO["fields"][:1]}))
    with scripted(replies) as server:
        decode = {
            "key": {"format": "avro", "schema": str(file)},
            "value": {"format": "avro"},
            "registry": {"url": server.url},
        }
        seen = {TopicField("orders", "key"): [7], TopicField("orders", "value"): [7]}
        made = look_up_row_format(job(decode), seen)
        assert sorted(server.paths) == sorted(replies)
    rows = typed_rows("kafka", made)
    assert rows.field("key").type == pa.struct([("id", pa.int64())])
    assert rows.field("value").type == pa.struct([("id", pa.int64()), ("name", pa.string())])
    assert made is not None
    record = {"key": b"\0\0\0\0\7\2\0", "value": b"\0\0\0\0\7\4\2\2x"}
    columns = {name: pa.array([data], pa.binary()) for name, data in record.items()}
    decoder = pickle.loads(pickle.dumps(made)).decoder("orders")
    schemas = ExecutorSchemas(made.catalogue)
    (decoded,) = schemas.answer(decoder.decode(pa.record_batch(columns)), decoder.add_schema)
    assert decoded.schema_ids == {7: 1}
    (bad,) = decoded.undecodable
    assert (bad.field, bad.reason) == (
        "key",
        "schema 7 is registered as orders-value, not orders-key",
    )
    assert decoded.batch.column("value").to_pylist() == [{"id": 2, "name": "x"}]


def test_a_proto_file_is_compiled_with_what_it_imports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "protos/parts").mkdir(parents=True)
    Path("protos/order.proto").write_text(PROTO)
    Path("protos/parts/money.proto").write_text(MONEY)
    spec = {"format": "protobuf", "schema": "protos/order.proto", "message": "shop.Order"}
    found = columns({"value": spec}).field("value").type
    assert found.names == ["id", "price"]
    assert found.field("price").type == pa.struct([("cents", pa.int64())])
    del spec["message"]
    with pytest.raises(JobFileError, match="2 messages"):
        columns({"value": spec})


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(JobFileError) as caught:
        look_up_row_format(job(value(schema=str(tmp_path / "gone.ddl"))))
    file = f"the schema file {tmp_path / 'gone.ddl'} cannot be read"
    assert caught.value.what == f"job:1: decode.value.schema: {file}"
    assert caught.value.facts["field"] == "decode.value.schema"
    bad = tmp_path / "bad.ddl"
    bad.write_bytes(b"\xff")
    with pytest.raises(JobFileError, match="it is not UTF-8"):
        look_up_row_format(job(value(schema=str(bad))))
    bad.write_text("id")
    with pytest.raises(JobFileError, match=r"bad\.ddl\) cannot be used"):
        look_up_row_format(job(value(schema=str(bad))))
