"""What holds for all bytes and all messages."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rangeland.dialects.kafka.messages import REQUESTS, RequestHeader, ResponseHeader
from rangeland.dialects.kafka.session import KafkaSession
from rangeland.errors import RemoteProtocolError
from rangeland.wire import arrays, primitives
from rangeland.wire.declarations import spec_of
from rangeland.wire.encoding import decode, decode_from, encode
from rangeland.wire.framing import FrameReader, frame
from tests.contract.readers import read_anything, read_three_ways
from tests.examples import tried
from tests.frames import feed, pending_bytes
from tests.kafka_produce import ProduceRequest
from tests.property.message_strategies import values_of

MESSAGES = [
    RequestHeader,
    ResponseHeader,
    *REQUESTS,
    ProduceRequest,
    *(spec_of(request).response for request in REQUESTS),
]
EVERY_VERSION = [
    pytest.param(cls, version, id=f"{cls.__name__}-v{version}")
    for cls in MESSAGES
    if cls is not None
    for version in range(spec_of(cls).versions[0], spec_of(cls).versions[1] + 1)
]
ALL_TYPES = [value for value in vars(primitives).values() if isinstance(value, primitives.WireType)]
ALL_CODECS = [
    pytest.param(codec, id=f"{wire.name}-{place}")
    for wire in ALL_TYPES
    for place in ("legacy", "compact", "nullable_legacy", "nullable_compact")
    if (codec := getattr(wire, place)) is not None
]

few = tried(3)


@pytest.mark.parametrize(("cls", "version"), EVERY_VERSION)
@given(data=st.data())
@few
def test_what_is_written_is_read_again(cls: type[Any], version: int, data: st.DataObject) -> None:
    value = data.draw(values_of(cls, version))
    encoded = encode(value, version)
    assert decode(cls, version, encoded) == value


@pytest.mark.parametrize(("cls", "version"), EVERY_VERSION)
@given(data=st.data())
@tried(2)
def test_every_message_passes_the_three_ways(
    cls: type[Any], version: int, data: st.DataObject
) -> None:
    value = data.draw(values_of(cls, version))
    read_three_ways(
        lambda buffer, offset: decode_from(cls, version, buffer, offset), encode(value, version)
    )


@pytest.mark.parametrize(("cls", "version"), EVERY_VERSION)
@given(data=st.binary(max_size=200))
@few
def test_any_bytes_are_a_message_or_refused(cls: type[Any], version: int, data: bytes) -> None:
    read_anything(lambda buffer, offset: decode_from(cls, version, buffer, offset), data)


@pytest.mark.parametrize(("cls", "version"), EVERY_VERSION)
@given(data=st.data())
@few
def test_a_damaged_message_is_a_message_or_refused(
    cls: type[Any], version: int, data: st.DataObject
) -> None:
    damaged = bytearray(encode(data.draw(values_of(cls, version)), version))
    if damaged:
        places = st.integers(0, len(damaged) - 1)
        for place in data.draw(st.lists(places, min_size=1, max_size=4)):
            damaged[place] = data.draw(st.integers(0, 255))
    read_anything(lambda buffer, offset: decode_from(cls, version, buffer, offset), bytes(damaged))


@pytest.mark.parametrize("codec", ALL_CODECS)
@given(data=st.binary(max_size=40))
def test_any_bytes_are_a_primitive_or_refused(codec: primitives.FieldCodec, data: bytes) -> None:
    read_anything(codec.read, data)
    for compact in (False, True):
        read_anything(arrays.array(codec, compact=compact, nullable=True).read, data)


@given(st.integers(0, 2**32 - 1))
def test_unsigned_varints_survive(value: int) -> None:
    assert read_three_ways(primitives.read_uvarint, primitives.uvarint_bytes(value)) == value


@given(st.lists(st.binary(max_size=50), max_size=5), st.data())
def test_frames_survive_any_chunking(payloads: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(frame(payload) for payload in payloads)
    reader = FrameReader(max_frame_bytes=50)
    found: list[bytes] = []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        found += [bytes(whole) for whole in feed(reader, stream[:size])]
        stream = stream[size:]
    assert found == payloads
    assert pending_bytes(reader) == 0


@given(st.lists(st.binary(max_size=50), max_size=30), st.integers(0, 300), st.data())
def test_frames_survive_being_received_ahead(
    payloads: list[bytes], ahead: int, data: st.DataObject
) -> None:
    stream = b"".join(frame(payload) for payload in payloads)
    reader = FrameReader(max_frame_bytes=50, ahead_bytes=ahead)
    found: list[memoryview] = []
    while stream:
        place = reader.buffer()
        size = data.draw(st.integers(1, min(len(place), len(stream))))
        place[:size], stream = stream[:size], stream[size:]
        whole = reader.advance(size)
        while whole is not None:
            found.append(whole)
            whole = reader.next()
    assert [bytes(whole) for whole in found] == payloads
    assert pending_bytes(reader) == 0


@given(st.binary(max_size=60))
def test_any_stream_is_frames_or_refused(data: bytes) -> None:
    reader = FrameReader(max_frame_bytes=1000)
    frames: list[memoryview] = []
    refused: RemoteProtocolError | None = None
    try:
        frames = feed(reader, data)
    except RemoteProtocolError as error:
        refused = error
    if refused is not None:
        assert refused.facts["first_bytes"] in data.hex()
    else:
        assert sum(len(whole) + 4 for whole in frames) + pending_bytes(reader) == len(data)


@given(st.binary(max_size=60), st.booleans())
def test_any_response_to_a_session_is_a_value_or_refused(data: bytes, matching: bool) -> None:
    session = KafkaSession("t")
    session.open()
    response = (bytes(4) if matching else b"") + data
    try:
        session.take_negotiation(memoryview(response))
    except RemoteProtocolError:
        assert session.versions == {}
