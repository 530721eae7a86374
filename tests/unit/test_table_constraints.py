"""What a table demands of its rows, as conditions."""

from __future__ import annotations

import json

import pytest

from rangeland.decode.columns import LogColumns
from rangeland.delta.table_metadata import TableMetadata
from rangeland.delta.table_schema.table_constraints import (
    RecordPlace,
    constraints_of,
    violation_error,
)
from rangeland.errors import TableRefused


def table(*fields: dict[str, object], **configuration: str) -> TableMetadata:
    schema = json.dumps({"type": "struct", "fields": list(fields)})
    given = {f"delta.constraints.{name}": text for name, text in configuration.items()}
    return TableMetadata("file:/t", 1, schema, (), {"delta.appendOnly": "true", **given})


def field(name: str, **metadata: object) -> dict[str, object]:
    return {"name": name, "type": "long", "nullable": True, "metadata": metadata}


def test_conditions_of_all_kinds_are_in_the_order_of_their_names() -> None:
    invariant = json.dumps({"expression": {"expression": "n > 3"}})
    found = constraints_of(
        table(
            field("z`s", **{"delta.generationExpression": "n + 1"}),
            field("n", **{"delta.invariants": invariant}),
            field("plain"),
            positive="offset > 0",
        )
    )
    assert [(one.name, one.condition, one.text) for one in found] == [
        ("n", "n > 3", "invariant (n > 3)"),
        ("positive", "offset > 0", "CHECK (offset > 0)"),
        ("z`s", "`z``s` <=> (n + 1)", "GENERATED ALWAYS AS (n + 1)"),
    ]


@pytest.mark.parametrize("text", ["{}", "no JSON", '{"expression": {"expression": 3}}'])
def test_an_invariant_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(TableRefused, match="column n"):
        constraints_of(table(field("n", **{"delta.invariants": text})))


def test_a_refusal_names_the_constraint_and_the_record() -> None:
    (constraint,) = constraints_of(table(positive="offset > 0"))
    row = {"_topic": "a", "_partition": 0, "_offset": 7}
    error = violation_error(constraint, "lake/t", RecordPlace.of(row, LogColumns("_")))
    text = str(error)
    assert "the record of a/0 at offset 7 violates the constraint positive of table lake/t" in text
    assert "CHECK (offset > 0)" in text
    assert (error.exit_code, error.facts["offset"]) == (73, 7)
    assert str(RecordPlace.of({}, LogColumns())) == "a row"
