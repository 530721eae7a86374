"""Batches that are found and opened many at a time give what each of them gives alone, for any
bytes: the same chunks, or the same error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rangeland.decode.kafka.kernel import KafkaKernel
from rangeland.dialects.kafka import chunk_builder, entry_checks, log_entries, records
from rangeland.dialects.kafka.log_entries import entries
from rangeland.errors import BadRecord
from tests.examples import tried
from tests.fetched_records import fetched_at
from tests.message_sets import Message, encode_message
from tests.property.sanitizers import kernel_library, run_under_sanitizers
from tests.record_batches import ABORT, Batch, Record, cleaned, encode, marker
from tests.reference.kafka_records import KafkaReference

many = tried(40)
KERNEL = KafkaKernel(kernel_library())
CODECS = ["none", "none", "none", "lz4", "zstd"]


@st.composite
def stored(draw: st.DrawFn, *, good: bool) -> list[bytes]:
    """What a log may hold, entry by entry."""
    found: list[bytes] = []
    base = draw(st.integers(0, 3))
    for _ in range(draw(st.integers(0, 8))):
        producer = draw(st.sampled_from([-1, -1, 1]))
        kind = draw(st.sampled_from(["batch"] * 6 + ["marker", "message"]))
        if kind == "marker":
            found.append(encode(marker(base, 1, ABORT)))
            base += 1
            continue
        if kind == "message":
            found.append(encode_message(Message(base, b"k", b"v", draw(st.integers(0, 1)))))
            base += 1
            continue
        batch = batch_at(draw, base, producer)
        if not good and draw(st.integers(0, 4)) == 0:
            batch = replace(batch, **draw(st.sampled_from(ODD)))
        found.append(encode(batch))
        base += batch.last_delta + 1 + draw(st.sampled_from([0, 0, 0, 4] if good else [0, 0, -1]))
        base = max(base, 0)
    return found


ODD: list[dict[str, Any]] = [
    {"crc_error": 1},
    {"magic": 3},
    {"count": 90},
    {"count": -1},
    {"last_offset_delta": -2},
    {"last_offset_delta": 1 << 30},
    {"codec_number": 5},
    {"codec": "lz4", "body": b"\xff" * 30},
    {"body": b"\x00\xff"},
    {"base_offset": (1 << 63) - 2},
    {"base_offset": -7},
]


def batch_at(draw: st.DrawFn, base: int, producer: int) -> Batch:
    count = draw(st.integers(1, 5))
    batch = Batch(
        base,
        [Record(b"%d" % i, b"value") for i in range(count)],
        codec=draw(st.sampled_from(CODECS)),
        producer_id=producer,
        transactional=producer > 0,
        log_append=draw(st.booleans()),
        max_timestamp_ms=draw(st.integers(-1, 9)),
    )
    if draw(st.integers(0, 3)):
        return batch
    return cleaned(batch, draw(st.lists(st.sampled_from(range(count)), unique=True)))


def outcome(data: memoryview, wanted: Sequence[Any], max_bytes: int) -> list[Any]:
    """The chunks up to the end or the error, and what a fetch would ask for next."""
    found: list[Any] = []
    first, until, aborted = wanted
    fetched = fetched_at(data, first, aborted=tuple(aborted))
    try:
        with mock.patch.object(records, "MAX_CHUNK_BYTES", max_bytes):
            for chunk in records.decode_chunks(fetched, first, until):
                rows = None if chunk.batch is None else chunk.batch.to_pylist()
                found.append((chunk.next_offset, chunk.counts, rows))
    except BadRecord as error:
        found.append((error.what, error.why, error.facts))
    try:
        found.append(log_entries.scan(fetched).next_offset)
    except BadRecord as error:
        found.append((error.what, error.why, error.facts))
    return found


def assert_alike(data: bytes, wanted: Sequence[Any], max_bytes: int) -> None:
    view = memoryview(data)
    with mock.patch.object(log_entries, "kafka_decoder", KafkaReference):
        alone = outcome(view, wanted, max_bytes)
    for heads in (log_entries.HEADS, 2):
        with (
            mock.patch.object(log_entries, "kafka_decoder", return_value=KERNEL),
            mock.patch.object(log_entries, "HEADS", heads),
        ):
            assert outcome(view, wanted, max_bytes) == alone


wanted_ranges = st.tuples(
    st.integers(0, 30),
    st.integers(0, 60),
    st.lists(st.tuples(st.sampled_from([1, 2]), st.integers(0, 30)), max_size=2),
)
sizes = st.sampled_from([1, 60, 1 << 20])


@many
@given(found=stored(good=True), wanted=wanted_ranges, max_bytes=sizes, cut=st.integers(0, 80))
def test_batches_taken_many_at_a_time_give_what_each_gives_alone(
    found: list[bytes], wanted: Sequence[Any], max_bytes: int, cut: int
) -> None:
    data = b"".join(found)
    assert_alike(data[: max(0, len(data) - cut)], wanted, max_bytes)


@many
@given(found=stored(good=False), wanted=wanted_ranges, max_bytes=sizes)
def test_batches_with_faults_are_reported_as_they_are_alone(
    found: list[bytes], wanted: Sequence[Any], max_bytes: int
) -> None:
    assert_alike(b"".join(found), wanted, max_bytes)


@many
@given(found=stored(good=True), wanted=wanted_ranges, data=st.data())
def test_any_byte_may_be_another(
    found: list[bytes], wanted: Sequence[Any], data: st.DataObject
) -> None:
    spoilt = bytearray(b"".join(found))
    for _ in range(data.draw(st.integers(1, 3)) if spoilt else 0):
        spoilt[data.draw(st.integers(0, len(spoilt) - 1))] = data.draw(st.integers(0, 255))
    assert_alike(bytes(spoilt), wanted, 1 << 20)


@many
@given(found=stored(good=True), wanted=wanted_ranges)
def test_the_slow_decoder_takes_runs_of_batches_too(
    found: list[bytes], wanted: Sequence[Any]
) -> None:
    view = memoryview(b"".join(found))
    with mock.patch.object(log_entries, "kafka_decoder", return_value=KERNEL):
        fast = outcome(view, wanted, 1 << 20)
        with mock.patch.object(chunk_builder, "kafka_decoder", KafkaReference):
            assert outcome(view, wanted, 1 << 20) == fast


@many
@given(found=stored(good=True), from_offset=st.integers(0, 30), cut=st.sampled_from([0, 0, 1, 80]))
def test_a_scan_shows_the_same_however_many_batches_a_step_finds(
    found: list[bytes], from_offset: int, cut: int
) -> None:
    data = b"".join(found)
    view = memoryview(data)[: max(0, len(data) - cut)]
    with mock.patch.object(log_entries, "kafka_decoder", return_value=KERNEL):
        whole = log_entries.scan(fetched_at(view, from_offset))
        for heads in (1, 2, 3):
            with mock.patch.object(log_entries, "HEADS", heads):
                assert log_entries.scan(fetched_at(view, from_offset)) == whole


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_nothing_is_made_of_a_batch_that_nothing_contradicts(codec: str) -> None:
    data = b"".join(
        encode(Batch(base, [Record(b"k", b"v")] * 3, codec=codec)) for base in range(0, 9000, 3)
    )
    never = mock.Mock(side_effect=AssertionError("a batch was looked at alone"))
    with (
        mock.patch.object(log_entries, "kafka_decoder", return_value=KERNEL),
        mock.patch.object(log_entries, "batch_of", never),
        mock.patch.object(entry_checks, "batch_of", never),
    ):
        view = memoryview(data)
        assert log_entries.scan(fetched_at(view)).next_offset == 9000
        (chunk,) = records.decode_chunks(fetched_at(view, 3), 3, 8997)
        assert chunk.counts.landed == 8994
    assert len(list(entries(fetched_at(view)))) == 3000


@pytest.mark.slow
def test_the_walk_over_batches_touches_no_byte_that_is_not_there(tmp_path: Path) -> None:
    run_under_sanitizers(__file__, tmp_path)
