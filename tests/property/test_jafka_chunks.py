"""However a Jafka log is cut into fetches, and whatever entries are wanted: the same rows, and
every byte accounted for.

The model writes a log and notes each message as it goes; a pretended broker serves it in
pieces, cut anywhere, as a real one does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rangeland.dialects.fetch_values import DecodedChunk
from rangeland.dialects.jafka import records
from rangeland.dialects.jafka.log_entries import entry_around, scan
from rangeland.dialects.jafka.records import decode_chunk, decode_chunks
from rangeland.errors import BadRecord
from rangeland.model import Isolation
from tests.examples import tried
from tests.fetched_records import fetched_at
from tests.jafka_entries import entry, packed, plain
from tests.reference.jafka_sets import JafkaReference

many = tried(60)
COMMITTED = Isolation.READ_COMMITTED
Row = tuple[int, int, bytes]


@dataclass
class Log:
    """What was written: the bytes from ``start`` on, where entries begin, and the messages as
    (offset, position, value)."""

    start: int
    data: bytes = b""
    borders: list[int] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)

    @property
    def end(self) -> int:
        return self.start + len(self.data)

    def append(self, stored: bytes, values: list[bytes]) -> None:
        self.borders.append(self.end)
        self.rows += [(self.end, position, value) for position, value in enumerate(values)]
        self.data += stored

    def fetch(self, offset: int, size: int) -> memoryview:
        return memoryview(self.data)[offset - self.start :][:size]


values = st.lists(st.binary(max_size=30), max_size=6)


@st.composite
def logs(draw: st.DrawFn) -> Log:
    log = Log(draw(st.integers(0, 3)) * 1000)
    for _ in range(draw(st.integers(1, 10))):
        kind = draw(st.sampled_from(["plain", "plain", "packed", "nested"]))
        some = draw(values)
        if kind == "plain":
            for value in some:
                log.append(entry(value), [value])
        elif kind == "packed":
            log.append(packed(plain(some)), some)
        else:
            first, last = draw(values), draw(values)
            nested = plain(first) + packed(plain(some)) + plain(last)
            log.append(packed(nested), first + some + last)
    log.append(entry(b"end"), [b"end"])
    return log


def read(
    log: Log, from_offset: int, until_offset: int, size: int, max_bytes: int
) -> Iterator[DecodedChunk]:
    """As a slice is read: fetch at the next offset until it is done, and grow where need be."""
    at = from_offset
    while at < until_offset:
        data = log.fetch(at, size)
        fetched_until = scan(fetched_at(data, at)).next_offset
        if fetched_until is None:
            size = size * 2 + 1
            continue
        end, begin = min(fetched_until, until_offset), at
        while at < end:
            chunk = decode_chunk(data[at - begin :], at, until_offset, max_bytes=max_bytes)
            assert at < chunk.next_offset <= end
            yield chunk
            at = chunk.next_offset


def rows_of(chunks: list[DecodedChunk]) -> list[Row]:
    return [
        (row["offset"], row["position"], row["value"])
        for chunk in chunks
        if chunk.batch is not None
        for row in chunk.batch.to_pylist()
    ]


@many
@given(data=st.data(), log=logs())
def test_any_cutting_and_any_range_gives_the_rows_of_the_model(
    data: st.DataObject, log: Log
) -> None:
    borders = [*log.borders, log.end]
    first = data.draw(st.integers(0, len(borders) - 2))
    last = data.draw(st.integers(first + 1, len(borders) - 1))
    size = data.draw(st.integers(0, 300))
    max_bytes = data.draw(st.sampled_from([1, 60, 1 << 20]))
    chunks = list(read(log, borders[first], borders[last], size, max_bytes))
    wanted = [row for row in log.rows if borders[first] <= row[0] < borders[last]]
    assert rows_of(chunks) == wanted
    assert sum(chunk.counts.total for chunk in chunks) == len(wanted)
    assert all(chunk.counts.landed == chunk.counts.total for chunk in chunks)
    assert chunks[-1].next_offset == borders[last]


@many
@given(log=logs(), data=st.data())
def test_the_entry_around_any_offset_is_found(log: Log, data: st.DataObject) -> None:
    target = data.draw(st.integers(log.start, log.end - 1))
    start = max(border for border in log.borders if border <= target)
    end = min(border for border in [*log.borders, log.end] if border > target)
    whole = log.fetch(log.start, len(log.data))
    assert entry_around(fetched_at(whole, log.start), target) == (start, end)
    # Cut before its end, the walk says how far it came, which is where to go on.
    cut = data.draw(st.integers(0, end - log.start - 1))
    reached, none = entry_around(fetched_at(whole[:cut], log.start), target)
    assert none is None
    assert reached in log.borders
    assert reached <= start
    rest = fetched_at(log.fetch(reached, len(log.data)), reached)
    assert entry_around(rest, target) == (start, end)


@many
@given(log=logs(), data=st.data())
def test_an_entry_that_reaches_beyond_its_range_is_damaged(log: Log, data: st.DataObject) -> None:
    inside = sorted(set(range(log.start, log.end)) - set(log.borders))
    until_offset = data.draw(st.sampled_from(inside))
    with pytest.raises(BadRecord) as caught:
        list(decode_chunks(fetched_at(log.data, log.start), log.start, until_offset))
    start, end = caught.value.facts["base_offset"], caught.value.facts["entry_end"]
    assert start < until_offset < end
    assert {start, end} <= {*log.borders, log.end}
    assert "next_offset" not in caught.value.facts  # where it ends is in doubt


def outcome(data: bytes, log: Log) -> tuple[list[DecodedChunk], Any]:
    chunks = []
    try:
        for chunk in decode_chunks(fetched_at(data, log.start), log.start, log.end):
            chunks.append(chunk)
    except BadRecord as error:
        return chunks, error
    return chunks, None


@many
@given(log=logs(), data=st.data())
def test_damaged_bytes_give_rows_or_an_error_with_its_offset(log: Log, data: st.DataObject) -> None:
    damaged = bytearray(log.data)
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    chunks, error = outcome(bytes(damaged), log)
    at = log.start
    for chunk in chunks:
        assert chunk.next_offset > at
        at = chunk.next_offset
    if isinstance(error, BadRecord):
        assert log.start <= error.facts["base_offset"] <= log.end
        assert error.facts.get("next_offset", log.end) > error.facts["base_offset"]


@many
@given(log=logs(), data=st.data())
def test_a_damaged_payload_is_found_and_can_be_gone_around(log: Log, data: st.DataObject) -> None:
    index = data.draw(st.integers(0, len(log.borders) - 1))
    start, end = log.borders[index], [*log.borders, log.end][index + 1]
    place = data.draw(st.integers(start + 6, end - 1)) - log.start  # from the checksum on
    damaged = bytearray(log.data)
    damaged[place] ^= 1 << data.draw(st.integers(0, 7))
    _, error = outcome(bytes(damaged), log)
    assert isinstance(error, BadRecord)
    assert (error.facts["base_offset"], error.facts["next_offset"]) == (start, end)
    before = decode_chunks(fetched_at(damaged, log.start), log.start, start)
    behind = decode_chunks(fetched_at(memoryview(damaged)[end - log.start :], end), end, log.end)
    assert rows_of([*before, *behind]) == [row for row in log.rows if row[0] != start]


@many
@given(log=logs(), data=st.data())
def test_any_bytes_have_a_next_offset_or_are_refused(log: Log, data: st.DataObject) -> None:
    """From any byte, inside entries too."""
    offset = data.draw(st.integers(log.start, log.end))
    found, error = next_or_error(log.fetch(offset, data.draw(st.integers(0, 400))), offset)
    if error is not None:
        assert "inside an entry" in str(error)
        assert error.facts["base_offset"] >= offset
        assert offset not in log.borders
    assert found is None or offset < found <= log.end
    if offset in log.borders and found is not None:
        assert found in [*log.borders, log.end]


def next_or_error(data: memoryview, offset: int) -> tuple[int | None, BadRecord | None]:
    try:
        return scan(fetched_at(data, offset)).next_offset, None
    except BadRecord as error:
        return None, error


def test_the_reference_gives_the_same_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    data = memoryview(plain([b"a", b""]) + packed(plain([b"b", b"c"])) + plain([b"d"]))
    with_kernel = list(decode_chunks(fetched_at(data, 10), 10, 10 + len(data)))
    monkeypatch.setattr(records, "jafka_decoder", JafkaReference)
    assert list(decode_chunks(fetched_at(data, 10), 10, 10 + len(data))) == with_kernel
    assert [row[2] for row in rows_of(with_kernel)] == [b"a", b"", b"b", b"c", b"d"]
