"""Where records are looked at for their schema ids: at both ends of what each partition has."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest

from rangeland.connection.pool import ConnectionPool
from rangeland.dialects.capabilities import Capabilities
from rangeland.dialects.error_meaning import ErrorMeaning
from rangeland.dialects.fetch_values import (
    DecodedChunk,
    FetchedPartition,
    FetchedRecords,
    FetchResult,
    PartitionFetch,
)
from rangeland.model import Address, Counts, Partition, Slice
from rangeland.survey import batch_fetch
from rangeland.survey.seen_schema_ids import look_at_ends
from tests.fetched_records import fetched_at

B1 = Address("b1", 9092)
P0, P1 = Partition("t", 0), Partition("t", 1)


class Brokers:
    """One broker, with a record at every offset that is asked for."""

    def __init__(self, meaning: ErrorMeaning, *, in_bytes: bool) -> None:
        self.meaning = meaning
        self.asked: list[PartitionFetch] = []
        self.decoded: list[tuple[int, int]] = []
        self.dialect = SimpleNamespace(
            capabilities=Capabilities(offsets_are_bytes=in_bytes), decode_chunks=self.decode
        )

    def decode(
        self, records: FetchedRecords, from_offset: int, until_offset: int
    ) -> Iterator[DecodedChunk]:
        self.decoded.append((from_offset, until_offset))
        row = pa.RecordBatch.from_pydict({"offset": [from_offset]})
        yield DecodedChunk(from_offset + 1, row, Counts(landed=1))

    def answer(
        self, brokers: object, address: Address, fetches: list[PartitionFetch], *_: int
    ) -> FetchResult:
        assert address == B1
        self.asked += fetches
        parts = (
            FetchedPartition(x.partition, self.meaning, "", fetched_at(b"x", x.offset))
            for x in fetches
        )
        return FetchResult(ErrorMeaning.OK, "", tuple(parts))


SLICES = [
    Slice(0, P0, 5, 50, topic_id="A", leader=B1),
    Slice(1, P0, 50, 100, topic_id="A", leader=B1),
    Slice(2, P1, 7, 12, topic_id="A", leader=B1),
]


@pytest.mark.parametrize(
    ("in_bytes", "decoded"),
    [(False, [(5, 50), (7, 12), (90, 100)]), (True, [(5, 50), (7, 12)])],
)
def test_the_first_and_the_last_records_are_looked_at_once(
    monkeypatch: pytest.MonkeyPatch, in_bytes: bool, decoded: list[tuple[int, int]]
) -> None:
    brokers = Brokers(ErrorMeaning.OK, in_bytes=in_bytes)
    monkeypatch.setattr(batch_fetch, "ask_records", brokers.answer)
    seen: list[tuple[Partition, Any]] = []
    look_at_ends(
        cast(ConnectionPool, brokers),
        SLICES,
        lambda partition, rows: seen.append((partition, rows.column(0)[0].as_py())),
    )
    assert brokers.decoded == decoded
    assert [(x.offset, x.topic_id) for x in brokers.asked] == [(at, "A") for at, _ in decoded]
    assert [at for _, at in seen] == [at for at, _ in decoded]


def test_what_does_not_come_is_asked_for_with_more_bytes_and_then_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    brokers = Brokers(ErrorMeaning.RETRY, in_bytes=True)
    monkeypatch.setattr(batch_fetch, "ask_records", brokers.answer)
    look_at_ends(cast(ConnectionPool, brokers), SLICES[:1], lambda *_: pytest.fail("no record"))
    assert [x.max_bytes for x in brokers.asked] == list(batch_fetch.SIZES)
    assert brokers.decoded == []
