"""How a table's schema follows its rows: added fields, wider types, and what does not fit."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from rangeland.delta.table_metadata import TableMetadata
from rangeland.delta.table_schema.arrow_schema import schema_json
from rangeland.delta.table_schema.schema_compatibility import row_layout
from rangeland.delta.table_schema.schema_evolution import (
    WIDENING_PROPERTY,
    Evolution,
    Misfit,
    as_written,
    evolve_schema,
    follow,
    takes,
)
from rangeland.errors import TableRefused

WIDENING = {WIDENING_PROPERTY: "true"}


def rows(**columns: pa.DataType) -> pa.Schema:
    return pa.schema(columns)


def table(schema: pa.Schema, **facts: Any) -> TableMetadata:
    return TableMetadata("file:/lake/orders", 4, schema_json(schema), **facts)


def widening(schema: pa.Schema, **facts: Any) -> TableMetadata:
    features = frozenset({"typeWidening"})
    return table(schema, configuration=WIDENING, features=features, **facts)


def fields_of(text: str) -> dict[str, Any]:
    return {field["name"]: field for field in json.loads(text)["fields"]}


ORDERED = ["byte", "short", "integer", "long"]


@pytest.mark.parametrize(
    ("narrow", "wide"),
    [
        *((a, b) for n, a in enumerate(ORDERED) for b in ORDERED[n + 1 :]),
        ("float", "double"),
        ("decimal(10,2)", "decimal(12,2)"),
        ("decimal(10,2)", "decimal(12,4)"),
    ],
)
def test_a_wide_type_takes_narrow_values_and_not_the_other_way_round(
    narrow: str, wide: str
) -> None:
    assert takes(wide, narrow)
    assert not takes(narrow, wide)


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("double", "integer"),
        ("decimal(20,0)", "long"),
        ("decimal(12,4)", "decimal(11,2)"),
        ("timestamp_ntz", "date"),
        ("string", "long"),
        ("timestamp", "timestamp_ntz"),
    ],
)
def test_other_types_do_not_take_each_other(theirs: str, ours: str) -> None:
    """Also where Delta can change the type, but does so only if it is asked to."""
    assert not takes(theirs, ours)
    assert not takes(ours, theirs)


def test_new_fields_are_nullable_and_named_by_their_path() -> None:
    item, more = pa.struct({"a": pa.int32()}), pa.struct({"a": pa.int32(), "b": pa.string()})
    old = rows(value=item, items=pa.list_(item), sizes=pa.map_(pa.string(), item))
    new = rows(value=more, items=pa.list_(more), sizes=pa.map_(pa.string(), more), id=pa.int64())
    change = evolve_schema(schema_json(old), schema_json(new))
    assert list(change.added) == ["value.b", "items.element.b", "sizes.value.b", "id"]
    assert fields_of(change.schema_json)["id"]["nullable"]
    assert not change.misfits
    same = evolve_schema(schema_json(new), schema_json(old))
    assert (same.is_any, same.schema_json) == (False, schema_json(new))


def test_fields_that_are_ignored_are_not_written() -> None:
    item, more = pa.struct({"a": pa.int32()}), pa.struct({"a": pa.int32(), "b": pa.string()})
    old = rows(value=item, items=pa.list_(pa.field("element", item)))
    new = rows(value=more, items=pa.list_(pa.field("element", more)), id=pa.int64())
    assert follow(table(old), new, Evolution.IGNORE, ()) == (table(old), old)


def test_a_type_is_widened_where_the_table_allows_it() -> None:
    old = rows(id=pa.int32(), price=pa.decimal128(10, 2), name=pa.string())
    new = rows(id=pa.int64(), price=pa.decimal128(12, 2), name=pa.string())
    made, written = follow(widening(old), new, Evolution.ADD, ())
    assert row_layout(made, written).layout.schema.equals(new)
    found = fields_of(made.schema_json)
    assert found["id"]["metadata"] == {
        "delta.typeChanges": [{"fromType": "integer", "toType": "long"}]
    }
    assert found["price"]["metadata"] == {
        "delta.typeChanges": [{"fromType": "decimal(10,2)", "toType": "decimal(12,2)"}]
    }
    assert found["name"]["metadata"] == {}
    # Narrower rows fit the wider column, and change nothing.
    again, _ = follow(made, old, Evolution.ADD, ())
    assert again == made
    assert row_layout(again, old).layout.schema.equals(new)


def test_each_change_of_a_type_is_kept_with_the_path_to_it() -> None:
    def of(kind: pa.DataType) -> str:
        inner = pa.struct({"sizes": pa.map_(pa.string(), pa.list_(kind))})
        return schema_json(rows(value=inner))

    once = evolve_schema(of(pa.int8()), of(pa.int16()), widens=True)
    twice = evolve_schema(once.schema_json, of(pa.int64()), widens=True)
    assert twice.widened == ["value.sizes.value.element"]
    value = fields_of(twice.schema_json)["value"]
    assert value["metadata"] == {}
    (sizes,) = value["type"]["fields"]
    assert sizes["metadata"]["delta.typeChanges"] == [
        {"fromType": "byte", "toType": "short", "fieldPath": "value.element"},
        {"fromType": "short", "toType": "long", "fieldPath": "value.element"},
    ]


def test_files_that_are_written_fit_only_columns_of_their_types() -> None:
    """Rows get the table's types when they are written. A column that another commit adds
    meanwhile may be wider: only a table with type widening has files of both."""
    inner = pa.struct({"a": pa.int32(), "b": pa.list_(pa.int32())})
    wide = pa.struct({"A": pa.int64(), "b": pa.list_(pa.int64()), "c": pa.string()})
    ours, theirs = schema_json(rows(value=inner, id=pa.int8())), schema_json(rows(value=wide))
    change = evolve_schema(theirs, ours, are_written=True)
    assert [one.field for one in change.misfits] == ["value.A", "value.b.element"]
    written = as_written(theirs, ours)
    made = pa.struct({"a": pa.int64(), "b": pa.list_(pa.int64())})
    assert json.loads(written) == json.loads(schema_json(rows(value=made, id=pa.int8())))
    assert not evolve_schema(theirs, written, are_written=True).misfits
    # What does not fit stays as it is, and is found.
    assert as_written(schema_json(rows(id=pa.string())), schema_json(INT)) == schema_json(INT)


INT, LONG = rows(id=pa.int32()), rows(id=pa.int64())
PREVIEW = table(INT, configuration=WIDENING, features=frozenset({"typeWidening-preview"}))


@pytest.mark.parametrize(
    ("found", "evolution"),
    [
        (table(INT), Evolution.ADD),
        (PREVIEW, Evolution.ADD),
        (widening(INT), Evolution.FAIL),
        (widening(INT), Evolution.IGNORE),
        (widening(INT, partition_columns=("id",)), Evolution.ADD),
    ],
)
def test_elsewhere_a_wider_type_is_refused_with_what_would_allow_it(
    found: TableMetadata, evolution: Evolution
) -> None:
    made, written = follow(found, LONG, evolution, ())
    with pytest.raises(TableRefused, match="column id of table file:/lake/orders is INT") as caught:
        row_layout(made, written)
    text = str(caught.value)
    assert "the rows have BIGINT there" in text
    assert f"SET TBLPROPERTIES ('{WIDENING_PROPERTY}' = 'true')" in text
    assert caught.value.facts["new_type"] == "BIGINT"


def test_what_does_not_fit_inside_of_a_struct_is_named_with_both_types() -> None:
    old, new = ({"a": kind} for kind in (pa.int64(), pa.string()))
    made, written = follow(
        widening(rows(value=pa.struct(old))), rows(value=pa.struct(new)), Evolution.ADD, ()
    )
    with pytest.raises(TableRefused) as caught:
        row_layout(made, written)
    assert str(caught.value) == (
        "column value.a of table file:/lake/orders is BIGINT: the rows have STRING there. Convert "
        "it in a transform, or land in another table."
    )


def test_a_struct_is_not_a_number_nor_a_list() -> None:
    struct, listed = pa.struct({"a": pa.int64()}), pa.list_(pa.int64())
    for old, new in ((struct, listed), (struct, pa.int64()), (pa.int64(), struct)):
        change = evolve_schema(schema_json(rows(x=old)), schema_json(rows(x=new)), widens=True)
        assert [one.field for one in change.misfits] == ["x"]
        assert not change.misfits[0].is_widening


def test_a_required_field_that_rows_lack_is_named() -> None:
    inner = [pa.field("a", pa.int64()), pa.field("b", pa.int64(), nullable=False)]
    old = rows(value=pa.struct(inner))
    change = evolve_schema(schema_json(old), schema_json(rows(value=pa.struct(inner[:1]))))
    assert change.misfits == [Misfit("value.b", "long", None)]
    with pytest.raises(TableRefused, match=r"column value\.b of table .* is NOT NULL"):
        row_layout(table(old), rows(value=pa.struct(inner[:1])))


def test_a_nested_field_that_rows_have_is_refused_with_the_statement_to_run() -> None:
    old, new = pa.struct({"a": pa.int64()}), pa.struct({"a": pa.int64(), "b": pa.float64()})
    with pytest.raises(TableRefused) as caught:
        row_layout(table(rows(value=old)), rows(value=new))
    assert caught.value.facts["statement"] == (
        "ALTER TABLE delta.`/lake/orders` ADD COLUMNS (value.b DOUBLE)"
    )
