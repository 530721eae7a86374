"""Frames of lz4 that are opened block by block give what the library's decoder of frames gives,
for any bytes; and of those that producers write, each is."""

from __future__ import annotations

import struct
from unittest import mock

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rangeland.wire import bounded_decompression
from rangeland.wire.bounded_decompression import Codec, NotDecompressible, decompress
from tests.examples import tried

many = tried(40)
STORED = 1 << 31
HEADS = {4: 0x82, 5: 0xFB, 6: 0x51, 7: 0x73}
"""The checksum of a head that asks for nothing, by the size of its blocks."""

pieces = st.one_of(
    st.binary(min_size=1, max_size=60),
    st.integers(1, 3000).map(lambda size: b"value " * size),
    st.integers(65_000, 65_536).map(lambda size: b"x" * size),
)


def frame(blocks: list[tuple[bytes, bool]], sizes: int = 4) -> bytes:
    """As Kafka's clients write it: independent blocks, no checksum but the head's."""
    parts = [struct.pack("<IBBB", 0x184D2204, 0x60, sizes << 4, HEADS[sizes])]
    for data, is_stored in blocks:
        packed = data if is_stored else bytes(cramjam.lz4.compress_block(data, store_size=False))
        parts += [struct.pack("<I", len(packed) | (STORED if is_stored else 0)), packed]
    return b"".join([*parts, bytes(4)])


def outcome(packed: bytes) -> bytes | str:
    try:
        return bytes(decompress(Codec.LZ4, memoryview(packed)))
    except NotDecompressible:
        return "undecodable"


def by_the_library(packed: bytes) -> bytes | str:
    with mock.patch.object(bounded_decompression, "_LZ4_PLAIN_HEADS", {}):
        return outcome(packed)


@many
@given(
    blocks=st.lists(st.tuples(pieces, st.booleans()), max_size=4), sizes=st.sampled_from([4, 5, 7])
)
def test_a_plain_frame_is_opened_block_by_block(
    blocks: list[tuple[bytes, bool]], sizes: int
) -> None:
    packed = frame(blocks, sizes)
    wanted = b"".join(data for data, _ in blocks)
    target = memoryview(bytearray(len(wanted) + (1 << 16)))
    assert bounded_decompression._lz4_plain_unpack(memoryview(packed), target) == len(wanted)
    assert outcome(packed) == by_the_library(packed) == wanted


@many
@given(blocks=st.lists(st.tuples(pieces, st.booleans()), max_size=3), data=st.data())
def test_a_frame_with_other_bytes_is_what_the_library_says(
    blocks: list[tuple[bytes, bool]], data: st.DataObject
) -> None:
    packed = bytearray(frame(blocks))
    for _ in range(data.draw(st.integers(0, 2))):
        packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    size = data.draw(st.one_of(st.just(len(packed)), st.integers(0, len(packed))))
    spoilt = bytes(packed[:size]) + data.draw(st.sampled_from([b"", b"", b"\0\0\0\0", b"tail"]))
    assert outcome(spoilt) == by_the_library(spoilt)


@pytest.mark.parametrize("sizes", HEADS)
def test_a_block_that_gives_more_than_its_size_is_refused(sizes: int) -> None:
    most = 1 << (8 + 2 * sizes)
    assert outcome(frame([(bytes(most), False)], sizes)) == bytes(most)
    assert outcome(frame([(bytes(most + 1), False)], sizes)) == "undecodable"
