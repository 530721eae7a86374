"""Jafka's requests and responses, without a broker: sessions, searches, offsets, records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from rangeland.cluster_access.backend_choice import broker_groups
from rangeland.cluster_settings import ClusterSettings
from rangeland.dialects.cluster_values import ClusterView, LeaderRequest, NoSeedAnswered, Search
from rangeland.dialects.error_meaning import ErrorMeaning
from rangeland.dialects.fetch_values import FetchOptions, PartitionFetch
from rangeland.dialects.jafka import DIALECT as jafka
from rangeland.dialects.jafka import messages as m
from rangeland.dialects.jafka.error_codes import CODES, error_code_of
from rangeland.dialects.jafka.log_entries import MAX_DEPTH
from rangeland.dialects.jafka.requests import FIRST_PARTITIONS
from rangeland.dialects.protocol_session import BrokerRequest, Credentials
from rangeland.errors import (
    BadRecord,
    JobFileError,
    LocalProtocolError,
    RemoteProtocolError,
    Unreachable,
)
from rangeland.model import Address, AtTime, Earliest, Isolation, Latest, Leader, Partition
from tests.fetched_records import fetched_at
from tests.jafka_entries import entry, packed, plain

ONE, TWO = Address("one", 9092), Address("two", 9092)
NOTHING = memoryview(b"")
COMMITTED = Isolation.READ_COMMITTED
TERMS = FetchOptions(COMMITTED, 500, 1 << 20)


# --- sessions ---------------------------------------------------------------------------


def test_nothing_is_said_before_the_first_request() -> None:
    session = jafka.open_session("anybody")
    assert session.open() == b""
    with pytest.raises(LocalProtocolError):
        session.take_negotiation(NOTHING)


def test_responses_belong_to_requests_in_their_order() -> None:
    session = jafka.open_session("c")
    requests = [m.FetchRequest(topic=t, partition=0, offset=0, max_bytes=9) for t in "ab"]
    ids = [session.encode(request)[0] for request in requests]
    assert session.unanswered == 2
    found = [session.decode(memoryview(b"\0\0" + value)) for value in (b"x", b"y")]
    assert [(i, a.request, bytes(a.records)) for i, a in found] == [
        (ids[0], requests[0], b"x"),
        (ids[1], requests[1], b"y"),
    ]


def test_a_produce_waits_for_no_response() -> None:
    session = jafka.open_session("c")
    session.encode(m.ProduceRequest(topic="t", partition=0, messages=memoryview(entry(b"v"))))
    assert session.unanswered == 0
    with pytest.raises(RemoteProtocolError, match="belongs to no request"):
        session.decode(memoryview(b"\0\0"))


def test_a_response_that_cannot_be_read_says_which_it_was() -> None:
    session = jafka.open_session("c")
    session.encode(m.FetchRequest(topic="t", partition=0, offset=0, max_bytes=9))
    with pytest.raises(RemoteProtocolError, match="FetchResponse") as caught:
        session.decode(memoryview(b"\0"))
    assert caught.value.facts["reason"] == "underflow"


def test_a_part_that_has_no_room_for_its_code_is_refused() -> None:
    request = m.MultiFetchRequest((m.FetchRequest(topic="t", partition=0, offset=0, max_bytes=9),))
    with pytest.raises(RemoteProtocolError, match="length 1") as caught:
        m.read_response(request, memoryview(bytes.fromhex("0000 00000001 0000")))
    assert caught.value.facts["reason"] == "bad length"


def test_too_many_fetches_are_not_sent() -> None:
    part = m.FetchRequest(topic="t", partition=0, offset=0, max_bytes=9)
    with pytest.raises(LocalProtocolError, match="32768 fetches"):
        jafka.open_session("c").encode(m.MultiFetchRequest((part,) * (m.MAX_FETCHES + 1)))


# --- codes ------------------------------------------------------------------------------


def test_every_code_is_listed_once_and_others_are_unknown() -> None:
    assert [code.number for code in CODES] == [-1, 0, 1, 2, 3, 4]
    assert error_code_of(77).meaning is ErrorMeaning.UNKNOWN


# --- leaders ----------------------------------------------------------------------------


@dataclass
class Broker:
    """A pretended broker: how many partitions each of its topics has, and who has logs.
    Others have ``default`` partitions and no log."""

    topics: Mapping[str, int]
    default: int = 2
    begins_at: int = 0
    refuses: frozenset[str] = frozenset()
    asked: list[m.Request] = field(default_factory=list)

    def answer(self, request: m.Request) -> m.Response:
        self.asked.append(request)
        if isinstance(request, m.MultiFetchRequest):
            parts = tuple(
                m.FetchResponse(part, self._code(part.topic, part.partition), NOTHING)
                for part in request.fetches
            )
            return m.MultiFetchResponse(0, parts)
        assert isinstance(request, m.OffsetsRequest)
        assert self._code(request.topic, request.partition) in (0, 1), "it closes the connection"
        return m.OffsetsResponse(request, 0, (9, 0) if request.topic in self.topics else ())

    def _code(self, topic: str, number: int) -> int:
        if topic in self.refuses:
            return -1
        if number >= self.topics.get(topic, self.default):
            return 3
        return 1 if self.begins_at and topic in self.topics else 0


def look(search: Search, brokers: Mapping[Address, Broker]) -> ClusterView:
    """What a search finds; a broker that is not there is silent."""
    try:
        asking: LeaderRequest = next(search)
        while True:
            (address,) = asking.seeds
            broker = brokers.get(address)
            responses: list[Any] | NoSeedAnswered = NoSeedAnswered({address: "refused"})
            if broker is not None:
                responses = [broker.answer(question.message) for question in asking.requests]
            asking = search.send(responses)
    except StopIteration as done:
        view: ClusterView = done.value
        return view


MEMBERS = {"1": ONE, "2": TWO}


def test_partitions_of_all_brokers_are_found_with_their_brokers_names() -> None:
    brokers = {ONE: Broker({"t": 2}), TWO: Broker({"t": 1, "u": 3})}
    view = look(jafka.find_leaders(("t", "u"), (), MEMBERS), brokers)
    assert view.topics["t"].leaders == {
        Partition("t", 0, "1"): Leader(ONE),
        Partition("t", 1, "1"): Leader(ONE),
        Partition("t", 0, "2"): Leader(TWO),
    }
    assert set(view.topics["u"].leaders) == {Partition("u", n, "2") for n in range(3)}
    assert all(topic.meaning is ErrorMeaning.OK for topic in view.topics.values())
    assert (view.brokers, view.unreachable) == ((ONE, TWO), {})


@pytest.mark.parametrize(
    "count", [1, FIRST_PARTITIONS - 1, FIRST_PARTITIONS, FIRST_PARTITIONS + 1, 100, 300]
)
def test_any_number_of_partitions_is_found_exactly(count: int) -> None:
    broker = Broker({"t": count})
    view = look(jafka.find_leaders(("t",), (), {"1": ONE}), {ONE: broker})
    assert set(view.topics["t"].leaders) == {Partition("t", n, "1") for n in range(count)}
    looks = [request for request in broker.asked if isinstance(request, m.MultiFetchRequest)]
    assert len(looks) <= 8


def test_a_log_that_begins_after_0_is_found() -> None:
    broker = Broker({"t": 2}, begins_at=500)
    view = look(jafka.find_leaders(("t",), (), {"1": ONE}), {ONE: broker})
    assert len(view.topics["t"].leaders) == 2


def test_a_topic_that_no_broker_has_is_unknown() -> None:
    brokers = {ONE: Broker({}), TWO: Broker({})}
    (topic,) = look(jafka.find_leaders(("t",), (), MEMBERS), brokers).topics.values()
    assert topic.is_unknown
    assert (topic.meaning, topic.code_name) == (
        ErrorMeaning.FIND_LEADER,
        "UNKNOWN_TOPIC_OR_PARTITION",
    )
    assert topic.leaders == {}


def test_a_topic_is_not_called_unknown_while_a_broker_is_silent() -> None:
    view = look(jafka.find_leaders(("t",), (), MEMBERS), {ONE: Broker({})})
    topic = view.topics["t"]
    assert (topic.meaning, topic.is_unknown) == (ErrorMeaning.RETRY, False)
    assert "2" in topic.code_name
    assert view.unreachable == {"2": "refused"}


def test_a_silent_broker_hides_only_its_own_partitions() -> None:
    view = look(jafka.find_leaders(("t",), (), MEMBERS), {TWO: Broker({"t": 1})})
    assert view.topics["t"].leaders == {Partition("t", 0, "2"): Leader(TWO)}
    assert view.unreachable == {"1": "refused"}


def test_a_name_that_a_broker_refuses_is_not_asked_for_again() -> None:
    broker = Broker({"t": 1}, refuses=frozenset({"a/b"}))
    view = look(jafka.find_leaders(("a/b", "t"), (), {"1": ONE}), {ONE: broker})
    assert (view.topics["a/b"].meaning, view.topics["a/b"].code_name) == (
        ErrorMeaning.REFUSED,
        "UNKNOWN",
    )
    assert view.topics["t"].meaning is ErrorMeaning.OK


def test_a_broker_that_fails_to_answer_for_a_topic_hides_none_of_its_partitions() -> None:
    """Its own are not left out beside those of another broker."""
    brokers = {ONE: Broker({"t": 1}), TWO: Broker({"t": 1}, refuses=frozenset({"t"}))}
    topic = look(jafka.find_leaders(("t",), (), MEMBERS), brokers).topics["t"]
    assert (topic.meaning, topic.code_name, topic.leaders) == (ErrorMeaning.UNKNOWN, "UNKNOWN", {})


def test_all_silent_brokers_are_named() -> None:
    with pytest.raises(Unreachable, match="one:9092: refused; two:9092: refused"):
        look(jafka.find_leaders(("t",), (), MEMBERS), {})


def test_brokers_without_names_are_the_jobs_mistake() -> None:
    with pytest.raises(JobFileError, match="no names"):
        look(jafka.find_leaders(("t",), (ONE,), {}), {})


def test_a_pattern_needs_the_registry() -> None:
    with pytest.raises(JobFileError, match=r"source\.zookeeper"):
        look(jafka.find_leaders(None, (), MEMBERS), {})


# --- offsets ----------------------------------------------------------------------------


def responses_to(
    questions: Sequence[BrokerRequest], listed: Mapping[int, tuple[int, ...]]
) -> list[Any]:
    """What a broker answers, by the time that is asked for."""
    return [
        m.OffsetsResponse(q.message, 0, listed.get(q.message.time_ms, ())[: q.message.max_count])
        for q in questions
    ]


P = Partition("t", 0, "1")
LISTED = {-1: (5040, 4116, 1000), -2: (1000,), 77: (4116, 1000)}


@pytest.mark.parametrize(
    ("when", "offset", "is_exact", "borders"),
    [
        (Earliest(), 1000, True, (1000, 4116, 5040)),
        (Latest(), 5040, True, (1000, 4116, 5040)),
        (AtTime(77), 4116, False, (1000, 4116)),
        (AtTime(5), 1000, False, (1000,)),
        (AtTime(-1), 1000, False, (1000,)),
    ],
)
def test_offsets_are_read_with_their_borders(
    when: Earliest | Latest | AtTime, offset: int, is_exact: bool, borders: tuple[int, ...]
) -> None:
    questions = jafka.offsets_requests({P: Leader(ONE)}, when, COMMITTED)
    (found,) = jafka.read_offsets(responses_to(questions, LISTED)).items()
    assert found[0] == P
    response = found[1]
    assert (response.offset, response.is_exact, response.borders) == (offset, is_exact, borders)


@pytest.mark.parametrize("when", [Earliest(), Latest(), AtTime(77)])
def test_a_partition_without_a_log_begins_and_ends_at_0(when: Earliest | Latest | AtTime) -> None:
    questions = jafka.offsets_requests({P: Leader(ONE)}, when, COMMITTED)
    response = jafka.read_offsets(responses_to(questions, {}))[P]
    assert (response.meaning, response.offset) == (ErrorMeaning.OK, 0)


def test_partitions_of_two_brokers_are_distinguished() -> None:
    other = Partition("t", 0, "2")
    leaders = {P: Leader(ONE), other: Leader(TWO)}
    questions = jafka.offsets_requests(leaders, Latest(), COMMITTED)
    assert set(jafka.read_offsets(responses_to(questions, LISTED))) == {P, other}


def test_an_error_leaves_no_offset() -> None:
    (question,) = jafka.offsets_requests({P: Leader(ONE)}, Latest(), COMMITTED)
    response = jafka.read_offsets([m.OffsetsResponse(question.message, -1, ())])[P]
    assert (response.meaning, response.offset) == (ErrorMeaning.UNKNOWN, None)


def test_sizes_are_not_asked_for() -> None:
    assert jafka.sizes_requests({P: (0, 9)}) == []
    assert jafka.read_sizes([]) == {}


# --- records ----------------------------------------------------------------------------


def test_one_slice_is_a_fetch_and_more_are_a_multi_fetch() -> None:
    asked = [PartitionFetch(Partition("t", n, "1"), None, None, 10 * n, 100) for n in range(2)]
    parts = tuple(
        m.FetchRequest(topic="t", partition=n, offset=10 * n, max_bytes=100) for n in range(2)
    )
    assert jafka.records_requests(asked[:1], TERMS)[0].message == parts[0]
    assert jafka.records_requests(asked, TERMS)[0].message == m.MultiFetchRequest(parts)
    response = m.MultiFetchResponse(
        0, (m.FetchResponse(parts[0], 0, NOTHING), m.FetchResponse(parts[1], 1, NOTHING))
    )
    read = jafka.read_records([response], asked, COMMITTED)
    assert read.meaning is ErrorMeaning.OK
    assert [(p.partition, p.meaning) for p in read.partitions] == [
        (asked[0].partition, ErrorMeaning.OK),
        (asked[1].partition, ErrorMeaning.OUT_OF_RANGE),
    ]
    assert all(p.readable_end is None for p in read.partitions)


def decode(data: bytes, from_offset: int = 0) -> list[tuple[int, int, bytes]]:
    chunks = jafka.decode_chunks(
        fetched_at(data, from_offset), from_offset, from_offset + len(data)
    )
    rows = [row for chunk in chunks if chunk.batch is not None for row in chunk.batch.to_pylist()]
    return [(row["offset"], row["position"], row["value"]) for row in rows]


def test_nested_sets_are_followed_in_order() -> None:
    inner = packed(plain([b"b", b"c"]))
    data = packed(plain([b"a"]) + inner + plain([b"d"]))
    assert decode(data, 70) == [(70, i, v) for i, v in enumerate([b"a", b"b", b"c", b"d"])]


def test_sets_nested_without_end_are_refused() -> None:
    data = entry(b"v")
    for _ in range(MAX_DEPTH + 1):
        data = packed(data)
    with pytest.raises(BadRecord, match="more than 8 times") as caught:
        decode(data)
    assert caught.value.facts["next_offset"] == len(data)


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (packed(plain([b"a"])[:-1]), "in its message at byte 0"),
        (packed(entry(b"a") + entry(b"b", crc=1)), "in its message 1, its checksum"),
        (packed(entry(b"a", magic=0)), "in its message at byte 0, its format"),
        (packed(entry(b"a") + packed(entry(b"b", crc=1))), "in its message 1, its checksum"),
        (entry(b"not gzip", codec=1), "gzip data cannot be unpacked"),
        (entry(packed(b"")[10:], codec=1, crc=7), r"its checksum is wrong \(codec 1\)"),
        (entry(b"snappy", codec=2), r"its codec \(2\) is not known"),
        (entry(b"v", crc=1), "its checksum is wrong"),
        (entry(b"v", magic=0), "magic 0"),
    ],
)
def test_a_bad_entry_is_reported_by_its_offset_and_where_it_ends(bad: bytes, why: str) -> None:
    good = entry(b"good")
    with pytest.raises(BadRecord, match=why) as caught:
        decode(good + bad + good, 500)
    facts = caught.value.facts
    start = 500 + len(good)
    assert (facts["base_offset"], facts["next_offset"]) == (start, start + len(bad))


def test_an_end_after_which_no_entry_begins_is_not_believed() -> None:
    with pytest.raises(BadRecord) as caught:
        decode(entry(b"v", crc=1) + b"\xff" * 20)
    assert "next_offset" not in caught.value.facts


@pytest.mark.parametrize("piece", [b"\0\0\x03\xe8\x09\0", b"\0\0\0\x05\x01\0", b"\xff" * 6])
def test_a_piece_that_cannot_begin_an_entry_is_refused_before_it_is_whole(piece: bytes) -> None:
    for read in (lambda: jafka.scan(fetched_at(piece, 40)), lambda: decode(piece, 40)):
        with pytest.raises(BadRecord, match="inside an entry") as caught:
            read()
        assert caught.value.facts["base_offset"] == 40
        assert "next_offset" not in caught.value.facts


def test_a_packed_entry_without_messages_takes_up_its_position() -> None:
    data = packed(b"")
    (chunk,) = jafka.decode_chunks(fetched_at(data, 5), 5, 5 + len(data))
    assert (chunk.batch, chunk.counts.total, chunk.next_offset) == (None, 0, 5 + len(data))


# --- what there is none of --------------------------------------------------------------


def test_a_login_is_the_jobs_mistake() -> None:
    with pytest.raises(JobFileError, match="PLAIN"):
        jafka.login(Credentials("PLAIN", "u", "p"))


def test_groups_need_a_zookeeper() -> None:
    with pytest.raises(JobFileError, match=r"source\.zookeeper"):
        broker_groups(ClusterSettings("jafka", ()), "orders")
