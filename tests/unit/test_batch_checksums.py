"""A log is recognised by one of its batches, whatever is written after it, in each dialect."""

from __future__ import annotations

import zlib
from typing import Any, cast

import pytest

from rangeland.connection.pool import ConnectionPool
from rangeland.dialects.dialect import load_dialect
from rangeland.dialects.error_meaning import ErrorMeaning
from rangeland.dialects.fetch_values import FetchedPartition, FetchResult
from rangeland.model import Address, Leader, Partition
from rangeland.survey import batch_fetch
from tests.fetched_records import fetched_at
from tests.jafka_entries import entry
from tests.record_batches import Batch, Record, encode
from tests.rocketmq_messages import messages

P = Partition("orders", 0)
BATCH, LATER = (encode(Batch(base, [Record(b"k", b"v" * base)] * 4)) for base in (4, 8))
ONE, TWO = entry(b"one"), entry(b"two")
FIRST, SECOND = messages([b"a"], 5), messages([b"b"], 6)


@pytest.mark.parametrize(
    ("dialect", "at", "records", "known_by"),
    [
        ("kafka", 7, BATCH, BATCH),
        ("kafka", 7, BATCH + LATER, BATCH),
        ("kafka", 7, BATCH + LATER[:30], BATCH),
        ("kafka", 7, BATCH[:40], None),
        ("kafka", 7, b"", None),
        ("jafka", 100, ONE, ONE),
        ("jafka", 100, ONE + TWO, ONE),
        ("jafka", 100, ONE[:6], None),
        ("rocketmq", 5, FIRST, FIRST),
        ("rocketmq", 5, FIRST + SECOND, FIRST),
        ("rocketmq", 5, FIRST[:40], None),
    ],
)
def test_a_log_is_known_by_one_batch(
    monkeypatch: pytest.MonkeyPatch, dialect: str, at: int, records: bytes, known_by: bytes | None
) -> None:
    class Fake:
        pass

    brokers: Any = Fake()
    brokers.dialect = load_dialect(dialect)

    def sample(brokers: Any, leaders: Any, asked_of: Any, seen_in: Any) -> Any:
        assert asked_of(P, 100).offset == at
        return seen_in(FetchedPartition(P, ErrorMeaning.OK, "", fetched_at(records, at)))

    monkeypatch.setattr(batch_fetch, "sample_batches", sample)
    leaders = {P: Leader(Address("b", 1))}
    found = batch_fetch.batch_checksums(cast(ConnectionPool, brokers), leaders, {P: at})
    assert found == {P: None if known_by is None else zlib.crc32(known_by)}


@pytest.mark.parametrize(
    ("meaning", "end", "found"),
    [
        (ErrorMeaning.OUT_OF_RANGE, None, {P: None}),
        (ErrorMeaning.FIND_LEADER, None, {}),
        (ErrorMeaning.RETRY, None, {}),
        (ErrorMeaning.OK, 6, {}),  # the response had no room for the batch
        (ErrorMeaning.OK, 5, {P: None}),
        (ErrorMeaning.OK, None, {P: None}),
    ],
)
def test_an_answer_without_a_batch_is_not_the_same_as_no_answer(
    monkeypatch: pytest.MonkeyPatch, meaning: ErrorMeaning, end: int | None, found: object
) -> None:
    part = FetchedPartition(P, meaning, "", fetched_at(b""), end)
    read = FetchResult(ErrorMeaning.OK, "", (part,))
    monkeypatch.setattr(batch_fetch, "ask_records", lambda *about: read)

    class Fake:
        dialect = load_dialect("kafka")

    leaders = {P: Leader(Address("b", 1))}
    assert batch_fetch.batch_checksums(cast(ConnectionPool, Fake()), leaders, {P: 5}) == found
