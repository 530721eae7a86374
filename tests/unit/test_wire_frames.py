"""Frames: four bytes of length, then that many bytes."""

from __future__ import annotations

import pytest

from rangeland.errors import Bug, RemoteProtocolError
from rangeland.wire.framing import FrameReader, frame
from tests.frames import feed, pending_bytes


def receive(reader: FrameReader, data: bytes) -> memoryview | None:
    """Puts ``data`` where the reader wants it, as a socket would."""
    reader.buffer()[: len(data)] = data
    return reader.advance(len(data))


def test_a_frame_is_its_length_and_its_parts() -> None:
    assert frame(b"ab", memoryview(b"c")) == b"\x00\x00\x00\x03abc"
    assert frame() == b"\x00\x00\x00\x00"


def test_the_length_is_asked_for_first_and_then_exactly_the_body() -> None:
    reader = FrameReader(100)
    assert len(reader.buffer()) == 4
    assert receive(reader, b"\x00\x00") is None
    assert (len(reader.buffer()), pending_bytes(reader)) == (2, 2)
    assert receive(reader, b"\x00\x05") is None
    assert (len(reader.buffer()), pending_bytes(reader)) == (5, 4)
    assert receive(reader, b"hel") is None
    whole = receive(reader, b"lo")
    assert whole is not None
    assert bytes(whole) == b"hello"
    assert (len(reader.buffer()), pending_bytes(reader)) == (4, 0)


def test_a_frame_is_not_touched_by_the_next_one() -> None:
    reader = FrameReader(100)
    first, second = feed(reader, frame(b"first") + frame(b"other"))
    assert bytes(first) == b"first"
    assert bytes(second) == b"other"


def test_the_body_is_received_into_the_frame_itself() -> None:
    reader = FrameReader(100)
    receive(reader, b"\x00\x00\x00\x03")
    place = reader.buffer()
    place[:] = b"abc"
    whole = reader.advance(3)
    assert whole is not None
    assert whole.obj is place.obj


def test_many_small_frames_are_received_at_once() -> None:
    reader = FrameReader(100, ahead_bytes=64)
    stream = frame(b"one") + frame(b"two") + frame(b"three")[:6]
    assert bytes(receive(reader, stream) or b"") == b"one"
    assert [bytes(reader.next() or b""), reader.next()] == [b"two", None]
    assert bytes(receive(reader, b"ree") or b"") == b"three"
    assert pending_bytes(reader) == 0


def test_a_large_frame_has_memory_of_its_own_and_nothing_else_in_it() -> None:
    reader = FrameReader(100, ahead_bytes=64)
    assert receive(reader, frame(b"one") + frame(bytes(30))[:20]) is not None
    assert reader.next() is None
    assert len(reader.buffer()) == 14
    whole = receive(reader, bytes(14))
    assert whole is not None
    assert len(whole.obj) == len(whole) == 30  # type: ignore[arg-type]


def test_an_empty_frame_is_whole_with_its_length() -> None:
    assert [bytes(whole) for whole in feed(FrameReader(100), frame() + frame(b"x"))] == [b"", b"x"]


def test_a_frame_of_the_largest_size_is_taken_and_one_byte_more_is_not() -> None:
    assert len(feed(FrameReader(5), frame(b"12345"))) == 1
    with pytest.raises(RemoteProtocolError) as caught:
        feed(FrameReader(5), frame(b"123456"))
    assert caught.value.facts["length"] == 6
    assert "6 bytes" in str(caught.value)


def test_a_negative_length_is_refused_by_its_number() -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        feed(FrameReader(100), b"\xff\xff\xff\xf9")
    assert caught.value.facts["length"] == -7
    assert "-7" in str(caught.value)


@pytest.mark.parametrize(
    ("first_bytes", "named"),
    [
        (b"\x15\x03\x03\x00\x02", "TLS"),
        (b"\x16\x03\x01\x02\x00", "TLS"),
        (b"HTTP/1.1 400 Bad Request", "HTTP"),
        (b"SSH-2.0-OpenSSH", "SSH"),
    ],
)
def test_a_peer_that_speaks_something_else_is_recognised(first_bytes: bytes, named: str) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        feed(FrameReader(64 << 20), first_bytes)
    assert named in caught.value.why


def test_more_bytes_than_asked_for_are_our_own_mistake() -> None:
    with pytest.raises(Bug):
        FrameReader(100).advance(5)
