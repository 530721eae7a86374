"""The kernel reads stored messages as the reference does, for any bytes: the same rows, or the
same fault at the same place.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rangeland.decode.rocketmq.kernel import RocketmqKernel
from rangeland.decode.rocketmq.layout import DecodedMessages, StoredFault
from rangeland.errors import BadRecord
from tests.examples import tried
from tests.property.sanitizers import kernel_library, run_under_sanitizers
from tests.reference.rocketmq_messages import RocketmqReference
from tests.rocketmq_messages import BORN_V6, MAGIC_1, MAGIC_2, PACKED, STORE_V6, messages, stored

KERNEL, REFERENCE = RocketmqKernel(kernel_library()), RocketmqReference()

many = tried(100)

# --- what may come ----------------------------------------------------------------------

bodies = st.one_of(st.binary(max_size=40), st.integers(0, 300).map(lambda n: b"x" * n))
texts = st.one_of(st.binary(max_size=6), st.sampled_from([b"KEYS", b"TAGS", "größe".encode()]))
good_pairs = st.builds(lambda k, v: k + b"\1" + v + b"\2", texts, st.binary(max_size=20))
properties = st.one_of(
    st.lists(good_pairs, max_size=4).map(b"".join),
    st.lists(good_pairs, max_size=3).map(lambda pairs: b"".join(pairs)[:-1]),
    st.lists(st.sampled_from([b"\1", b"\2", b"KEYS", b"a", b"\xff", b"\0"]), max_size=8).map(
        b"".join
    ),
)
flags = st.sampled_from([0, 0, BORN_V6, STORE_V6, BORN_V6 | STORE_V6, PACKED, PACKED | 0x300, 8])
kinds = st.sampled_from([MAGIC_1, MAGIC_1, MAGIC_2])
far = st.sampled_from([-(1 << 63), -1, 0, (1 << 63) - 1, (1 << 63) // 1000])


@st.composite
def good_runs(draw: st.DrawFn) -> bytes:
    offset = draw(st.integers(0, 100))
    data = b""
    for _ in range(draw(st.integers(0, 6))):
        data += stored(draw(bodies), offset, draw(properties), flags=draw(flags), magic=draw(kinds))
        offset += draw(st.integers(1, 3))
    return data


odd_messages = st.one_of(
    st.builds(lambda b, o: stored(b, o), bodies, st.integers(-2, 50)),
    st.builds(lambda b, m: stored(b, 7, magic=m), bodies, st.sampled_from([0, 1, MAGIC_1 + 1])),
    st.builds(lambda b, c: stored(b, 7, crc=c), bodies, st.integers(0, (1 << 32) - 1)),
    st.builds(lambda b, n: stored(b, 7, length=n), bodies, st.integers(-3, 200)),
    st.builds(
        lambda b, n: stored(b, 7, body_length=n),
        bodies,
        st.one_of(st.integers(-3, 60), st.sampled_from([-(1 << 31), (1 << 31) - 1])),
    ),
    st.builds(lambda f: stored(b"v", 7, flags=f), st.integers(0, (1 << 32) - 1)),
    st.builds(lambda a, b: stored(b"v", 7, born_ms=a, stored_ms=b), far, far),
)
odd_runs = st.builds(
    lambda first, odd, rest, tail: first + b"".join(odd) + rest + tail,
    good_runs(),
    st.lists(odd_messages, max_size=3),
    good_runs(),
    st.one_of(st.just(b""), st.binary(max_size=20)),
)


@st.composite
def damaged_runs(draw: st.DrawFn) -> bytes:
    data = bytearray(draw(good_runs()))
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


any_bytes = st.one_of(good_runs(), odd_runs, damaged_runs(), st.binary(max_size=120))
ends = st.one_of(st.integers(-2, 120), st.integers((1 << 63) - 2, (1 << 63) + 1))

# --- the claims -------------------------------------------------------------------------


def outcome(
    decoder: RocketmqKernel | RocketmqReference,
    data: bytes,
    first: int,
    end: int,
    tags: Sequence[bytes] = (),
) -> DecodedMessages | BadRecord:
    try:
        return decoder.decode_stored(data, first, end, tags)
    except BadRecord as error:
        return error


def assert_same(
    data: bytes, first: int = 0, end: int = (1 << 63) - 1, tags: Sequence[bytes] = ()
) -> bool:
    """Whether there were rows rather than a fault."""
    wanted, found = (outcome(each, data, first, end, tags) for each in (REFERENCE, KERNEL))
    if isinstance(wanted, BadRecord) or isinstance(found, BadRecord):
        assert (str(found), found.facts) == (str(wanted), wanted.facts)  # type: ignore[union-attr]
        return False
    found.batch.validate(full=True)
    assert found.batch.schema.equals(wanted.batch.schema, check_metadata=True)
    assert found.batch.equals(wanted.batch)
    assert found.walked == wanted.walked
    assert (found.codecs is None) == (wanted.codecs is None)
    if found.codecs is not None and wanted.codecs is not None:
        assert found.codecs.tolist() == wanted.codecs.tolist()
    return True


@many
@given(data=good_runs())
def test_good_messages_give_the_same_rows(data: bytes) -> None:
    assert assert_same(data)


@many
@given(data=any_bytes, first=st.integers(-2, 120), end=ends)
@example(data=stored(b"v", crc=0), first=0, end=9)
@example(data=stored(b"v")[:-1], first=0, end=9)
@example(data=b"\0\0\0", first=0, end=9)
@example(data=stored(b"v", properties=b"KEYS\1a\2KEYS\1b"), first=0, end=9)
@example(data=stored(b"v", properties=b"\1\2\2a\2b\1\2\1c"), first=0, end=9)
def test_any_bytes_give_the_same_rows_or_the_same_fault(data: bytes, first: int, end: int) -> None:
    assert_same(data, first, end)


tag_properties = st.lists(
    st.sampled_from(
        [b"TAGS\1A\2", b"TAGS\1B\2", b"TAGS\1\2", b"TAGS\2", b"TAG\1A\2", b"k\1A\2", b"\2"]
    ),
    max_size=4,
).map(b"".join)


@st.composite
def tagged_runs(draw: st.DrawFn) -> bytes:
    data = b""
    for offset in range(draw(st.integers(0, 6))):
        odd = draw(st.booleans())
        named = draw(properties if odd else tag_properties)[: draw(st.sampled_from([99, 5]))]
        crc = draw(st.sampled_from([None, None, None, None, 1]))
        data += stored(draw(bodies), offset, named, flags=draw(flags), magic=draw(kinds), crc=crc)
    return data


@many
@given(
    data=st.one_of(tagged_runs(), any_bytes),
    tags=st.lists(st.sampled_from([b"A", b"B", b"AB", b""]), min_size=1, max_size=3),
    first=st.integers(-1, 4),
    end=ends,
)
@example(data=stored(b"v", properties=b"TAGS\1A\2TAGS\1B\2"), tags=[b"A"], first=0, end=9)
@example(data=stored(b"v", properties=b"TAGS\1A\2TAGS"), tags=[b"A"], first=0, end=9)
def test_the_same_messages_have_one_of_the_tags(
    data: bytes, tags: list[bytes], first: int, end: int
) -> None:
    assert_same(data, first, end, tags)


def test_a_message_has_its_last_tag_and_no_other() -> None:
    cases = [
        b"TAGS\1A\2",
        b"TAGS\1AA\2",
        b"",
        b"TAGS\1B\2TAGS\1A\2",
        b"TAGS\1A\2TAGS\1C\2",
        b"TAGS\1A",
    ]
    data = b"".join(stored(b"v", n, properties=case) for n, case in enumerate(cases))
    found = KERNEL.decode_stored(data, 0, 99, [b"A", b"nothing"])
    assert found.batch.column("offset").to_pylist() == [0, 3, 5]
    assert found.walked.messages == len(cases)
    assert assert_same(data, tags=[b"A", b"nothing"])


@many
@given(data=any_bytes)
def test_any_bytes_are_walked_in_the_same_way(data: bytes) -> None:
    assert KERNEL.walk_stored(data) == REFERENCE.walk_stored(data)


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 63, 64, 65, 1000])
def test_checksums_of_any_length_are_the_same(size: int) -> None:
    body = bytes(range(256)) * 4
    assert assert_same(stored(body[:size]))


def test_every_fault_is_reached_and_told_alike() -> None:
    good = stored(b"v", 5)
    cases = {
        StoredFault.TOO_SHORT: stored(b"v", 6, length=90),
        StoredFault.UNKNOWN_MAGIC: stored(b"v", 6, magic=0),
        StoredFault.ORDER: stored(b"v", 5),
        StoredFault.INNER: stored(b"v", 6, flags=0x80),
        StoredFault.FIELD_PAST: stored(b"v", 6, body_length=60),
        StoredFault.FLAGS: stored(b"v", 6, flags=0x100),
        StoredFault.WRONG_CHECKSUM: stored(b"v", 6, crc=1),
        StoredFault.TOO_LONG: stored(b"v", 6, length=97)[:-2] + b"\0\0\0\0",
    }
    assert set(cases) == set(StoredFault) - {StoredFault.CUT_SHORT}  # which ends a walk
    for fault, bad in cases.items():
        data = good + bad + good
        error = outcome(REFERENCE, data, 0, 99)
        assert isinstance(error, BadRecord), fault
        assert error.facts["fault"] == fault, (fault, error.facts)
        assert error.facts["byte_index"] == len(good)
        assert not assert_same(data)


def test_many_rows_of_many_properties_are_the_same() -> None:
    pairs = b"".join(b"name%d\1%s\2" % (i, b"v" * i) for i in range(30)) + b"KEYS\1a b\2"
    assert assert_same(messages([b"v" * i for i in range(300)], 10, pairs))


@pytest.mark.slow
def test_the_kernel_touches_only_its_own_memory(tmp_path: Path) -> None:
    run_under_sanitizers(__file__, tmp_path)
