"""A table that cannot follow its rows: which schemas were written, and which are now the latest."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest

from rangeland.decode.payload.row_format import RowFormat
from rangeland.decode.payload.schema_ids.subject_formats import SubjectFormats
from rangeland.errors import TableRefused
from rangeland.landing.drafts.schema_refusal import naming_schemas
from rangeland.landing.target.job_history import JobHistory

VALUES = SubjectFormats("avro", pa.struct([]), {}, {"orders-value": 9})


def refused(row_format: RowFormat | None, *landed: tuple[tuple[int, int], ...]) -> TableRefused:
    """The refusal, after landings with these ids."""
    outcomes = [(None, SimpleNamespace(schema_ids=ids)) for ids in landed]
    history = cast(JobHistory, SimpleNamespace(landings=lambda: outcomes))
    with pytest.raises(TableRefused) as raised, naming_schemas(history, row_format):
        raise TableRefused("column id is BIGINT", why="the rows have STRING there", do="Convert it")
    return raised.value


def test_the_schemas_of_both_are_named() -> None:
    error = refused(RowFormat(value=VALUES), ((1, 5),), ((5, 2), (6, 1)), ())
    assert str(error) == (
        "column id is BIGINT: the rows have STRING there; they have schema 9, the latest of "
        "orders-value, and the last landing was written with 5, 6. Convert it."
    )
    assert error.facts["schema_ids"] == [5, 6, 9]


@pytest.mark.parametrize(
    ("row_format", "landed"),
    [
        (None, [((1, 1),)]),
        (RowFormat(), [((1, 1),)]),
        (RowFormat(value=VALUES), []),
        (RowFormat(value=VALUES), [((9, 1),)]),
    ],
    ids=["bytes", "no registry", "nothing landed", "the same schema"],
)
def test_otherwise_the_refusal_is_as_it_was(row_format: RowFormat | None, landed: Any) -> None:
    assert refused(row_format, *landed).why == "the rows have STRING there"
