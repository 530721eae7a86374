"""Dataclasses as flat records, and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

import pytest

from rangeland.record_codec import ColumnType, RecordCodec
from rangeland.untrusted import Unreadable


@dataclass(frozen=True, slots=True, order=True)
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


# --- views --------------------------------------------------------------------------------


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True, slots=True)
class Box:
    spot: Spot
    size: Size | None = None
    colour: Colour = Colour.RED
    is_open: bool = False
    near: Mapping[Spot, Size] = field(default_factory=dict)
    hidden: int = 7
    owners: frozenset[str] = frozenset()

    @property
    def area(self) -> int:
        return 0 if self.size is None else self.size.width * self.size.height


VIEWED = RecordCodec(
    views={Box: "area *spot size colour? is_open? near=beside owners", Spot: "name=at side"},
)
BOX = Box(
    Spot("a"),
    Size(2, 3),
    Colour.BLUE,
    True,
    {Spot("c"): Size(), Spot("b"): Size(1)},
    7,
    frozenset("yx"),
)
VIEW: dict[str, Any] = {
    "area": 6,
    "at": "a",
    "side": None,
    "size": {"width": 2, "height": 3},
    "colour": "blue",
    "is_open": True,
    "beside": [
        {"at": "b", "side": None, "width": 1, "height": 0},
        {"at": "c", "side": None, "width": 0, "height": 0},
    ],
    "owners": ["x", "y"],
}


def test_a_view_lists_the_columns_of_a_class_in_order() -> None:
    assert VIEWED.write(BOX) == VIEW
    assert list(VIEWED.write(BOX)) == list(VIEW) == list(VIEWED.columns_of(Box))
    assert VIEWED.read(Box, VIEW) == BOX


def test_defaults_may_be_left_out_where_a_view_says_so() -> None:
    box = replace(BOX, colour=Colour.RED, is_open=False)
    written = VIEWED.write(box)
    assert VIEW.keys() - written.keys() == {"colour", "is_open"}
    assert VIEWED.read(Box, written) == box


def test_another_view_of_a_class_leaves_the_first_as_it_is() -> None:
    other = VIEWED.with_views({Spot: "name=at"})
    assert other.write(BOX).keys() == VIEW.keys() - {"side"}
    assert VIEWED.write(BOX) == VIEW


def test_what_is_blank_depends_on_the_codec() -> None:
    codec = RecordCodec(blanks=[""], views={Box: "*spot is_open"})
    assert codec.write(Box(Spot("a"))) == {"name": "a", "side": None, "is_open": False}


@pytest.mark.parametrize("name", ["at", "beside", "owners"])
def test_what_a_view_always_writes_has_to_be_there(name: str) -> None:
    with pytest.raises(Unreadable, match=f"{name}: expected a value, missing"):
        VIEWED.read(Box, {key: value for key, value in VIEW.items() if key != name})


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"colour": "green"}, "colour: expected one of red, blue, not 'green'"),
        ({"colour": 1}, "colour: expected text, not 1"),
        ({"size": 5}, "Size: expected an object, not 5"),
        ({"beside": {}}, "beside: expected a list, not an object"),
        ({"is_open": "no"}, "is_open: expected true or false, not 'no'"),
    ],
)
def test_a_value_of_another_type_in_a_view_is_refused(changed: dict[str, Any], why: str) -> None:
    with pytest.raises(Unreadable, match=why):
        VIEWED.read(Box, VIEW | changed)
