"""The times of single records: a record without a time, no record, and what could not be read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import pytest

from rangeland.cluster_settings import ClusterSettings
from rangeland.connection.failures import ConnectionLost
from rangeland.connection.pool import ConnectionPool
from rangeland.dialects.dialect import load_dialect
from rangeland.dialects.kafka import messages as m
from rangeland.dialects.protocol_session import BrokerRequest
from rangeland.model import Address, Leader, Partition
from rangeland.survey.record_times import (
    FirstRecord,
    LatestRecord,
    RecordTime,
    confirmed_times,
    first_times,
)
from tests.record_batches import COMMIT, Batch, Record, encode, encode_log, marker

B1 = Address("b1", 9092)
P, Q = Partition("t", 0), Partition("t", 1)
TIME = 1_700_000_000_000
AT = RecordTime(TIME)
END = 100


def rows(base: int, count: int = 1) -> bytes:
    return encode(Batch(base, [Record(b"k", b"v")] * count))


def markers(first: int, until: int) -> bytes:
    return encode_log([marker(offset, 7, COMMIT) for offset in range(first, until)])


class Broker:
    """Logs as what is returned from an offset on: of one segment, as brokers do. ``full``: a
    response has room for one partition only. ``failing``: the errors of the first calls."""

    def __init__(
        self,
        logs: Mapping[Partition, Mapping[int, bytes]],
        *,
        full: bool = False,
        failing: Sequence[int] = (),
    ) -> None:
        self.dialect = load_dialect("kafka")
        self.settings = ClusterSettings("kafka", (B1,))
        self.logs, self.full, self.failing = logs, full, list(failing)
        self.asked: list[list[int]] = []

    def call_all(self, address: Address, requests: Sequence[BrokerRequest]) -> list[Any]:
        (request,) = requests
        wanted = request.message.topics[0].partitions
        self.asked.append([x.fetch_offset for x in wanted])
        return [
            m.FetchResponse(responses=(m.FetchedTopic(topic="t", partitions=self._data(wanted)),))
        ]

    def _data(self, wanted: Sequence[m.FetchPartition]) -> tuple[m.FetchedPartitionData, ...]:
        data, has_room = [], True
        error = self.failing.pop(0) if self.failing else 0
        for x in wanted:
            stored = self.logs[Partition("t", x.partition)].get(x.fetch_offset, b"")
            records = memoryview(stored if has_room and not error else b"")
            has_room = has_room and not (self.full and len(records))
            data.append(
                m.FetchedPartitionData(
                    partition_index=x.partition,
                    error_code=error,
                    high_watermark=END,
                    records=records,
                )
            )
        return tuple(data)

    def times(self, *partitions: Partition, first: int = 0, until: int = END) -> Any:
        wanted = {p: FirstRecord(Leader(B1), first, until) for p in partitions}
        return confirmed_times(cast(ConnectionPool, self), wanted)

    def latest_times(self, *partitions: Partition, until: int = END, most: int = 8) -> Any:
        wanted = {p: LatestRecord(Leader(B1), 0, until, most) for p in partitions}
        return confirmed_times(cast(ConnectionPool, self), wanted)


def test_a_record_says_its_time() -> None:
    assert Broker({P: {0: rows(0)}}).times(P) == {P: AT}


def test_a_record_behind_a_segment_without_any_is_found() -> None:
    """A response ends with its segment, and the next one begins after it."""
    broker = Broker({P: {0: markers(0, 3), 3: markers(3, 5), 5: rows(5)}})
    assert broker.times(P) == {P: AT}
    assert [x[0] for x in broker.asked] == [0, 0, 3, 3, 5]


def timed(base: int, *offsets_ms: int) -> bytes:
    """A batch of records with these times after ``TIME``."""
    records = [Record(b"k", b"v", timestamp_delta=ms) for ms in offsets_ms]
    return encode(Batch(base, records))


@pytest.mark.parametrize(("most", "found"), [(2, {}), (3, {P: RecordTime(TIME + 9)})])
def test_the_latest_record_is_known_once_all_are_read(most: int, found: object) -> None:
    """The first and the last record may be earlier."""
    broker = Broker({P: {0: timed(0, 0, 2), 2: timed(2, 9, 3) + markers(4, 5), 5: timed(5, 4)}})
    assert broker.latest_times(P, until=6, most=most) == found


def test_what_follows_the_records_that_are_wanted_does_not_count() -> None:
    assert Broker({P: {0: timed(0, 0, 2, 9)}}).latest_times(P, until=2) == {P: RecordTime(TIME + 2)}


@pytest.mark.parametrize("stored", [markers(0, 6), markers(0, 3)])
def test_offsets_without_a_record_have_no_latest_one(stored: bytes) -> None:
    broker = Broker({P: {0: stored, 3: markers(3, 6)}})
    assert broker.latest_times(P, until=6) == {P: None}


@pytest.mark.parametrize("rest", [{}, {2: timed(2, 9)[:-1]}], ids=["not returned", "incomplete"])
def test_there_is_no_latest_record_while_some_are_not_read(rest: dict[int, bytes]) -> None:
    assert Broker({P: {0: timed(0, 0, 2), **rest}}).latest_times(P, until=3) == {}


def test_a_partition_that_a_full_response_leaves_empty_has_used_up_nothing() -> None:
    broker = Broker({P: {0: timed(0, 3)}, Q: {0: timed(0, 4)}}, full=True)
    latest = {P: RecordTime(TIME + 3), Q: RecordTime(TIME + 4)}
    assert broker.latest_times(P, Q, until=1, most=1) == latest


def test_a_log_of_markers_alone_has_no_record() -> None:
    assert Broker({P: {0: markers(0, END)}}).times(P) == {P: None}


def test_an_offset_that_has_only_a_marker_has_no_record() -> None:
    assert Broker({P: {4: markers(4, 6)}}).times(P, first=4, until=5) == {P: None}


def test_a_full_response_says_nothing_of_the_partition_that_it_leaves_empty() -> None:
    broker = Broker({P: {0: rows(0)}, Q: {0: rows(0)}}, full=True)
    assert broker.times(P, Q) == {P: AT, Q: AT}


def test_a_response_without_records_proves_nothing() -> None:
    """Slow remote storage, or a quota, look like a log without records."""
    broker = Broker({P: {}, Q: {0: rows(0)}})
    assert broker.times(P, Q) == {Q: AT}
    assert broker.asked == [[0, 0], [0], [0], [0]]


@pytest.mark.parametrize(
    "broker",
    [
        Broker({P: {}}),
        Broker({P: {0: rows(0)}}, failing=[6] * 4),
        Broker({P: {0: rows(0)[:-1]}}),
        Broker({P: {0: encode(Batch(0, [Record(b"k", b"v")], crc_error=1))}}),
        Broker({P: {0: markers(0, 3), 3: rows(3)[:-1]}}),
    ],
    ids=["empty", "another leader", "incomplete", "damaged", "incomplete behind markers"],
)
def test_what_was_not_read_has_no_result(broker: Broker) -> None:
    assert broker.times(P) == {}


def test_a_refusal_that_passes_is_asked_again() -> None:
    assert Broker({P: {0: rows(0)}}, failing=[6]).times(P) == {P: AT}


def test_a_broker_that_is_away_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(*_: object) -> Any:
        raise ConnectionLost("refused", why="w", do="d")

    broker = Broker({})
    monkeypatch.setattr(broker, "call_all", lost)
    assert broker.times(P) == {}


def test_for_display_only_known_times_are_returned_and_nothing_is_asked_twice() -> None:
    broker = Broker({P: {0: rows(0)}, Q: {0: markers(0, 3), 3: rows(3)}})
    wanted = {p: FirstRecord(Leader(B1), 0, END) for p in (P, Q)}
    assert first_times(cast(ConnectionPool, broker), wanted) == {P: TIME}
    assert broker.asked == [[0, 0], [0]]
