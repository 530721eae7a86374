"""Several subjects of a schema registry in one column, and in one table."""

from __future__ import annotations

import io
import json
import pickle
import struct
from dataclasses import replace
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rangeland.cluster_access.registry_lookup import registered_as
from rangeland.decode.payload.avro.avro_format import AvroDecoder
from rangeland.decode.payload.payload_decoder import DecodedPayloads, Undecodable, UnknownFields
from rangeland.decode.payload.row_format import RowFormat
from rangeland.decode.payload.schema_ids.schema_catalogue import (
    LatestSchema,
    RegisteredSchema,
    SchemaCatalogue,
    SchemaFormat,
    SubjectVersion,
    TopicField,
)
from rangeland.decode.payload.schema_ids.subject_formats import (
    SubjectFormats,
    TypeConflict,
    fit_values,
    merge_types,
)
from rangeland.errors import JobFileError, TableRefused, Unreachable
from rangeland.schema_registry.executor_schemas import ExecutorSchemas
from rangeland.schema_registry.subject_names import SubjectNameStrategy
from rangeland.schema_registry.table_formats import TableFormats
from tests.fakes.schemas import decode_framed

TOPIC, RECORD, BOTH_NAMES = SubjectNameStrategy


def record(name: str, /, **fields: Any) -> dict[str, Any]:
    listed = [{"name": field, "type": kind} for field, kind in fields.items()]
    return {"type": "record", "name": name, "fields": listed}


ORDER = record("Order", id="long", shop=record("Shop", city="string"))
BILL = record("Bill", ID="long", cents="long", shop=record("Shop", open="boolean"))
SCHEMAS = {1: ORDER, 2: BILL}


def payload(schema_id: int, value: Any) -> bytes:
    written = io.BytesIO()
    fastavro.schemaless_writer(written, SCHEMAS[schema_id], value)
    return b"\0" + struct.pack(">i", schema_id) + written.getvalue()


FIRST = payload(1, {"id": 1, "shop": {"city": "Bern"}})
SECOND = payload(2, {"ID": 2, "cents": 3, "shop": {"open": True}})


def tables(
    strategy: SubjectNameStrategy, subjects: dict[int, str], seen: dict[str, tuple[int, ...]]
) -> TableFormats:
    """A registry with these subjects, and topics whose values have these ids."""
    schemas = {
        one: RegisteredSchema(SchemaFormat.AVRO, json.dumps(SCHEMAS[one])) for one in SCHEMAS
    }
    catalogue = SchemaCatalogue(
        schemas=schemas,
        versions={one: (SubjectVersion(name, 1),) for one, name in subjects.items()},
        latest={name: LatestSchema(one, 1, schemas[one]) for one, name in subjects.items()},
    )
    ids = {TopicField(topic, "value"): found for topic, found in seen.items()}
    return TableFormats(catalogue, strategy, ids)


def registered(made: TableFormats) -> RowFormat:
    found = made.without_schema("value", "avro", "", UnknownFields.DROP)
    assert isinstance(found, SubjectFormats)
    return RowFormat(value=found, catalogue=made.catalogue)


def decoded(formats: RowFormat, topic: str, payloads: list[bytes | None]) -> DecodedPayloads:
    sent = pickle.loads(pickle.dumps(formats))
    decoder, schemas = sent.value.of_topic(topic).decoder(), ExecutorSchemas(sent.catalogue)
    found = decode_framed(decoder, pa.array(payloads, pa.binary()), schemas)
    assert formats.value is not None
    assert found.values.type == formats.value.arrow_type
    found.values.validate(full=True)
    return found


BOTH = {1: "orders-value", 2: "bills-value"}
WANTED = [
    {"ID": 1, "cents": None, "shop": {"open": None, "city": "Bern"}},
    {"ID": 2, "cents": 3, "shop": {"open": True, "city": None}},
]


def test_two_topics_share_the_columns_of_both() -> None:
    formats = registered(tables(TOPIC, BOTH, {"orders": (1,), "bills": (2,), "empty": ()}))
    orders = decoded(formats, "orders", [FIRST, None, SECOND, b""])
    assert orders.values.to_pylist() == [WANTED[0], None, None, None]
    assert [(one.row, one.schema_id, one.reason) for one in orders.undecodable] == [
        (2, 2, "schema 2 is registered as bills-value, not orders-value"),
        (3, None, "it is too short for a magic byte and a schema id"),
    ]
    assert orders.schema_ids == {1: 1, 2: 1}
    assert decoded(formats, "bills", [SECOND]).values.to_pylist() == [WANTED[1]]
    empty = decoded(formats, "empty", [None, FIRST])
    assert [(one.row, one.reason) for one in empty.undecodable] == [
        (1, "the schema registry had no schema for empty when the run began")
    ]
    schemas = ExecutorSchemas(formats.catalogue)
    assert registered_as(schemas, formats, 2) == SubjectVersion("bills-value", 1)
    assert registered_as(schemas, formats, 9) is None
    assert registered_as(schemas, RowFormat(), 1) is None
    assert registered_as(schemas, None, 1) is None


def test_a_topic_has_records_of_several_subjects() -> None:
    formats = registered(tables(RECORD, {1: "Order", 2: "Bill"}, {"all": (1, 2)}))
    unknown = b"\0\0\0\0\x09"
    found = decoded(formats, "all", [SECOND, unknown, FIRST, None, b"{}", SECOND])
    assert found.values.to_pylist() == [WANTED[1], None, WANTED[0], None, None, WANTED[1]]
    assert [(one.row, one.schema_id) for one in found.undecodable] == [(1, 9), (4, None)]
    assert found.schema_ids == {1: 1, 2: 2, 9: 1}


def test_what_takes_much_memory_is_decoded_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    decode = AvroDecoder.decode
    monkeypatch.setattr(AvroDecoder, "decode", lambda self, given: decode(self, given.slice(0, 2)))
    formats = registered(tables(RECORD, {1: "Order", 2: "Bill"}, {"all": (1, 2)}))
    assert formats.value is not None
    decoder, schemas = formats.value.of_topic("all").decoder(), ExecutorSchemas(formats.catalogue)
    left = pa.array([FIRST, SECOND, SECOND, b"x", SECOND, FIRST, FIRST], pa.binary())
    pieces = []
    while len(left):
        pieces.append(decode_framed(decoder, left, schemas))
        left = left.slice(len(pieces[-1].values))
    # What has no id counts as of the first subject, Bill.
    assert [len(one.values) for one in pieces] == [3, 4]
    assert [one.schema_ids for one in pieces] == [{1: 1, 2: 2}, {1: 2, 2: 1}]
    assert [[bad.row for bad in one.undecodable] for one in pieces] == [[], [0]]
    values = [value for one in pieces for value in one.values.to_pylist()]
    first, second = WANTED
    assert values == [first, second, second, None, second, first, first]


@given(
    st.lists(
        st.none() | st.binary(max_size=9) | st.binary(max_size=9).map(b"\0\0\0\0".__add__),
        max_size=9,
    )
)
def test_any_bytes_are_decoded_or_named(payloads: list[bytes | None]) -> None:
    for topic, seen, sound in (("all", (1, 2), [FIRST, SECOND]), ("none", (), [])):
        formats = registered(tables(RECORD, {1: "Order", 2: "Bill"}, {"all": (1, 2), topic: seen}))
        whole = [*payloads, *sound]
        found = decoded(formats, topic, whole)
        bad = {one.row for one in found.undecodable}
        values = found.values.to_pylist()
        assert len(values) == len(whole)
        assert bad == {row for row, it in enumerate(whole) if it is not None} - {
            row for row, value in enumerate(values) if value is not None
        }
        assert values[len(payloads) :] == (WANTED if sound else [])


def test_a_subject_of_the_topic_that_was_not_seen_is_no_fault_of_the_record() -> None:
    """It ends the reading, whatever the policy: nothing is skipped for it."""
    for strategy, names in ((RECORD, ("Order", "Bill")), (BOTH_NAMES, ("all-Order", "all-Bill"))):
        formats = registered(tables(strategy, dict(zip((1, 2), names, strict=True)), {"all": (1,)}))
        with pytest.raises(JobFileError, match=f"schema 2, which is registered as {names[1]}"):
            decoded(formats, "all", [FIRST, SECOND])
    formats = registered(tables(BOTH_NAMES, {1: "all-Order", 2: "else-Bill"}, {"all": (1,)}))
    (bad,) = decoded(formats, "all", [FIRST, SECOND]).undecodable
    assert bad.reason == "schema 2 is registered as else-Bill, not all-Order"


def test_a_field_that_cannot_be_read_is_named_with_both_schemas(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(SCHEMAS, 2, record("Order", id="int", shop=ORDER["fields"][1]["type"]))
    made = tables(TOPIC, {1: "orders-value", 2: "orders-value"}, {"orders": (1, 2)})
    (bad,) = decoded(registered(made), "orders", [FIRST]).undecodable
    assert bad == Undecodable(0, "long cannot be read as int in schema 2 (byte 5, field id)", 1)


def test_types_that_disagree_are_refused_with_both_schemas(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    other = record("Bill", id="long", shop=record("Shop", city="long"))
    monkeypatch.setitem(SCHEMAS, 2, other)
    with pytest.raises(TableRefused) as raised:
        registered(tables(TOPIC, BOTH, {"orders": (), "bills": ()}))
    assert str(raised.value).startswith(
        "the field shop.city would have two types in one table: it is BIGINT in schema 2, the "
        "latest of bills-value, and STRING in schema 1, the latest of orders-value."
    )


def test_what_has_no_schema_or_another_format_is_refused() -> None:
    with pytest.raises(JobFileError, match="there is no subject others-value"):
        registered(tables(TOPIC, BOTH, {"others": ()}))
    with pytest.raises(JobFileError, match="no record shows their subject"):
        registered(tables(RECORD, BOTH, {"orders": ()}))
    made = tables(TOPIC, BOTH, {"orders": ()})
    with pytest.raises(JobFileError, match="it is avro, and the job file says json"):
        made.without_schema("value", "json", "", UnknownFields.DROP)


@pytest.mark.parametrize(("strategy", "prefix"), [(RECORD, ""), (BOTH_NAMES, "all-")])
def test_a_schema_without_subjects_has_that_of_its_name(
    strategy: SubjectNameStrategy, prefix: str
) -> None:
    """Its subject was deleted: it is never read as another record type."""
    made = tables(strategy, {1: f"{prefix}Order", 2: f"{prefix}Bill"}, {"all": (1, 2)})
    bare = replace(made.catalogue, versions={})
    both = registered(replace(made, catalogue=bare))
    found = decoded(both, "all", [FIRST, SECOND])
    assert found.values.to_pylist() == WANTED
    assert list(found.undecodable) == []
    made = replace(made, catalogue=bare, seen={TopicField("all", "value"): (1,)})
    with pytest.raises(JobFileError, match=f"schema 2, which belongs to {prefix}Bill"):
        decoded(registered(made), "all", [FIRST, SECOND])


def with_empty(
    strategy: SubjectNameStrategy, subjects: dict[int, str], versions: tuple[SubjectVersion, ...]
) -> RowFormat:
    """The registry has no schema for the topic ``empty``, and id 2 is registered there."""
    made = tables(strategy, subjects, {"orders": (1,), "empty": ()})
    known = replace(made.catalogue, versions={**made.catalogue.versions, 2: versions})
    return registered(replace(made, catalogue=known))


def test_a_sound_record_of_a_topic_without_a_schema_is_no_fault_of_the_record() -> None:
    other = SubjectVersion("bills-value", 1)
    own = SubjectVersion("empty-value", 1)
    with pytest.raises(Unreachable, match="no schema for empty when the run began") as raised:
        decoded(with_empty(TOPIC, BOTH, (other, own)), "empty", [SECOND])
    assert raised.value.why == "schema 2, which a record names, is registered as empty-value"
    with pytest.raises(JobFileError, match="no columns for schema 2, which is registered nowhere"):
        decoded(with_empty(TOPIC, BOTH, ()), "empty", [SECOND])
    both = {1: "orders-Order", 2: "empty-Bill"}
    for versions in ((), (SubjectVersion("empty-Bill", 1),)):
        with pytest.raises(JobFileError, match=r"no columns for schema 2, which .* empty-Bill"):
            decoded(with_empty(BOTH_NAMES, both, versions), "empty", [SECOND])


def test_of_a_topic_that_the_driver_has_not_seen_nothing_is_undecodable_for_its_subject() -> None:
    formats = registered(tables(TOPIC, BOTH, {"orders": (1,)}))
    with pytest.raises(JobFileError, match="no schema for unseen when the run began"):
        decoded(formats, "unseen", [SECOND])


def test_a_record_of_another_topics_schema_is_undecodable_in_a_topic_without_one() -> None:
    reason = "the schema registry had no schema for empty when the run began"
    for strategy, subjects in ((TOPIC, BOTH), (BOTH_NAMES, {1: "orders-Order", 2: "bills-Bill"})):
        versions = (SubjectVersion(subjects[2], 1),)
        found = decoded(with_empty(strategy, subjects, versions), "empty", [None, SECOND, b"x"])
        assert found.values.to_pylist() == [None, None, None]
        assert [(one.row, one.reason) for one in found.undecodable] == [(1, reason), (2, reason)]


def test_a_schema_without_subjects_and_name_is_of_no_subject() -> None:
    made = tables(RECORD, {1: "Order", 2: "Bill"}, {"all": (1, 2)})
    unnamed = RegisteredSchema(SchemaFormat.AVRO, json.dumps(["null", ORDER]))
    catalogue = replace(made.catalogue, schemas={**made.catalogue.schemas, 3: unnamed})
    with pytest.raises(JobFileError, match="schema 3, which is registered nowhere"):
        decoded(registered(replace(made, catalogue=catalogue)), "all", [b"\0\0\0\0\x03\0"])


TEXT, LONG = pa.string(), pa.int64()
STRUCT = pa.struct([("a", LONG)])
MORE = pa.struct([("A", LONG), ("b", TEXT)])
LESS, FULL = {"a": 1}, {"a": 1, "b": None}


@pytest.mark.parametrize(
    ("one", "other", "together", "value", "as_it_becomes"),
    [
        (pa.struct([("a", pa.int32())]), STRUCT, STRUCT, LESS, LESS),
        (pa.float32(), pa.float64(), pa.float64(), 0.5, 0.5),
        (STRUCT, MORE, pa.struct([("a", LONG), ("b", TEXT)]), LESS, FULL),
        (pa.list_(STRUCT), pa.list_(MORE), None, [LESS], [FULL]),
        (pa.map_(TEXT, STRUCT), pa.map_(TEXT, MORE), None, [("k", LESS)], [("k", FULL)]),
    ],
)
def test_values_get_the_fields_that_they_lack(
    one: pa.DataType, other: pa.DataType, together: Any, value: Any, as_it_becomes: Any
) -> None:
    kind = merge_types(one, other)
    assert isinstance(kind, pa.DataType)
    assert together is None or kind == together
    given = pa.array([value, None, value], one)
    assert fit_values(given, kind).to_pylist() == [as_it_becomes, None, as_it_becomes]


@pytest.mark.parametrize(
    ("one", "other", "path"),
    [
        (STRUCT, pa.struct([("a", pa.float64())]), "a"),
        (pa.struct([("l", pa.list_(STRUCT))]), pa.struct([("l", STRUCT)]), "l"),
        (pa.struct([("l", pa.list_(STRUCT))]), pa.struct([("l", pa.list_(LONG))]), "l.element"),
        (pa.map_(TEXT, LONG), pa.map_(TEXT, pa.bool_()), "value"),
        (pa.map_(TEXT, LONG), pa.map_(LONG, LONG), ""),
    ],
)
def test_other_types_are_in_conflict(one: pa.DataType, other: pa.DataType, path: str) -> None:
    found = merge_types(one, other)
    assert isinstance(found, TypeConflict)
    assert found.path == path
