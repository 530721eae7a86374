"""Bytes that would become gigabytes: refused by name, in little memory and in little time.

They are made here and read in a process of its own, whose memory is looked at afterwards.
"""

from __future__ import annotations

import gzip
import json
import resource
import struct
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

import cramjam
import pytest

from rangeland.dialects.dialect import load_dialect
from rangeland.dialects.fetch_values import DecodedChunk
from rangeland.errors import BadRecord
from tests.fetched_records import fetched_at
from tests.jafka_entries import packed
from tests.message_sets import Message, Wrapper, encode_message, encode_wrapper
from tests.record_batches import ABORT, COMMIT, Batch, Record, cleaned, encode, marker, varint
from tests.rocketmq_messages import INNER_BATCH, NEED_UNWRAP, PACKED, ZSTD, batch, inner, stored

MIB = 1 << 20
MEMORY = 420 * MIB
"""Above what the imports take: twice the budget of a batch, and the buffers around it."""
LIMIT_S = 20  # of processor time, for all of them
FAR = 1 << 40


def zstd(data: bytes) -> bytes:
    return bytes(cramjam.zstd.compress(data))


def with_headers(count: int, codec: str = "zstd") -> bytes:
    """One record with so many headers of two bytes; with zstd, in a few kilobytes."""
    head = b"\0" + varint(0) + varint(0) + varint(-1) + varint(-1) + varint(count)
    size = varint(len(head) + 2 * count)
    body = {"zstd": zstd, "none": bytes}[codec](size + head + b"\0\x01" * count)
    return encode(Batch(0, [Record()], codec, body=body))


def tiny_records(count: int, codec: str = "zstd") -> bytes:
    """All of them at one offset delta, which nobody gets to see: there are too many."""
    one = bytes([12, 0, 0, 0, 1, 1, 0])
    body = {"zstd": zstd, "none": bytes}[codec](one * count)
    return encode(Batch(0, [], codec, body=body, count=count, last_offset_delta=count - 1))


def tiny_messages(count: int) -> bytes:
    inside = encode_message(Message(0, None, b"", 1)) * count
    return encode_wrapper(Wrapper([Message(count - 1, magic=1)], "gzip", 1, body=_gzip(inside)))


def _gzip(data: bytes) -> bytes:
    return gzip.compress(data, 6, mtime=0)


def bombs() -> Iterator[tuple[str, str, bytes]]:
    """Dialect, what it is, its bytes."""
    yield "kafka", "200 million headers", with_headers(200_000_000)
    yield "kafka", "30 million headers within the bytes", with_headers(30_000_000)
    yield "kafka", "50 million records", tiny_records(50_000_000)
    yield "kafka", "8 million records within the bytes", tiny_records(8_000_000)
    yield "kafka", "8 million records that are not compressed", tiny_records(8_000_000, "none")
    yield "kafka", "4 million messages in a wrapper", tiny_messages(4_000_000)
    yield (
        "kafka",
        "256 MiB of zeros",
        encode(Batch(0, [Record()], "zstd", body=zstd(bytes(256 * MIB)))),
    )
    small = inner()
    yield (
        "rocketmq",
        "2 million messages in a batch",
        batch(
            [],
            number=4,
            body=zstd(small * 2_000_000),
            flags=INNER_BATCH | NEED_UNWRAP | PACKED | ZSTD << 8,
        ),
    )
    yield (
        "rocketmq",
        "a body of 256 MiB",
        stored(zstd(bytes(256 * MIB)), 0, flags=PACKED | ZSTD << 8),
    )
    yield (
        "rocketmq",
        "a body of 256 MiB in zlib",
        stored(zlib.compress(bytes(256 * MIB)), 0, flags=PACKED),
    )
    empty = struct.pack(">ibBI", 6, 1, 0, 0)
    yield "jafka", "10 million messages in an entry", packed(empty * 10_000_000)
    yield "jafka", "256 MiB in an entry", packed(bytes(256 * MIB))


@pytest.mark.parametrize("decoder", ["kernel"])
def test_bombs_are_refused_in_little_memory_and_time(tmp_path: Path, decoder: str) -> None:
    listed = []
    for number, (dialect, what, data) in enumerate(bombs()):
        path = tmp_path / str(number)
        path.write_bytes(data)
        listed.append([dialect, what, str(path)])
    command = [sys.executable, "-m", "tests.unit.test_decompression_bombs"]
    done = subprocess.run(
        command, input=json.dumps(listed), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    for what, refusal, grown, seconds in json.loads(done.stdout):
        assert refusal, f"{what} was decoded"
        assert grown < MEMORY, f"{what} took {grown >> 20} MiB"
        assert seconds < LIMIT_S, f"{what} took {seconds} s"


def test_entries_that_are_small_on_disk_and_large_in_memory_are_decoded_few_at_a_time() -> None:
    headers = bytearray(with_headers(1_000_000))
    batches = bytearray()
    for offset in range(12):
        headers[:8] = offset.to_bytes(8, "big")
        batches += headers
    entry = packed(struct.pack(">ibBI", 6, 1, 0, 0) * 500_000)
    for dialect, data, until in (("kafka", batches, 12), ("jafka", entry * 8, 8 * len(entry))):
        chunks = load_dialect(dialect).decode_chunks(fetched_at(bytes(data)), 0, until)
        assert len(list(chunks)) > 1, dialect


@pytest.mark.parametrize("codec", ["none", "zstd"])
@pytest.mark.parametrize("aborted", [(), ((7, 0),)], ids=["plain", "in a transaction"])
def test_headers_are_decoded_few_at_a_time(
    codec: str, aborted: tuple[tuple[int, int], ...]
) -> None:
    """Also where they are not compressed, and between the batches of an aborted transaction."""
    data = encode(Batch(0, [Record(b"k", b"v")], transactional=True, producer_id=7))
    batch = bytearray(with_headers(500_000, codec))
    for offset in range(1, 25):
        batch[:8] = offset.to_bytes(8, "big")
        data += batch
    data += encode(marker(25, 7, ABORT if aborted else COMMIT))
    landed = 0
    for chunk in load_dialect("kafka").decode_chunks(fetched_at(data, aborted=aborted), 0, 26):
        assert isinstance(chunk, DecodedChunk)
        landed += chunk.counts.landed
        if chunk.batch is not None:
            assert len(chunk.batch.column("headers").flatten()) <= 4 * MIB
    assert landed == 24 if aborted else 25


def test_a_batch_of_headers_after_a_small_one_is_decoded_alone() -> None:
    most = bytearray(with_headers(5_000_000))
    most[:8] = (1).to_bytes(8, "big")
    for first, ends in ((Batch(0, [Record(b"k", b"v")]), [1, 2]), (cleaned(Batch(0), []), [2])):
        data = memoryview(encode(first) + most)
        chunks = load_dialect("kafka").decode_chunks(fetched_at(data), 0, 2)
        assert [chunk.next_offset for chunk in chunks] == ends


def test_the_bound_is_a_setting() -> None:
    dialect = load_dialect("kafka")
    data = memoryview(encode(Batch(0, [Record(b"k", b"v" * 3 * MIB)], "zstd")))
    (chunk,) = dialect.decode_chunks(fetched_at(data, max_batch_bytes=4 * MIB), 0, 1)
    assert chunk.next_offset == 1
    with pytest.raises(BadRecord, match=r"source\.max_batch_bytes"):
        list(dialect.decode_chunks(fetched_at(data, max_batch_bytes=2 * MIB), 0, 1))


def main() -> None:
    dialects = {name: load_dialect(name) for name in ("kafka", "rocketmq", "jafka")}
    warm = memoryview(encode(Batch(0, [Record(b"k", b"v")], "zstd")))
    list(dialects["kafka"].decode_chunks(fetched_at(warm), 0, 1))
    before = _peak()
    told = []
    for name, what, path in json.loads(sys.stdin.read()):
        data = Path(path).read_bytes()
        started, refusal = time.process_time(), ""
        until = len(data) if name == "jafka" else FAR
        try:
            for _ in dialects[name].decode_chunks(fetched_at(data), 0, until):
                pass
        except BadRecord as error:
            refusal = f"{error.what}: {error.why}"
        told.append((what, refusal, _peak() - before, round(time.process_time() - started, 2)))
    print(json.dumps(told))


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


if __name__ == "__main__":
    main()
