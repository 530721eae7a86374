"""Where entries begin, asked of a fake broker that has a log in bytes."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rangeland.connection.pool import ConnectionPool
from rangeland.dialects.dialect import load_dialect
from rangeland.dialects.jafka import messages as m
from rangeland.dialects.protocol_session import BrokerRequest
from rangeland.errors import BadRecord, Unreachable
from rangeland.model import (
    Address,
    AtOffset,
    Bounds,
    Earliest,
    Isolation,
    Latest,
    Leader,
    LogState,
    Partition,
)
from rangeland.survey.cluster_survey import named_offsets
from rangeland.survey.entry_lookup import PROBE_BYTES, WALK_BYTES, entries_at
from rangeland.survey.survey_request import SurveyRequest
from tests.jafka_entries import entry

B1 = Address("b1", 9092)
ONE, TWO = Partition("t", 0, "1"), Partition("t", 1, "1")


class Broker:
    """Serves the bytes of its logs, by number of partition, or the code it has for one."""

    def __init__(self, logs: dict[int, bytes], codes: dict[int, int] | None = None) -> None:
        self.logs, self.codes = logs, codes or {}
        self.asked: list[m.FetchRequest] = []
        self.dialect = load_dialect("jafka")
        self.settings = SimpleNamespace(isolation=Isolation.READ_COMMITTED)

    def call_all(self, address: Address, questions: Sequence[BrokerRequest]) -> list[Any]:
        return [self._answer(question.message) for question in questions]

    def _answer(self, request: m.FetchRequest | m.MultiFetchRequest) -> Any:
        if isinstance(request, m.MultiFetchRequest):
            return m.MultiFetchResponse(0, tuple(self._part(part) for part in request.fetches))
        return self._part(request)

    def _part(self, one: m.FetchRequest) -> m.FetchResponse:
        self.asked.append(one)
        code = self.codes.get(one.partition, 0)
        data = b"" if code else self.logs[one.partition]
        records = memoryview(data)[one.offset : one.offset + one.max_bytes]
        return m.FetchResponse(one, code, records)


def log_of(partition: Partition, end: int) -> LogState:
    return LogState(partition, Leader(B1), 0, end, end, (0, end))


def look(broker: Broker, named: Sequence[Any] = (), marks: Sequence[Any] = ()) -> Any:
    logs = {p: log_of(p, max(len(broker.logs[p.number]), 9_000)) for p in (ONE, TWO)}
    return entries_at(cast(ConnectionPool, broker), logs, named, marks)


def places_of(entries: Sequence[bytes]) -> list[int]:
    return [0, *itertools.accumulate(len(one) for one in entries)]


@pytest.mark.parametrize("size", [PROBE_BYTES, 5 * PROBE_BYTES, 70 * PROBE_BYTES])
def test_an_entry_larger_than_a_glance_is_looked_at_longer_and_not_walked_to(size: int) -> None:
    entries = [entry(b"v" * 40), entry(b"w" * 60), entry(b"x" * size), entry(b"y")]
    small = [entry(b"%d" % n) for n in range(2_000)]
    broker = Broker({0: b"".join(entries), 1: b"".join(small)})
    large, last = places_of(entries)[2:4]
    assert look(broker, marks=[(ONE, large), (TWO, places_of(small)[7])]) == {}
    assert {(one.partition, one.offset) for one in broker.asked} == {
        (0, large),
        (1, places_of(small)[7]),
    }, "nobody walks there"
    assert [one.partition for one in broker.asked].count(1) == 1, "it was seen at the first glance"
    assert broker.asked[-1].max_bytes < 5 * size
    assert last == len(broker.logs[0]) - len(entries[3])


def test_a_mark_inside_an_entry_is_distinguished_from_one_that_begins_a_large_one() -> None:
    entries = [entry(b"v" * 40), entry(b"x" * 3 * PROBE_BYTES), entry(b"y")]
    broker = Broker({0: b"".join(entries), 1: b""})
    inside = places_of(entries)[1] + 4_000
    found = look(broker, marks=[(ONE, inside)])
    assert found == {(ONE, inside): (places_of(entries)[1], places_of(entries)[2])}


def test_of_an_entry_that_ends_after_the_log_nothing_more_is_asked() -> None:
    whole = entry(b"v" * 40)
    broker = Broker({0: whole + entry(b"x" * 9_000)[:5_000], 1: b""})
    look(broker, marks=[(ONE, len(whole))])
    assert [(one.offset, one.max_bytes) for one in broker.asked] == [
        (len(whole), PROBE_BYTES),
        (0, WALK_BYTES),
    ], "no longer glance would bring more, so it is walked to"
    with pytest.raises(BadRecord, match=f"whether an entry begins at {len(whole) + 9}"):
        look(broker, named=[(ONE, len(whole) + 9)])


def test_a_mark_that_the_broker_gives_an_error_for_is_in_no_doubt() -> None:
    small = [entry(b"%d" % n) for n in range(2_000)]
    broker = Broker({0: b"".join(small), 1: b"".join(small)}, codes={0: 1})
    inside = places_of(small)[3] + 2
    found = look(broker, marks=[(ONE, inside), (TWO, inside)])
    assert found == {(TWO, inside): (places_of(small)[3], places_of(small)[4])}
    assert [one.partition for one in broker.asked].count(0) == 1


@pytest.mark.parametrize(("code", "why"), [(1, "OFFSET_OUT_OF_RANGE"), (-1, "UNKNOWN")])
def test_an_offset_that_the_job_names_is_out_of_reach_where_the_broker_gives_an_error(
    code: int, why: str
) -> None:
    broker = Broker({0: b"", 1: b""}, codes={0: code})
    with pytest.raises(Unreachable, match="begins at 5000") as caught:
        look(broker, named=[(ONE, 5_000)])
    assert why in caught.value.why
    assert caught.value.do
    assert len(broker.asked) == 1


def test_nothing_at_all_is_not_where_an_entry_begins() -> None:
    broker = Broker({0: b"", 1: b""})
    with pytest.raises(Unreachable, match=r"b1:9092 answered no records at offset 0"):
        look(broker, named=[(ONE, 5_000)])
    with pytest.raises(Unreachable):
        look(broker, marks=[(ONE, 5_000)])


def test_the_way_to_a_named_offset_goes_over_entries_larger_than_a_walk() -> None:
    entries = [entry(b"v"), entry(bytes(WALK_BYTES + 9)), entry(b"w" * 70), entry(b"y")]
    broker = Broker({0: b"".join(entries), 1: b""})
    _, large, small, last, _ = places_of(entries)
    assert look(broker, named=[(ONE, small + 3)]) == {(ONE, small + 3): (small, last)}
    assert look(broker, named=[(ONE, large)]) == {(ONE, large): (large, large)}, "it begins there"


def test_an_offset_for_each_broker_is_not_looked_up_where_another_is_named() -> None:
    other = Partition("t", 0, "2")
    logs = {p: log_of(p, 900) for p in (ONE, other)}
    listed = {Partition("t", 0): AtOffset(100), ONE: AtOffset(200)}
    begins = Bounds(Earliest(), listed, only_listed=True)
    ends = Bounds(Latest(), {Partition("t", 0): AtOffset(300)})
    wanted = SurveyRequest(("t",), bounds=(begins, ends))
    assert set(named_offsets(wanted, logs)) == {(ONE, 200), (other, 100), (ONE, 300), (other, 300)}
