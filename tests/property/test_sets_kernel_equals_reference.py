"""The kernel reads message sets as the reference does, for any bytes: the same rows, or the
same fault at the same place.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rangeland.decode.jafka.kernel import JafkaKernel
from rangeland.decode.jafka.layout import MessageSet, SetFault
from rangeland.errors import BadRecord
from tests.examples import tried
from tests.jafka_entries import entry, packed, plain
from tests.property.sanitizers import kernel_library, run_under_sanitizers
from tests.reference.jafka_sets import JafkaReference

KERNEL, REFERENCE = JafkaKernel(kernel_library()), JafkaReference()

many = tried(100)

# --- what may be in a log ---------------------------------------------------------------

values = st.one_of(st.binary(max_size=40), st.integers(0, 300).map(lambda n: b"x" * n))
good_entries = values.map(entry)
odd_entries = st.one_of(
    st.builds(lambda value: entry(value, codec=1), values),
    st.builds(lambda value, codec: entry(value, codec=codec), values, st.integers(0, 255)),
    st.builds(lambda value, magic: entry(value, magic=magic), values, st.sampled_from([0, 2, -1])),
    st.builds(lambda value, crc: entry(value, crc=crc), values, st.integers(0, (1 << 32) - 1)),
    st.builds(
        lambda value, length: entry(value, length=length),
        values,
        st.one_of(st.integers(-3, 60), st.sampled_from([-(1 << 31), (1 << 31) - 1])),
    ),
    st.builds(packed, st.lists(values, max_size=3).map(plain)),
)
good_sets = st.lists(good_entries, max_size=8).map(b"".join)
any_entries = st.one_of(good_entries, good_entries, odd_entries)
odd_sets = st.builds(
    lambda entries, tail: b"".join(entries) + tail,
    st.lists(any_entries, max_size=6),
    st.one_of(st.just(b""), st.binary(max_size=20)),
)


@st.composite
def damaged_sets(draw: st.DrawFn) -> bytes:
    data = bytearray(draw(good_sets))
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.integers(0, max(len(data) - 1, 0)))
        kind = draw(st.sampled_from(["set", "cut", "insert"]))
        if kind == "set" and data:
            data[place] = draw(st.integers(0, 255))
        elif kind == "cut":
            del data[place:]
        elif kind == "insert":
            data[place:place] = draw(st.binary(max_size=4))
    return bytes(data)


any_bytes = st.one_of(good_sets, odd_sets, damaged_sets(), st.binary(max_size=80))


def message_sets(data: st.SearchStrategy[bytes]) -> st.SearchStrategy[MessageSet]:
    offsets = st.one_of(st.integers(0, 1000), st.just(1 << 62))
    return st.builds(MessageSet, data, offsets, st.booleans(), st.integers(0, 1000))


# --- the claims -------------------------------------------------------------------------


def outcome(
    decoder: JafkaKernel | JafkaReference, sets: list[MessageSet]
) -> pa.RecordBatch | BadRecord:
    try:
        return decoder.decode_sets(sets)
    except BadRecord as error:
        return error


def assert_same(sets: list[MessageSet]) -> bool:
    """Whether there were rows rather than a fault."""
    wanted, found = outcome(REFERENCE, sets), outcome(KERNEL, sets)
    assert type(found) is type(wanted), (found, wanted)
    if isinstance(wanted, BadRecord) or isinstance(found, BadRecord):
        assert (str(found), found.facts) == (str(wanted), wanted.facts)
        return False
    found.validate(full=True)
    assert found.schema.equals(wanted.schema, check_metadata=True)
    assert found.equals(wanted)
    return True


@many
@given(sets=st.lists(message_sets(good_sets), max_size=4))
def test_good_sets_give_the_same_rows(sets: list[MessageSet]) -> None:
    assert assert_same(sets)


@many
@given(sets=st.lists(message_sets(any_bytes), min_size=1, max_size=3))
@example([MessageSet(entry(b"v", crc=0), 5)])
@example([MessageSet(entry(b"v")[:-1], 5)])
@example([MessageSet(b"\0\0\0", 0)])
def test_any_bytes_give_the_same_rows_or_the_same_fault(sets: list[MessageSet]) -> None:
    assert_same(sets)


@many
@given(data=any_bytes, until=st.integers(-2, 500), plain_only=st.booleans())
def test_any_bytes_are_walked_in_the_same_way(data: bytes, until: int, plain_only: bool) -> None:
    wanted = REFERENCE.walk_entries(data, until, plain_only=plain_only)
    assert KERNEL.walk_entries(data, until, plain_only=plain_only) == wanted
    assert 0 <= wanted.start <= wanted.end <= len(data)


@tried(10)
@given(data=good_sets)
def test_every_truncation_gives_the_same_rows_or_the_same_fault(data: bytes) -> None:
    for size in range(len(data)):
        is_whole = REFERENCE.walk_entries(data[:size], size).end == size
        assert assert_same([MessageSet(data[:size], 7)]) == is_whole


def test_a_large_set_gives_the_same_rows() -> None:
    data = plain(b"v" * (i % 400) for i in range(20_000))
    assert assert_same([MessageSet(data, 7), MessageSet(data, 9, True, 20_000)])


@pytest.mark.parametrize("decoder", [KERNEL, REFERENCE], ids=["kernel", "reference"])
def test_each_fault_is_reported_with_its_position(decoder: JafkaKernel | JafkaReference) -> None:
    good = entry(b"good")
    for bad, fault in {
        entry(b"v", length=5): SetFault.ENTRY_TOO_SHORT,
        entry(b"v", length=8): SetFault.ENTRY_PAST_SET,
        b"\0\0": SetFault.ENTRY_PAST_SET,
        entry(b"v", magic=0): SetFault.UNKNOWN_MAGIC,
        entry(b"v", codec=1): SetFault.NOT_PLAIN,
        entry(b"v", crc=1): SetFault.WRONG_CHECKSUM,
    }.items():
        with pytest.raises(BadRecord) as caught:
            decoder.decode_sets([MessageSet(good, 0), MessageSet(good + good + bad, 0)])
        facts = caught.value.facts
        assert (facts["set"], facts["record"], facts["byte_index"]) == (1, 2, 2 * len(good))
        assert (facts["fault"], facts["reason"]) == (fault, fault.reason)


@pytest.mark.slow
def test_the_set_kernel_is_clean_under_sanitizers(tmp_path: Path) -> None:
    """All claims above once more; any report of the sanitizers ends that process."""
    run_under_sanitizers(__file__, tmp_path)
