"""The kernel reads messages of the formats 0 and 1 as the reference does, for any bytes: the
same rows, or the same fault at the same place.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rangeland.decode.kafka.layout import Payload, RecordFormat
from tests.message_sets import Message, encode_message
from tests.property.sanitizers import run_under_sanitizers
from tests.property.test_kernel_equals_reference import (
    INT64,
    KERNEL,
    assert_same,
    many,
    payloads,
    wants,
)
from tests.reference import kafka_messages

values = st.one_of(
    st.none(), st.just(b""), st.binary(max_size=40), st.integers(0, 300).map(lambda n: b"x" * n)
)
times = st.one_of(st.integers(-1, 2_000_000_000_000), INT64)
usual_times = st.integers(-1, 2_000_000_000_000)


@st.composite
def messages(draw: st.DrawFn, *, good: bool) -> list[Message]:
    steps = (1, 1, 1, 2, 70) if good else (1, 1, 1, 2, 0, -1)
    found: list[Message] = []
    offset = draw(st.integers(0, 20))
    for _ in range(draw(st.integers(0, 10))):
        odd = not good and draw(st.integers(0, 4)) == 0
        found.append(
            Message(
                offset,
                draw(values),
                draw(values),
                draw(st.sampled_from([0, 1] if not odd else [0, 1, 2, -1])),
                draw(usual_times if good else times),
                draw(st.booleans()),
                draw(st.sampled_from([0, 1, 3, 16])) if odd else 0,
                draw(st.one_of(st.none(), st.just(7))) if odd else None,
                draw(st.one_of(st.none(), st.integers(-3, 60))) if odd else None,
            )
        )
        offset += draw(st.sampled_from(steps))
    return found


@st.composite
def sets(draw: st.DrawFn, *, good: bool) -> Payload:
    made = draw(messages(good=good))
    shift = draw(st.sampled_from([0, 0, 1000, 1 << 40]))
    first = made[0].offset if made else 0
    last = max((m.offset for m in made), default=0)
    data = bytearray(b"".join(map(encode_message, made)))
    if not good:
        for _ in range(draw(st.integers(0, 2))):
            place = draw(st.integers(0, max(len(data) - 1, 0)))
            if draw(st.booleans()):
                del data[place:]
            elif data:
                data[place] = draw(st.integers(0, 255))
        shift = draw(st.one_of(st.just(shift), INT64))
    form = draw(st.sampled_from([RecordFormat.PLAIN, RecordFormat.PACKED]))
    count = len(made) + (0 if good else draw(st.sampled_from([0, 0, -1, 1, 9])))
    base = max(-(1 << 63), min(first + shift, (1 << 63) - 1))
    stamp = draw(st.one_of(st.none(), usual_times if good else times))
    return Payload(bytes(data), base, 0, stamp, count, max(last - first, 0), form, shift)


@many
@given(data=st.data(), made=st.lists(st.one_of(sets(good=True), payloads()), max_size=4))
def test_good_messages_and_batches_give_the_same_rows(
    data: st.DataObject, made: list[Payload]
) -> None:
    bounds = data.draw(wants(made[0])) if made else (0, 9)
    assert_same(made, *bounds)


@many
@given(made=st.lists(sets(good=True), min_size=1, max_size=3))
def test_good_messages_are_no_fault(made: list[Payload]) -> None:
    assert assert_same(made, -(1 << 63), (1 << 63) - 1)


@many
@given(data=st.data(), made=st.lists(sets(good=False), min_size=1, max_size=3))
def test_damaged_messages_give_the_same_fault(data: st.DataObject, made: list[Payload]) -> None:
    assert_same(made, *data.draw(wants(made[-1])))


@many
@given(
    data=st.one_of(
        sets(good=True).map(lambda p: p.data),
        sets(good=False).map(lambda p: p.data),
        st.binary(max_size=80),
    ),
    max_bytes=st.one_of(st.integers(-1, 200), st.just(1 << 62)),
)
def test_any_bytes_are_walked_in_the_same_way(data: bytes, max_bytes: int) -> None:
    wanted = kafka_messages.walk_messages(data, max_bytes)
    assert KERNEL.walk_messages(data, max_bytes) == wanted
    assert 0 <= wanted.end <= len(data)


def test_every_truncation_gives_the_same_rows_or_the_same_fault() -> None:
    made = [Message(0, b"k", b"v" * 20, 1), Message(3, None, b"", 0), Message(4, b"", None, 1)]
    whole = b"".join(map(encode_message, made))
    for size in range(len(whole)):
        for form in (RecordFormat.PLAIN, RecordFormat.PACKED):
            rows = assert_same([Payload(whole[:size], 0, 0, None, 3, 4, form)], 0, 9)
            assert not rows


def test_a_large_set_gives_the_same_rows() -> None:
    made = [
        Message(i, b"%d" % i, None if i % 97 == 0 else b"v" * (i % 400), i % 2)
        for i in range(20_000)
    ]
    data = b"".join(map(encode_message, made))
    payload = Payload(data, 0, 0, None, len(made), len(made) - 1, RecordFormat.PLAIN)
    assert assert_same([payload], 1000, 19_000)
    walked = KERNEL.walk_messages(data, 1 << 62)
    assert walked == kafka_messages.walk_messages(data, 1 << 62)
    assert (walked.messages, walked.end) == (20_000, len(data))


@pytest.mark.slow
def test_the_kernel_is_clean_under_sanitizers(tmp_path: Path) -> None:
    """All claims above once more; any report of the sanitizers ends that process."""
    run_under_sanitizers(__file__, tmp_path)
