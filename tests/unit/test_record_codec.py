"""Dataclasses as flat records, and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from rangeland.record_codec import ColumnType, RecordCodec
from rangeland.untrusted import Unreadable


@dataclass(frozen=True, slots=True)
class Spot:
    name: str
    side: str = ""


@dataclass(frozen=True, slots=True)
class Size:
    width: int = 0
    height: int = 0


@dataclass(frozen=True, slots=True)
class Thing:
    spot: Spot
    when_ms: int
    size: Size | None = None
    steps: tuple[tuple[int, int], ...] = ()
    note: tuple[int, str] | None = None
    near: Mapping[Spot, tuple[Size, ...]] = field(default_factory=dict)
    labels: Mapping[str, str | None] = field(default_factory=dict)
    is_new: bool = False


CODEC = RecordCodec(
    names={Thing: {"when_ms": "when"}, Spot: {"name": "spot"}},
    parts={"steps": ("first", "last")},
    columns={"when": ColumnType(str, lambda ms: f"{ms} ms", lambda text: int(text.split()[0]))},
    omitted={},
)
THING = Thing(
    Spot("a"),
    5,
    Size(1, 2),
    ((3, 4),),
    (7, "why"),
    {Spot("b", "left"): (Size(1, 1), Size(2, 2))},
    {"k": None},
    True,
)
RECORD = {
    "spot": "a",
    "side": None,
    "when": "5 ms",
    "width": 1,
    "height": 2,
    "steps": [{"first": 3, "last": 4}],
    "note": [7, "why"],
    "near": [
        {"spot": "b", "side": "left", "width": 1, "height": 1},
        {"spot": "b", "side": "left", "width": 2, "height": 2},
    ],
    "labels": [("k", None)],
    "is_new": True,
}


def test_a_record_has_the_columns_of_the_fields_in_their_order() -> None:
    assert CODEC.write(THING) == RECORD
    assert list(CODEC.write(THING)) == list(RECORD) == list(CODEC.columns_of(Thing))
    assert CODEC.read(Thing, RECORD) == THING


def test_columns_that_are_null_or_missing_are_read_as_the_defaults() -> None:
    thing = Thing(Spot("a"), 5)
    written = CODEC.write(thing)
    assert [name for name, value in written.items() if value is None] == [
        *("side", "width", "height", "note", "is_new")
    ]
    assert CODEC.read(Thing, written) == thing
    assert CODEC.read(Thing, {"spot": "a", "when": "5 ms"}) == thing


def test_fields_and_columns_can_be_left_out() -> None:
    codec = RecordCodec(names={}, parts={}, columns={}, omitted={Thing: ["near", "height"]})
    assert {"near", "height"}.isdisjoint(codec.write(THING))
    assert {"near", "height"}.isdisjoint(codec.columns_of(Thing))
    assert codec.read(Thing, codec.write(THING), near={}).near == {}


@pytest.mark.parametrize(
    "changed",
    [
        {"spot": None},
        {"spot": 1},
        {"width": "1"},
        {"width": True},
        {"steps": 3},
        {"steps": [[3, 4]]},
        {"steps": [{"first": 3}]},
        {"note": [7]},
        {"note": "ab"},
        {"near": [5]},
        {"is_new": 1},
    ],
)
def test_values_of_another_type_are_refused(changed: dict[str, Any]) -> None:
    with pytest.raises(Unreadable):
        CODEC.read(Thing, RECORD | changed)
