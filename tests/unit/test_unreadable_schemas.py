"""Schemas of records that the table's schema cannot take are refused before anything is read."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pytest

from rangeland.decode.payload.payload_decoder import UnknownFields
from rangeland.decode.payload.row_format import RowFormat
from rangeland.decode.payload.schema_ids.schema_catalogue import (
    LatestSchema,
    RegisteredSchema,
    SchemaCatalogue,
    SchemaFormat,
    SubjectVersion,
    TopicField,
    UnusableSchema,
)
from rangeland.errors import TableRefused
from rangeland.landing.drafts.schema_refusal import check_schemas_are_readable, unreadable_schemas
from rangeland.loss import Action
from rangeland.model import Partition, Slice
from rangeland.planning.policy import Policy
from rangeland.schema_registry.subject_names import SubjectNameStrategy
from rangeland.schema_registry.table_formats import TableFormats

VALUES = TopicField("orders", "value")
SUBJECT = "orders-value"
SLICES = [Slice(0, Partition("orders", 0), 0, 10)]
OLD, NEW = 3, 7


def record(**fields: object) -> RegisteredSchema:
    listed = [{"name": name, "type": kind} for name, kind in fields.items()]
    text = {"type": "record", "name": "Order", "fields": listed}
    return RegisteredSchema(SchemaFormat.AVRO, json.dumps(text))


def rows_of(old: RegisteredSchema | UnusableSchema, new: RegisteredSchema) -> RowFormat:
    catalogue = SchemaCatalogue(
        {OLD: old, NEW: new},
        {OLD: (SubjectVersion(SUBJECT, 1),), NEW: (SubjectVersion(SUBJECT, 2),)},
        {SUBJECT: LatestSchema(NEW, 2, new)},
    )
    tables = TableFormats(catalogue, SubjectNameStrategy.TOPIC, {VALUES: (OLD, NEW)})
    values = tables.without_schema("value", "avro", "", UnknownFields.DROP)
    return RowFormat(value=values, catalogue=catalogue)


class Census:
    """Which ids the records of slices have."""

    def __init__(self, *ids: int) -> None:
        self.ids, self.asked = ids, 0

    def __call__(self, slices: Sequence[Slice]) -> Mapping[TopicField, Iterable[int]]:
        self.asked += 1
        assert list(slices) == SLICES
        return {VALUES: self.ids}


def check(rows: RowFormat, census: Census, action: Action = Action.FAIL) -> None:
    check_schemas_are_readable(rows, Policy(undecodable=action), SLICES, census)


def test_a_type_that_changed_is_refused_with_field_types_and_ids() -> None:
    rows = rows_of(record(id="long", size="long"), record(id="long", size="string"))
    with pytest.raises(TableRefused) as refused:
        check(rows, Census(OLD, NEW))
    assert refused.value.exit_code == 73
    assert "the field size of records in orders" in refused.value.what
    assert "long in schema 3" in refused.value.why
    assert f"string in schema 7, the latest of {SUBJECT}" in refused.value.why
    expected = {"field": "size", "old_type": "long", "new_type": "string", "schema_ids": [OLD, NEW]}
    assert expected.items() <= refused.value.facts.items()


def test_records_outside_of_the_range_do_not_count() -> None:
    census = Census(NEW)
    check(rows_of(record(id="long"), record(id="string")), census)
    assert census.asked == 1


def test_records_that_are_kept_are_judged_one_by_one() -> None:
    census = Census(OLD)
    for action in (Action.QUARANTINE, Action.HOLD):
        check(rows_of(record(id="long"), record(id="string")), census, action)
    assert census.asked == 0
    with pytest.raises(TableRefused):
        check(rows_of(record(id="long"), record(id="string")), census, Action.SKIP)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (record(id="int"), record(id="long")),
        (record(id="long", gone="string"), record(id="long")),
        (record(id=["null", "long"]), record(id="long")),  # its nulls may never occur
        (
            record(kind={"type": "enum", "name": "K", "symbols": ["A", "B"]}),
            record(kind={"type": "enum", "name": "K", "symbols": ["A"]}),
        ),
        (UnusableSchema("it is gone"), record(id="long")),
        (RegisteredSchema(SchemaFormat.JSON, "{}"), record(id="long")),
    ],
)
def test_what_can_be_read_or_is_for_each_record_to_show(old: Any, new: RegisteredSchema) -> None:
    census = Census(OLD, NEW)
    check(rows_of(old, new), census)
    assert census.asked == 0


def test_nullable_fields_and_fields_without_a_default_count() -> None:
    found = unreadable_schemas(
        rows_of(record(id=["null", "long"]), record(id=["null", "string"])), "orders"
    )
    assert [(one.schema_id, one.field.path) for one in found] == [(OLD, "id")]
    found = unreadable_schemas(rows_of(record(id="long"), record(id="long", more="int")), "orders")
    assert [one.field.writer_type for one in found] == ["no field"]


def test_other_topics_and_plain_rows_have_none() -> None:
    rows = rows_of(record(id="long"), record(id="string"))
    assert unreadable_schemas(rows, "bills") == []
    assert unreadable_schemas(None, "orders") == []
    assert unreadable_schemas(RowFormat(), "orders") == []
