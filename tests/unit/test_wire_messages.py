"""Declared messages: version ranges, nullability, tags, and errors for wrong bytes."""

from __future__ import annotations

import pickle
import time
from dataclasses import FrozenInstanceError

import pytest

from rangeland.dialects.kafka.messages import (
    MetadataBroker,
    MetadataPartition,
    MetadataResponse,
    MetadataTopic,
)
from rangeland.errors import Bug, LocalProtocolError, RemoteProtocolError
from rangeland.wire.declarations import (
    Array,
    Int8,
    Int16,
    Int32,
    Records,
    String,
    message,
    since,
    spec_of,
    struct,
    tagged_field,
)
from rangeland.wire.encoding import decode, decode_from, encode
from tests.contract.readers import read_three_ways


@struct
class Leaf:
    number: Int16
    note: String | None = since(2, default=None, nullable_from=3)


@message(key=77, versions=(1, 5), flexible_from=4)
class Tree:
    height: Int32 = -1
    shade: Int8 = since(2, default=0)
    age: Int8 = since(3, default=0, ignorable=True)
    old: Int8 = since(1, until=2, default=0)
    leaves: Array[Leaf]
    sap: Records | None = None
    label: String = tagged_field(1, since=4, default="", ignorable=True)
    crown: Leaf | None = tagged_field(0, since=5, default=None)


@message(key=78, versions=(0, 0))
class TagWithoutFlexibleVersion:
    label: String = tagged_field(0, since=0, default="")


@message(key=79, versions=(0, 0))
class NullableStruct:
    leaf: Leaf | None = None


TREE = Tree(height=2, leaves=(Leaf(number=1),), sap=memoryview(b"s"))


def hexed(data: str) -> bytes:
    return bytes.fromhex(data.replace(" ", ""))


def test_each_version_has_the_fields_of_its_range() -> None:
    assert encode(TREE, 1) == hexed("00000002 00 00000001 0001 00000001 73")
    noted = Tree(height=2, leaves=(Leaf(number=1, note="n"),))
    assert encode(noted, 2) == hexed("00000002 00 00 00000001 0001 0001 6e ffffffff")
    assert encode(TREE, 3) == hexed("00000002 00 00 00000001 0001 ffff 00000001 73")


def test_flexible_versions_are_compact_and_end_with_tags() -> None:
    assert encode(TREE, 4) == hexed("00000002 00 00 02 0001 00 00 02 73 00")


def test_tagged_fields_are_sent_in_order_and_only_where_they_say_something() -> None:
    tree = Tree(leaves=(), label="L", crown=Leaf(number=7))
    data = encode(tree, 5)
    assert data == hexed("ffffffff 00 00 01 00 02 00 04 0007 00 00 01 02 024c")
    assert decode(Tree, 5, data) == tree
    assert read_three_ways(lambda buffer, at: decode_from(Tree, 5, buffer, at), data) == tree


def test_an_absent_field_reads_as_its_default() -> None:
    assert decode(Tree, 1, encode(TREE, 1)).shade == 0
    assert decode(Tree, 4, encode(TREE, 4)).crown is None


def test_a_value_that_would_be_dropped_is_refused() -> None:
    with pytest.raises(LocalProtocolError) as caught:
        encode(Tree(leaves=(), shade=1), 1)
    assert caught.value.facts == {"field": "shade", "message": "Tree", "version": 1}
    with pytest.raises(LocalProtocolError):
        encode(Tree(leaves=(), old=1), 3)
    with pytest.raises(LocalProtocolError):
        encode(Tree(leaves=(), crown=Leaf(number=1)), 4)


def test_a_value_that_may_be_ignored_is_dropped() -> None:
    assert decode(Tree, 1, encode(Tree(leaves=(), age=9, label="x"), 1)).age == 0


def test_null_is_refused_where_the_version_has_none() -> None:
    with pytest.raises(LocalProtocolError) as caught:
        encode(TREE, 2)
    assert caught.value.facts["field"] == "leaves.note"
    with pytest.raises(RemoteProtocolError) as read:
        decode(Tree, 2, hexed("00000002 00 00 00000001 0001 ffff ffffffff"))
    assert read.value.facts["reason"] == "not nullable"


def test_an_undeclared_version_is_our_own_mistake() -> None:
    with pytest.raises(LocalProtocolError, match="version 6 is not declared"):
        encode(TREE, 6)
    with pytest.raises(LocalProtocolError, match="versions 1 to 5"):
        decode(Tree, 0, b"")


@pytest.mark.parametrize("value", [2**31, "text", None, 1.5])
def test_a_value_that_does_not_fit_names_its_field(value: object) -> None:
    with pytest.raises(LocalProtocolError) as caught:
        encode(Tree(height=value, leaves=()), 1)  # type: ignore[arg-type]
    assert caught.value.facts["field"] == "height"


def test_text_that_is_not_unicode_is_not_sent() -> None:
    with pytest.raises(LocalProtocolError) as caught:
        encode(Tree(leaves=(Leaf(number=1, note="\ud800"),)), 3)
    assert caught.value.facts["field"] == "leaves.note"


def test_a_cut_message_names_message_version_field_offset_and_size() -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        decode(Tree, 3, encode(TREE, 3)[:11])
    assert caught.value.facts == {
        "message": "Tree",
        "version": 3,
        "field": "leaves",
        "reason": "underflow",
        "offset": 10,
        "size": 11,
    }
    with pytest.raises(RemoteProtocolError, match=r"Tree v3 leaves\.note") as deeper:
        decode(Tree, 3, hexed("00000002 00 00 00000001 0001 0009"))
    assert deeper.value.facts["offset"] == 14


def test_a_field_inside_a_run_of_fixed_width_is_named() -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        decode(Tree, 3, hexed("00000002 00"))
    assert caught.value.facts["field"] == "age"


def test_bytes_left_over_are_refused_or_left_alone_as_asked() -> None:
    data = encode(TREE, 1)
    with pytest.raises(RemoteProtocolError, match="left over"):
        decode(Tree, 1, data + b"x")
    assert decode_from(Tree, 1, data + b"x") == (TREE, len(data))
    assert decode(Tree, 1, b"head" + data, 4) == TREE


def test_an_error_of_a_reader_survives_pickling() -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        decode(Tree, 1, b"")
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.facts) == (str(caught.value), caught.value.facts)


def test_messages_are_frozen_and_have_no_dictionary() -> None:
    with pytest.raises(FrozenInstanceError):
        TREE.height = 1  # type: ignore[misc]
    assert not hasattr(TREE, "__dict__")


def test_what_is_not_a_message_is_our_own_mistake() -> None:
    for wrong in (Leaf, int):
        with pytest.raises(Bug):
            spec_of(wrong)


@pytest.mark.parametrize("wrong", [TagWithoutFlexibleVersion, NullableStruct])
def test_a_declaration_the_wire_cannot_hold_is_a_bug(wrong: type) -> None:
    with pytest.raises(Bug):
        decode(wrong, 0, b"")


def test_reading_ten_times_as_many_partitions_takes_about_ten_times_as_long() -> None:
    partitions = tuple(
        MetadataPartition(
            error_code=0,
            partition_index=index,
            leader_id=1,
            leader_epoch=3,
            replica_nodes=(1, 2, 3),
            isr_nodes=(1, 2, 3),
        )
        for index in range(100)
    )

    def seconds(topics: int) -> float:
        response = MetadataResponse(
            brokers=(MetadataBroker(node_id=1, host="h", port=9092),),
            topics=tuple(
                MetadataTopic(error_code=0, name=f"t{index}", partitions=partitions)
                for index in range(topics)
            ),
        )
        data = encode(response, 12)
        taken = []
        for _ in range(3):
            began = time.process_time()
            found = decode(MetadataResponse, 12, data)
            taken.append(time.process_time() - began)
            assert found == response
        return min(taken)

    assert seconds(100) < 40 * seconds(10)
