"""Which messages of a text the message indexes of a payload may mean."""

from __future__ import annotations

import pytest

from rangeland.decode.payload.protobuf.message_indexes import ProtoText

TEXT = """
syntax = "proto3"; // message Comment {
package p;
/* message Other { */
option x = "message Text {";
message First { message Inner { enum E { A = 0; } } oneof o { int32 message = 1; } Inner i = 2; }
enum Between { Z = 0; }
message Pair { int32 number = 1; string text = 2; }
"""


def test_the_places_of_messages_are_read_from_the_text_of_a_schema() -> None:
    text = ProtoText(TEXT)
    assert text.likely_indexes("p.First") == {(0,)}
    assert text.likely_indexes("p.First.Inner") == {(0, 0)}
    assert text.likely_indexes("p.Pair") == {(1,)}
    assert text.likely_indexes("p.Comment") == set()
    assert text.meanings([0]) == ["p.First"]
    assert text.meanings([0, 0]) == ["p.First.Inner"]
    assert text.meanings([1]) == ["p.Pair"]
    assert text.meanings([2]) == text.meanings([0, 1]) == text.meanings([1, 0]) == []


def test_damaged_text_has_no_messages() -> None:
    assert ProtoText("}} { message X { ").meanings([0]) == []


def meanings(text: str, *first: int) -> list[list[str]]:
    """What the indexes mean that end in 0, 1, 2 and 3."""
    return [ProtoText(text).meanings([*first, last]) for last in range(4)]


@pytest.mark.parametrize(
    "text",
    [
        "message M { map<string, int32> a = 1; message B {} message C {} }",
        "message M { message B {} message C {} map <string, .p.X> a = 1; }",
        "message M { message B {} message C {} repeated AEntry a = 1; "
        "message AEntry { option map_entry = true; string key = 1; } }",
        "message M { optional group A = 1 { message X {} map<int32, int32> y = 1; } "
        "message B {} message C {} }",
        "message M { oneof o { group A = 1 [deprecated = true] { } } message B {} message C {} }",
        "message M { message B {} message C {} extend O { optional group A = 100 { } } }",
    ],
)
def test_a_map_entry_or_a_group_may_count_before_any_message(text: str) -> None:
    assert meanings(text, 0) == [["M.B"], ["M.B", "M.C"], ["M.C"], []]


def test_a_message_alone_beside_maps_is_meant_by_all_its_possible_indexes() -> None:
    text = "message M { map<string, int32> a = 1; map<string, int32> b = 2; message C {} }"
    assert meanings(text, 0) == [["M.C"], ["M.C"], ["M.C"], []]
    assert ProtoText(text).likely_indexes("M.C") == {(0, 0), (0, 2)}


def test_a_group_that_extends_another_message_may_count_at_the_top_of_the_file() -> None:
    text = "message A {} extend A { optional group G = 100 { } } message B {}"
    assert meanings(text) == [["A"], ["A", "B"], ["B"], []]


def test_what_is_uncertain_of_an_outer_message_is_so_of_what_is_inside() -> None:
    text = """message M {
      map<string, int32> a = 1;
      message B { message X {} }
      message C { message Y {} message Z {} }
    }"""
    assert ProtoText(text).meanings([0, 1, 0]) == ["M.B.X", "M.C.Y"]
    assert ProtoText(text).meanings([0, 1, 1]) == ["M.C.Z"]


def test_other_words_are_no_map_fields_and_no_groups() -> None:
    text = """message M {
      option (o) = { map < a: 1 > };
      string map = 1; optional string group = 2; map.Type a = 3;
      message B {} message C { option deprecated = true; }
    }"""
    assert meanings(text, 0) == [["M.B"], ["M.C"], [], []]
