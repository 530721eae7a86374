"""Log formats 0 and 1: runs and wrappers become rows, and every offset gets its class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import cramjam
import pytest

from rangeland.cluster_settings import ClusterSettings
from rangeland.dialects.fetch_values import DecodedChunk, Gap
from rangeland.dialects.kafka.compression import mend_lz4
from rangeland.dialects.kafka.legacy_messages import MAX_JOINED_BYTES
from rangeland.dialects.kafka.log_entries import cut_out, entries, scan
from rangeland.dialects.kafka.records import decode_chunks
from rangeland.errors import BadRecord
from rangeland.fetch.read_settings import ReadSettings
from rangeland.fetch.slice_chunks import LostChunk, ReadChunk
from rangeland.fetch.slice_reading import read_slices
from rangeland.loss import Action, DamagedBytes
from rangeland.model import Counts, Partition, Slice
from rangeland.planning.policy import Policy
from tests.fetched_records import fetched_at
from tests.kafka_chunks import decode_chunk
from tests.message_sets import NOW_MS, Message, Wrapper, encode_all, old_lz4
from tests.record_batches import Batch, Record, encode

EVERYTHING = (0, 1 << 40)
Entries = Sequence[Message | Wrapper]


def plain(first: int, count: int = 10, **changes: Any) -> list[Message]:
    return [Message(first + i, b"%d" % i, b"value %d" % i, **changes) for i in range(count)]


def chunk_of(*stored: Entries | bytes, start: int = 0, until: int = 1 << 40) -> DecodedChunk:
    data = b"".join(one if isinstance(one, bytes) else encode_all(one) for one in stored)
    return decode_chunk(memoryview(data), start, until)


def column(chunk: DecodedChunk, name: str) -> list[Any]:
    assert chunk.batch is not None
    return list(chunk.batch.column(name).to_pylist())


def offsets(chunk: DecodedChunk) -> list[int]:
    return column(chunk, "offset")


def refusal(*stored: Entries | bytes) -> BadRecord:
    with pytest.raises(BadRecord) as caught:
        chunk_of(*stored)
    return caught.value


# --- rows -------------------------------------------------------------------------------


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4"])
def test_rows_are_the_same_whatever_they_are_packed_with(magic: int, codec: str) -> None:
    made = [
        Message(7, b"key", b"value" * 300, magic),
        Message(8, None, b"", magic),
        Message(9, b"", None, magic),
    ]
    stored = made if codec == "none" else [Wrapper(made, codec, magic)]
    chunk = chunk_of(stored, start=7)
    assert chunk.counts == Counts(landed=3)
    assert offsets(chunk) == [7, 8, 9]
    assert column(chunk, "key") == [b"key", None, b""]
    assert column(chunk, "value") == [b"value" * 300, b"", None]
    assert column(chunk, "headers") == [None] * 3
    times = column(chunk, "timestamp")
    assert [t if t is None else t.timestamp() for t in times] == [
        NOW_MS / 1000 if magic else None
    ] * 3
    assert column(chunk, "timestampType") == [magic - 1] * 3


def test_a_snappy_body_without_frames_is_read_too() -> None:
    assert offsets(chunk_of([Wrapper(plain(0), "snappy", xerial=False)])) == list(range(10))


def test_each_plain_message_says_who_stamped_it() -> None:
    made = [
        Message(0, magic=1, timestamp_ms=5),
        Message(1, magic=1, timestamp_ms=6, log_append=True),
    ]
    chunk = chunk_of(made)
    assert column(chunk, "timestampType") == [0, 1]
    assert [t.timestamp() for t in column(chunk, "timestamp")] == [0.005, 0.006]


def test_a_wrapper_that_the_broker_stamped_speaks_for_all_in_it() -> None:
    inner = plain(0, 3, magic=1)
    chunk = chunk_of([Wrapper(inner, magic=1, timestamp_ms=77_000, log_append=True)])
    assert column(chunk, "timestampType") == [1] * 3
    assert [t.timestamp() for t in column(chunk, "timestamp")] == [77.0] * 3


# --- offsets ----------------------------------------------------------------------------


@pytest.mark.parametrize("magic", [0, 1])
def test_a_wrapper_is_read_from_the_middle(magic: int) -> None:
    stored = [Wrapper(plain(100, magic=magic), magic=magic)]
    chunk = chunk_of(stored, start=104, until=107)
    assert (offsets(chunk), chunk.counts) == ([104, 105, 106], Counts(landed=3))
    assert scan(fetched_at(encode_all(stored))).next_offset == 110


def test_offsets_inside_count_back_from_the_wrapper() -> None:
    """A cleaner took the first and the last: the wrapper says where the last one left is."""
    inner = [Message(n, b"k", magic=1) for n in (103, 105, 106)]
    chunk = chunk_of([Wrapper(inner, magic=1, base=100)], start=100, until=110)
    assert offsets(chunk) == [103, 105, 106]
    assert (chunk.next_offset, chunk.counts) == (107, Counts(landed=3, compacted=4))


def test_gaps_are_compacted_between_messages_and_in_wrappers() -> None:
    made = [Message(2), Message(5), Wrapper([Message(7), Message(9)]), Message(20)]
    chunk = chunk_of(made)
    assert offsets(chunk) == [2, 5, 7, 9, 20]
    assert chunk.counts == Counts(landed=5, compacted=16)


def test_gaps_between_messages_are_named_where_nothing_explains_them() -> None:
    """Those inside a wrapper are a cleaner's."""
    made = [Message(2), Message(3), Message(5), Wrapper([Message(7), Message(9)]), Message(20)]
    parts = list(
        decode_chunks(
            fetched_at(encode_all(made)),
            0,
            21,
            reports_gaps=True,
        )
    )
    gaps = [part.next_offset for part in parts if isinstance(part, Gap)]
    found = [part for part in parts if isinstance(part, DecodedChunk)]
    assert gaps == [2, 5, 7, 20]
    assert [chunk.next_offset for chunk in found] == [4, 6, 10, 21]
    assert Counts.sum(chunk.counts for chunk in found) == Counts(landed=6, compacted=1)


def test_a_range_that_cuts_through_gaps_counts_them() -> None:
    chunk = chunk_of([Wrapper([Message(7), Message(9), Message(12)])], start=8, until=11)
    assert (offsets(chunk), chunk.counts) == ([9], Counts(landed=1, compacted=2))


def test_all_formats_live_in_one_log() -> None:
    """As they do in a log whose brokers were upgraded."""
    batch = Batch(30, [Record(b"k", b"v", ((b"h", b"x"),))] * 10, codec="lz4")
    chunk = chunk_of(
        plain(0),
        [Wrapper(plain(10), "gzip")],
        [Wrapper(plain(20, magic=1), "lz4", magic=1)],
        encode(batch),
        plain(40, 5, magic=1),
    )
    assert offsets(chunk) == list(range(45))
    assert column(chunk, "timestampType") == [-1] * 20 + [0] * 25
    heads = column(chunk, "headers")
    assert [x is not None for x in heads] == [False] * 30 + [True] * 10 + [False] * 5


def test_a_message_that_is_cut_off_waits_for_the_next_fetch() -> None:
    data = encode_all([*plain(0), Wrapper(plain(10))])
    cut = data[:-1]
    assert scan(fetched_at(cut)).next_offset == 10
    assert chunk_of(cut).counts == Counts(landed=10)
    assert scan(fetched_at(encode_all(plain(0, 1))[:-1])).next_offset is None


def test_a_long_run_comes_in_pieces_that_follow_on_each_other() -> None:
    made = [Message(n, None, b"x" * 4096) for n in range(3 * MAX_JOINED_BYTES // 4096)]
    data = memoryview(encode_all(made))
    found = list(entries(fetched_at(data)))
    assert len(found) == 4
    assert [e.base_offset for e in found[1:]] == [e.last_offset + 1 for e in found[:-1]]
    assert sum(e.record_count for e in found) == len(made)
    assert scan(fetched_at(data)).next_offset == len(made)


# --- what is wrong ----------------------------------------------------------------------


def test_a_bad_message_of_a_run_is_named_alone() -> None:
    made = [*plain(0), Message(10, b"k", crc=1), *plain(11)]
    error = refusal(made)
    assert "offset 10" in str(error)
    assert "checksum is wrong" in str(error)
    assert (error.facts["base_offset"], error.facts["next_offset"]) == (10, 11)
    data = encode_all(made)
    assert chunk_of(data, until=10).counts == Counts(landed=10)
    assert chunk_of(data, start=11).counts == Counts(landed=10)
    assert cut_out(fetched_at(data), 10, 11) == encode_all([made[10]])


@pytest.mark.parametrize("magic", [0, 1])
def test_a_bad_wrapper_takes_all_that_may_be_in_it(magic: int) -> None:
    bad = Wrapper(plain(10, magic=magic), magic=magic, crc=1)
    stored = [*plain(0), bad, *plain(20)]
    error = refusal(stored)
    assert "checksum is wrong (codec gzip)" in str(error)
    assert (error.facts["base_offset"], error.facts["next_offset"]) == (10, 20)
    data = memoryview(encode_all(stored))
    assert cut_out(fetched_at(data), 10, 20) == encode_all([bad])
    assert chunk_of(bytes(data), start=20).counts == Counts(landed=10)


def test_a_bad_message_inside_a_wrapper_is_a_bad_wrapper() -> None:
    inner = [*plain(0, 3), replace(plain(3, 1)[0], crc=1)]
    error = refusal([Wrapper(inner)])
    assert "of its record 3, the message's checksum is wrong" in str(error)
    assert (error.facts["base_offset"], error.facts["next_offset"]) == (0, 4)


@pytest.mark.parametrize(
    ("wrapper", "why"),
    [
        (Wrapper(body=b"\xff" * 40, offset=3), "gzip data cannot be unpacked"),
        (Wrapper(body=bytes(cramjam.gzip.compress(b"")), offset=3), "it is empty"),
        (Wrapper(plain(0), codec="gzip", offset=4), "offsets 0 to 9, but only 0 to 4"),
        (
            Wrapper(plain(0), codec="gzip", offset=13),
            "it is at offset 13, but its last message at 9",
        ),
        (
            Wrapper(body=bytes(cramjam.gzip.compress(encode_all(plain(0, 2)) + b"!!")), offset=1),
            "no plain message at byte",
        ),
        (
            Wrapper(body=bytes(cramjam.gzip.compress(encode_all([Wrapper(plain(0))]))), offset=9),
            "no plain message at byte 0",
        ),
        (Wrapper(plain(0), codec="zstd", offset=-1), "its offsets are impossible"),
    ],
    ids=["junk", "empty", "beyond", "before", "tail", "nested", "negative"],
)
def test_a_wrapper_that_makes_no_sense_says_why(wrapper: Wrapper, why: str) -> None:
    assert why in str(refusal([wrapper]))


def test_offsets_that_go_back_are_refused() -> None:
    assert "it follows offset 9" in str(refusal(plain(0), plain(5)))
    overlapping = refusal(plain(0), [Wrapper(plain(5))])
    assert "offsets 5 to 14, but only 10 to 14" in str(overlapping)


@pytest.mark.parametrize("magic", [0, 1])
def test_what_is_damaged_is_quarantined_and_all_around_it_is_landed(magic: int) -> None:
    bad_message = Message(7, b"k", b"v", magic, crc=1)
    bad_wrapper = Wrapper(plain(20, magic=magic), magic=magic, crc=2)
    stored: Entries = [
        *plain(0, 7, magic=magic),
        bad_message,
        *plain(8, 2, magic=magic),
        Wrapper(plain(10, magic=magic), magic=magic),
        bad_wrapper,
        *plain(30, magic=magic),
    ]
    settings = ReadSettings(
        ClusterSettings("kafka", ()),
        policy=Policy(corrupt=Action.QUARANTINE),
        quarantined_bytes={0: DamagedBytes(encode_all(stored), (), "")},
    )
    chunks = list(read_slices([Slice(0, Partition("t", 0), 3, 38, 0)], settings))
    read = [c.rows for c in chunks if isinstance(c, ReadChunk) and c.rows is not None]
    rows = [offset for batch in read for offset in batch.column("offset").to_pylist()]
    assert rows == [*range(3, 7), *range(8, 20), *range(30, 38)]
    assert Counts.sum(c.counts for c in chunks) == Counts(landed=24, quarantined=11)
    aside = [
        (c.from_offset, c.until_offset, c.quarantined_bytes.records)
        for c in chunks
        if isinstance(c, LostChunk) and isinstance(c.quarantined_bytes, DamagedBytes)
    ]
    assert aside == [(7, 8, encode_all([bad_message])), (20, 30, encode_all([bad_wrapper]))]


# --- the old lz4 ------------------------------------------------------------------------


@pytest.mark.parametrize("content_size", [False, True])
def test_the_old_checksum_of_lz4_is_mended(content_size: bool) -> None:
    data = b"value" * 1000
    frame = bytes(cramjam.lz4.compress(data))
    if content_size:
        # Flag 8, and eight bytes more of descriptor; its checksum is the mender's to find.
        frame = (
            frame[:4]
            + bytes([frame[4] | 8, frame[5]])
            + len(data).to_bytes(8, "little")
            + (frame[6:])
        )
        assert bytes(cramjam.lz4.decompress(bytes(mend_lz4(memoryview(frame))))) == data
    broken = old_lz4(bytes(mend_lz4(memoryview(frame))))
    assert bytes(cramjam.lz4.decompress(bytes(mend_lz4(memoryview(broken))))) == data


@pytest.mark.parametrize("size", [0, 4, 5, 6])
def test_an_lz4_frame_that_ends_early_is_left_as_it_is(size: int) -> None:
    frame = bytes(cramjam.lz4.compress(b"value"))[:size]
    assert mend_lz4(memoryview(frame)) == frame
