"""However a log is cut into fetches, and whatever range is wanted: the same rows, and a
class for every offset.

The model writes a log and notes the class of every offset as it goes; a pretended broker
serves it in pieces, with the list of aborted transactions that a real one would send."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from hypothesis import given
from hypothesis import strategies as st

from rangeland.dialects.fetch_values import DecodedChunk, FetchedRecords, Gap
from rangeland.dialects.kafka.log_entries import entries, scan
from rangeland.dialects.kafka.records import decode_chunks
from rangeland.errors import BadRecord
from rangeland.model import Counts, Isolation
from tests.examples import tried
from tests.fetched_records import fetched_at
from tests.kafka_chunks import decode_chunk
from tests.record_batches import ABORT, COMMIT, Batch, Record, cleaned, encode, marker

many = tried(60)
COMMITTED, UNCOMMITTED = Isolation.READ_COMMITTED, Isolation.READ_UNCOMMITTED


@dataclass
class Log:
    """What was written: bytes by batch, and the class of every offset from the start on."""

    batches: list[tuple[int, int, bytes]] = field(default_factory=list)
    classes: dict[int, str] = field(default_factory=dict)
    written_by: dict[int, int] = field(default_factory=dict)
    open_since: dict[int, int] = field(default_factory=dict)
    aborted: list[tuple[int, int, int]] = field(default_factory=list)
    end: int = 0

    def append(self, batch: Batch, kind: str) -> None:
        present = set(batch.offsets)
        for offset in range(self.end, batch.next_offset):
            self.classes[offset] = kind if offset in present else "compacted"
            self.written_by[offset] = batch.producer_id
        self.batches.append((batch.base_offset, batch.next_offset, encode(batch)))
        self.end = batch.next_offset

    def end_transaction(self, producer: int, kind: int) -> None:
        first = self.open_since.pop(producer)
        if kind == ABORT:
            self.aborted.append((producer, first, self.end))
            for offset in range(first, self.end):
                if self.classes[offset] == "landed" and self.written_by[offset] == producer:
                    self.classes[offset] = "aborted"
        self.append(marker(self.end, producer, kind), "control")

    def class_of(self, offset: int, isolation: Isolation) -> str:
        kind = self.classes[offset]
        return "landed" if kind == "aborted" and isolation is UNCOMMITTED else kind

    def fetch(self, offset: int, size: int, isolation: Isolation) -> FetchedRecords:
        """At least one whole batch, then whatever fits, cut anywhere."""
        there = [data for _, until, data in self.batches if until > offset]
        data = b"".join(there)[: max(size, len(there[0]))] if there else b""
        listed = [(producer, first) for producer, first, at in self.aborted if at >= offset]
        return fetched_at(data, offset, aborted=tuple(listed) if isolation is COMMITTED else ())


@st.composite
def logs(draw: st.DrawFn) -> Log:
    log = Log()
    log.end = start = draw(st.integers(0, 3))
    for _ in range(draw(st.integers(1, 16))):
        producer = draw(st.sampled_from([-1, 1, 1, 2]))
        if producer in log.open_since and draw(st.booleans()):
            log.end_transaction(producer, draw(st.sampled_from([COMMIT, ABORT])))
            continue
        batch = draw(batches(log.end + draw(st.sampled_from([0, 0, 0, 1, 5])), producer))
        if producer > 0:
            log.open_since.setdefault(producer, batch.base_offset)
        log.append(batch, "landed")
    for producer in sorted(log.open_since):
        log.end_transaction(producer, draw(st.sampled_from([COMMIT, ABORT])))
    log.classes = {offset: log.classes[offset] for offset in range(start, log.end)}
    return log


@st.composite
def batches(draw: st.DrawFn, base_offset: int, producer: int) -> Batch:
    count = draw(st.integers(1, 6))
    records = [Record(b"%d" % i, b"value") for i in range(count)]
    batch = Batch(
        base_offset,
        records,
        codec=draw(st.sampled_from(["none", "gzip", "snappy", "lz4", "zstd"])),
        transactional=producer > 0,
        producer_id=producer,
    )
    if draw(st.integers(0, 2)) == 0:
        batch = cleaned(batch, draw(st.lists(st.sampled_from(range(count)), unique=True)))
    return batch


def read(
    log: Log, from_offset: int, until_offset: int, isolation: Isolation, size: int, max_bytes: int
) -> list[DecodedChunk]:
    """As a slice is read: fetch at the next offset until it is done."""
    chunks = []
    at = from_offset
    while at < until_offset:
        fetched = log.fetch(at, size, isolation)
        fetched_until = scan(fetched).next_offset
        assert fetched_until is not None
        while at < min(fetched_until, until_offset):
            chunk = decode_chunk(
                fetched.data, at, until_offset, fetched.aborted, max_bytes=max_bytes
            )
            assert at < chunk.next_offset <= min(fetched_until, until_offset)
            assert chunk.counts.total == chunk.next_offset - at
            chunks.append(chunk)
            at = chunk.next_offset
    return chunks


@many
@given(data=st.data(), log=logs(), isolation=st.sampled_from(Isolation))
def test_any_cutting_and_any_range_gives_the_rows_of_the_model(
    data: st.DataObject, log: Log, isolation: Isolation
) -> None:
    start = min(log.classes)
    from_offset = data.draw(st.integers(start, log.end - 1))
    until_offset = data.draw(st.integers(from_offset + 1, log.end))
    size = data.draw(st.integers(0, 600))
    max_bytes = data.draw(st.sampled_from([1, 100, 1 << 20]))
    chunks = read(log, from_offset, until_offset, isolation, size, max_bytes)

    classes = [log.class_of(offset, isolation) for offset in range(from_offset, until_offset)]
    counts = Counts.sum(chunk.counts for chunk in chunks)
    assert counts == Counts(
        landed=classes.count("landed"),
        control=classes.count("control"),
        aborted=classes.count("aborted"),
        compacted=classes.count("compacted"),
    )
    rows = [row for chunk in chunks if chunk.batch for row in chunk.batch.to_pylist()]
    assert [row["offset"] for row in rows] == [
        offset
        for offset in range(from_offset, until_offset)
        if log.class_of(offset, isolation) == "landed"
    ]
    assert all(row["value"] == b"value" for row in rows)


@many
@given(data=st.data(), log=logs(), isolation=st.sampled_from(Isolation))
def test_gaps_that_nothing_explains_are_those_between_batches_and_change_nothing_else(
    data: st.DataObject, log: Log, isolation: Isolation
) -> None:
    start = min(log.classes)
    from_offset = data.draw(st.integers(start, log.end - 1))
    until_offset = data.draw(st.integers(from_offset + 1, log.end))
    stored = log.fetch(from_offset, 1 << 20, isolation)
    span = (from_offset, until_offset)
    at, gaps, chunks = from_offset, list[range](), list[DecodedChunk]()
    for part in decode_chunks(stored, *span, reports_gaps=True):
        if isinstance(part, Gap):
            gaps.append(range(at, part.next_offset))
        else:
            assert part.counts.total == part.next_offset - at
            chunks.append(part)
        at = part.next_offset
    assert at == until_offset
    stored_offsets = {n for base, until, _ in log.batches for n in range(base, until)}
    between = set(range(from_offset, until_offset)) - stored_offsets
    assert {n for gap in gaps for n in gap} == between
    assert all(len(gap) for gap in gaps)
    explained = [one for one in decode_chunks(stored, *span) if isinstance(one, DecodedChunk)]
    apart, together = (Counts.sum(c.counts for c in found) for found in (chunks, explained))
    assert apart + Counts(compacted=len(between)) == together
    assert _rows(chunks) == _rows(explained)


def _rows(chunks: list[DecodedChunk]) -> list[object]:
    return [row for chunk in chunks if chunk.batch for row in chunk.batch.to_pylist()]


@many
@given(log=logs(), isolation=st.sampled_from(Isolation), cut=st.integers(0, 400))
def test_a_cut_at_any_byte_loses_only_what_it_cuts(
    log: Log, isolation: Isolation, cut: int
) -> None:
    start = min(log.classes)
    fetched = log.fetch(start, 1 << 20, isolation)
    data = fetched.data[: len(fetched) - min(cut, len(fetched))]
    fetched = replace(fetched, data=data)
    found = scan(fetched).next_offset
    sizes, whole_until = 0, None
    for _, until, stored in log.batches:
        sizes += len(stored)
        if sizes <= len(data):
            whole_until = until
    assert found == whole_until
    chunks = list(decode_chunks(fetched, start, log.end))
    assert (chunks[-1].next_offset if chunks else None) == whole_until


def outcome(
    fetched: FetchedRecords, from_offset: int, until_offset: int
) -> tuple[list[DecodedChunk], BadRecord | None]:
    chunks = []
    try:
        for chunk in decode_chunks(fetched, from_offset, until_offset):
            assert isinstance(chunk, DecodedChunk)
            chunks.append(chunk)
    except BadRecord as error:
        return chunks, error
    return chunks, None


@many
@given(data=st.data(), log=logs(), isolation=st.sampled_from(Isolation))
def test_damaged_bytes_give_rows_or_a_bad_record(
    data: st.DataObject, log: Log, isolation: Isolation
) -> None:
    """Nothing else leaves, and whatever comes out still adds up."""
    stored = log.fetch(0, 1 << 20, isolation)
    damaged = bytearray(stored.data)
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    at = min(log.classes)
    chunks, error = outcome(replace(stored, data=memoryview(damaged)), at, log.end)
    for chunk in chunks:
        assert chunk.counts.total == chunk.next_offset - at
        at = chunk.next_offset
    assert error is None or "base_offset" in error.facts


@many
@given(
    codec=st.sampled_from(["gzip", "snappy", "lz4", "zstd"]),
    xerial=st.booleans(),
    data=st.data(),
)
def test_damaged_compressed_bytes_with_a_good_checksum_give_rows_or_a_bad_record(
    codec: str, xerial: bool, data: st.DataObject
) -> None:
    records = [Record(b"key", b"value" * data.draw(st.integers(0, 60))) for _ in range(5)]
    good = encode(Batch(0, records, codec=codec, xerial=xerial))
    (entry,) = entries(fetched_at(good))
    body = bytearray(good[61:])
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(body) - 1))
        if data.draw(st.booleans()):
            body[at] = data.draw(st.integers(0, 255))
        else:
            del body[at + data.draw(st.integers(0, 4)) :]
            body = body or bytearray(b"\0")
    damaged = encode(Batch(0, records, codec=codec, body=bytes(body)))
    assert entry.last_offset == 4
    chunks, error = outcome(fetched_at(damaged), 0, 5)
    if error is None:
        assert Counts.sum(chunk.counts for chunk in chunks) == Counts(landed=5)
    else:
        assert (error.facts["base_offset"], error.facts["next_offset"]) == (0, 5)


def test_an_empty_response_tells_nothing() -> None:
    assert scan(fetched_at(b"")).next_offset is None
    assert decode_chunk(memoryview(b""), 7, 9) == DecodedChunk(7, None, Counts())
