"""Record batches on the wire: what is wrong is named, and every offset gets its class."""

from __future__ import annotations

import struct
from dataclasses import replace
from unittest import mock

import cramjam
import pyarrow as pa
import pytest

from rangeland.decode import kafka_decoder
from rangeland.decode.kafka.entry_layouts import BATCH_V2
from rangeland.decode.kafka.layout import Fault
from rangeland.dialects.fetch_values import DecodedChunk, PartitionFetch
from rangeland.dialects.kafka import chunk_builder
from rangeland.dialects.kafka import messages as m
from rangeland.dialects.kafka.aborted_transactions import Aborted
from rangeland.dialects.kafka.compression import decompress
from rangeland.dialects.kafka.entry_checks import READERS
from rangeland.dialects.kafka.log_entries import entries, scan
from rangeland.dialects.kafka.records import decode_chunks
from rangeland.dialects.kafka.requests import read_records
from rangeland.errors import BadRecord, ProofFailed
from rangeland.model import Counts, Isolation, Partition
from rangeland.wire.bounded_decompression import NotDecompressible
from tests.fetched_records import fetched_at
from tests.kafka_chunks import decode_chunk
from tests.record_batches import (
    ABORT,
    CODECS,
    COMMIT,
    Batch,
    Record,
    cleaned,
    encode,
    encode_log,
    marker,
)


def ten(base: int, **changes: object) -> Batch:
    return Batch(base, [Record(b"%d" % i, b"value") for i in range(10)], **changes)  # type: ignore[arg-type]


def chunk_of(
    *batches: Batch,
    start: int = 0,
    until: int = 1 << 40,
    aborted: list[Aborted] | None = None,
) -> DecodedChunk:
    return decode_chunk(memoryview(encode_log(batches)), start, until, aborted or [])


def offsets(chunk: DecodedChunk) -> list[int]:
    return [] if chunk.batch is None else chunk.batch.column("offset").to_pylist()


def refusal(*batches: Batch) -> BadRecord:
    with pytest.raises(BadRecord) as caught:
        chunk_of(*batches)
    return caught.value


# --- codecs -----------------------------------------------------------------------------


@pytest.mark.parametrize("xerial", [False, True])
@pytest.mark.parametrize("codec", CODECS)
def test_every_codec_is_read(codec: str, xerial: bool) -> None:
    made = [Record(b"%d" % i, b"value" * 50, ((b"h", b"%d" % i),)) for i in range(2000)]
    chunk = chunk_of(Batch(5, made, codec=codec, xerial=xerial), start=5)
    assert chunk.counts == Counts(landed=2000)
    assert chunk.batch is not None
    assert chunk.batch.column("key").to_pylist() == [record.key for record in made]
    assert chunk.batch.column("headers")[1999].as_py() == [{"key": "h", "value": b"1999"}]


@pytest.mark.parametrize("level", [-5, 1, 19])
@pytest.mark.parametrize("size", [0, 1, 300, 1 << 17, (1 << 17) + 1, 3 << 20])
def test_the_bound_of_zstd_is_above_what_comes_out(level: int, size: int) -> None:
    data = (b"abc%d" % size * size)[:size]
    packed = bytes(cramjam.zstd.compress(data, level=level))
    assert bytes(decompress(CODECS["zstd"], memoryview(packed))) == data


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_an_empty_batch_keeps_its_codec_and_has_nothing_to_unpack(codec: str) -> None:
    """A cleaner leaves such batches, to remember a producer's last sequence."""
    empty = Batch(0, [], codec=codec, body=b"", last_offset_delta=9, producer_id=4)
    assert chunk_of(empty, ten(10)).counts == Counts(landed=10, compacted=10)


@pytest.mark.parametrize(
    ("codec", "packed"),
    [
        ("gzip", bytes(cramjam.gzip.compress(bytes(1 << 16)))),
        ("snappy", bytes(cramjam.snappy.compress_raw(bytes(1 << 16)))),
        ("lz4", bytes(cramjam.lz4.compress(bytes(1 << 16)))),
        ("zstd", bytes(cramjam.zstd.compress(bytes(1 << 16)))),
    ],
)
def test_a_bomb_is_refused_before_it_is_unpacked(
    codec: str, packed: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(size: int) -> object:
        raise AssertionError(f"{size} bytes were taken")

    monkeypatch.setattr(pa, "allocate_buffer", never)
    with pytest.raises(
        NotDecompressible, match=r"may unpack to .* bytes, and 65535 bytes are allowed"
    ):
        decompress(CODECS[codec], memoryview(packed), max_bytes=(1 << 16) - 1)


def test_a_gzip_that_lies_about_its_size_does_not_pass_it() -> None:
    packed = bytes(cramjam.gzip.compress(bytes(1 << 16)))
    lying = packed[:-4] + struct.pack("<I", 100)
    with pytest.raises(NotDecompressible, match="gzip"):
        decompress(CODECS["gzip"], memoryview(lying))


def test_an_unknown_codec_is_named() -> None:
    error = refusal(ten(30, codec_number=5))
    assert "codec 5" in str(error)
    assert error.facts == {"base_offset": 30, "next_offset": 40, "codec": 5}


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_bytes_that_do_not_unpack_are_refused(codec: str) -> None:
    error = refusal(ten(0, codec=codec, body=b"\xff" * 30))
    assert error.facts == {"base_offset": 0, "next_offset": 10, "codec": CODECS[codec]}


# --- what a batch says of itself --------------------------------------------------------


def test_a_wrong_checksum_is_refused_with_both_numbers() -> None:
    error = refusal(ten(0), ten(10, crc_error=1))
    facts = error.facts
    assert (facts["base_offset"], facts["next_offset"]) == (10, 20)
    assert facts["expected_crc"] == (facts["found_crc"] + 1) & 0xFFFFFFFF


@pytest.mark.parametrize("at", range(BATCH_V2.byte_index_of("attributes"), 90))
def test_the_checksum_covers_every_byte_after_it(at: int) -> None:
    stored = bytearray(encode(ten(0)))
    stored[at] ^= 1
    with pytest.raises(BadRecord):
        decode_chunk(memoryview(stored), 0, 100)


@pytest.mark.parametrize("batch", [ten(0, crc_error=1, producer_id=7, transactional=True)])
def test_a_wrong_checksum_is_found_in_an_aborted_batch_too(batch: Batch) -> None:
    with pytest.raises(BadRecord, match="checksum"):
        chunk_of(batch, marker(10, 7, ABORT), aborted=[(7, 0)])


@pytest.mark.parametrize("magic", [3, 127])
def test_a_format_without_a_reader_is_named(magic: int) -> None:
    assert magic not in READERS
    error = refusal(ten(20, magic=magic))
    assert error.facts == {"base_offset": 20, "magic": magic}


@pytest.mark.parametrize("length", [-1, 0, 4, 48])
def test_a_length_that_holds_no_batch_is_refused(length: int) -> None:
    stored = bytearray(encode(ten(0)))
    struct.pack_into(">i", stored, 8, length)
    with pytest.raises(BadRecord, match=f"its length is {length}"):
        decode_chunk(memoryview(stored), 0, 10)
    with pytest.raises(BadRecord, match=f"its length is {length}"):
        scan(fetched_at(stored))


@pytest.mark.parametrize(
    "batch",
    [
        ten(-1),
        ten(0, last_offset_delta=-1),
        ten((1 << 63) - 1),
        ten(0, last_offset_delta=8),
        ten(0, count=-1),
    ],
)
def test_a_header_that_contradicts_itself_is_refused(batch: Batch) -> None:
    assert refusal(batch).facts["base_offset"] == batch.base_offset


@pytest.mark.parametrize("base", [0, 5, 9])
def test_batches_that_overlap_or_go_back_are_refused(base: int) -> None:
    assert "it follows offset 9" in str(refusal(ten(0), ten(base)))


def test_a_malformed_record_is_named_by_batch_and_record() -> None:
    error = refusal(ten(0), replace(ten(10), body=b"\0" * 10))
    assert error.facts == {
        "base_offset": 10,
        "next_offset": 20,
        "record": 0,
        "byte_index": 1,
        "reason": Fault.RECORD_TOO_SHORT.reason,
    }


def test_a_number_of_rows_that_the_headers_rule_out_is_not_given_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kernel = kafka_decoder()
    short = mock.Mock(decode_records=lambda *given: kernel.decode_records(*given).slice(1))
    monkeypatch.setattr(chunk_builder, "kafka_decoder", lambda: short)
    with pytest.raises(ProofFailed, match="10 rows were expected"):
        chunk_of(ten(0))


# --- offsets ----------------------------------------------------------------------------


def test_a_piece_of_a_batch_at_the_end_is_ignored() -> None:
    stored = encode_log([ten(0), ten(10)])
    for size in range(len(encode(ten(0))), len(stored)):
        data = memoryview(stored)[:size]
        assert scan(fetched_at(data)).next_offset == 10
        assert decode_chunk(data, 0, 100).next_offset == 10


def test_without_a_complete_batch_there_is_no_next_offset() -> None:
    stored = encode(ten(0))
    assert {
        scan(fetched_at(memoryview(stored)[:size])).next_offset for size in range(len(stored))
    } == {None}


def test_the_next_offset_counts_what_a_cleaner_took() -> None:
    assert scan(fetched_at(encode(cleaned(ten(50), [2])))).next_offset == 60


@pytest.mark.parametrize(("start", "until"), [(0, 40), (3, 17), (12, 13), (19, 20), (25, 28)])
def test_only_wanted_offsets_are_counted(start: int, until: int) -> None:
    chunk = chunk_of(ten(0), ten(10), ten(20), ten(30), start=start, until=until)
    assert offsets(chunk) == list(range(start, until))
    assert chunk == DecodedChunk(until, chunk.batch, Counts(landed=until - start))


def test_gaps_before_between_and_inside_batches_are_compacted() -> None:
    chunk = chunk_of(cleaned(ten(5), [1, 4]), ten(20), until=25)
    assert offsets(chunk) == [6, 9, 20, 21, 22, 23, 24]
    assert chunk.counts == Counts(landed=7, compacted=18)


def test_a_batch_beyond_the_range_proves_that_its_end_is_compacted() -> None:
    chunk = chunk_of(ten(0), ten(40), until=20)
    assert (chunk.next_offset, chunk.counts) == (20, Counts(landed=10, compacted=10))


def test_the_end_of_the_bytes_proves_nothing_beyond_it() -> None:
    assert chunk_of(ten(0), until=20).next_offset == 10


def test_batches_before_the_range_are_passed_over_unopened() -> None:
    chunk = chunk_of(ten(0, crc_error=1), ten(10), start=10)
    assert chunk.counts == Counts(landed=10)


def test_rows_have_the_brokers_time_where_it_stamped_them() -> None:
    chunk = chunk_of(ten(0, log_append=True, max_timestamp_ms=1234))
    assert chunk.batch is not None
    assert chunk.batch.column("timestamp")[9].value == 1_234_000
    assert chunk.batch.column("timestampType").to_pylist() == [1] * 10


def test_a_chunk_ends_where_its_memory_does() -> None:
    data = memoryview(encode_log([ten(0), ten(10), ten(20)]))
    first = decode_chunk(data, 0, 30, max_bytes=1)
    assert (first.next_offset, first.counts) == (10, Counts(landed=10))
    assert [c.next_offset for c in decode_chunks(fetched_at(data, 5), 5, 25)] == [25]


# --- transactions -----------------------------------------------------------------------


def of(producer: int, base: int, **changes: object) -> Batch:
    return ten(base, producer_id=producer, transactional=True, **changes)


def test_aborted_records_are_counted_and_not_landed() -> None:
    log = [of(7, 0), marker(10, 7, ABORT), of(7, 11), marker(21, 7, COMMIT)]
    chunk = chunk_of(*log, aborted=[(7, 0)])
    assert offsets(chunk) == list(range(11, 21))
    assert chunk.counts == Counts(landed=10, control=2, aborted=10)


def test_read_uncommitted_lands_them_and_still_counts_markers() -> None:
    part = m.FetchedPartitionData(
        partition_index=0,
        error_code=0,
        high_watermark=11,
        records=memoryview(encode_log([of(7, 0), marker(10, 7, ABORT)])),
        aborted_transactions=(m.AbortedTransaction(producer_id=7, first_offset=0),),
    )
    response = m.FetchResponse(responses=(m.FetchedTopic(topic="t", partitions=(part,)),))
    asked = [PartitionFetch(Partition("t", 0), None, None, 0, 1 << 20)]
    for isolation, counts in (
        (Isolation.READ_COMMITTED, Counts(aborted=10, control=1)),
        (Isolation.READ_UNCOMMITTED, Counts(landed=10, control=1)),
    ):
        (read,) = read_records([response], asked, isolation).partitions
        (chunk,) = decode_chunks(read.records, 0, 11)
        assert isinstance(chunk, DecodedChunk)
        assert chunk.counts == counts


def test_producers_do_not_abort_each_other() -> None:
    log = [of(1, 0), of(2, 10), ten(20), marker(30, 1, ABORT), of(1, 31), marker(41, 2, COMMIT)]
    chunk = chunk_of(*log, aborted=[(1, 0)])
    assert offsets(chunk) == [*range(10, 20), *range(20, 30), *range(31, 41)]


def test_a_producer_outside_transactions_is_never_aborted() -> None:
    chunk = chunk_of(ten(0, producer_id=7), aborted=[(7, 0)])
    assert chunk.counts == Counts(landed=10)


def test_a_producer_can_abort_again_and_again() -> None:
    log = [of(7, 0), marker(10, 7, ABORT), of(7, 11), marker(21, 7, ABORT), of(7, 22)]
    chunk = chunk_of(*log, aborted=[(7, 11), (7, 0)])
    assert chunk.counts == Counts(landed=10, control=2, aborted=20)


def test_a_transaction_that_began_before_the_fetch_is_aborted_too() -> None:
    chunk = chunk_of(of(7, 100), marker(110, 7, ABORT), start=100, aborted=[(7, 3)])
    assert chunk.counts == Counts(control=1, aborted=10)


def test_markers_before_the_range_still_end_transactions() -> None:
    log = [of(7, 0), marker(10, 7, ABORT), of(7, 11)]
    assert chunk_of(*log, start=11, aborted=[(7, 0)]).counts == Counts(landed=10)


@pytest.mark.parametrize(
    ("start", "until", "counts"),
    [
        (0, 10, Counts(aborted=3, compacted=7)),
        (2, 8, Counts(aborted=2, compacted=4)),
        (3, 4, Counts(compacted=1)),
    ],
)
def test_gaps_in_aborted_batches_are_compacted(start: int, until: int, counts: Counts) -> None:
    log = [cleaned(of(7, 0), [1, 4, 6]), marker(10, 7, ABORT)]
    assert chunk_of(*log, start=start, until=until, aborted=[(7, 0)]).counts == counts


def test_a_marker_that_a_cleaner_took_is_compacted() -> None:
    empty = replace(marker(10, 7, ABORT), records=[], last_offset_delta=0)
    assert chunk_of(ten(0), empty, aborted=[(7, 0)]).counts == Counts(landed=10, compacted=1)


@pytest.mark.parametrize("key", [None, b"", b"\0\0\0"])
def test_a_marker_without_a_kind_is_refused(key: bytes | None) -> None:
    odd = replace(marker(10, 7, ABORT), records=[Record(key)])
    with pytest.raises(BadRecord, match="marker"):
        chunk_of(of(7, 0), odd, aborted=[(7, 0)])


def test_entries_say_what_their_headers_say() -> None:
    one, two = entries(fetched_at(encode_log([of(7, 3), marker(13, 7, COMMIT)])))
    assert (one.base_offset, one.last_offset, one.record_count, one.producer_id) == (3, 12, 10, 7)
    assert [(e.transactional, e.control) for e in (one, two)] == [(True, False), (True, True)]
