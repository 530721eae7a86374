"""What old brokers are asked, and what is made of their responses."""

from __future__ import annotations

import json
import pickle
import time
from collections.abc import Sequence
from typing import Any

import pytest

from rangeland.cluster_access import job_survey
from rangeland.connection import broker_connection
from rangeland.connection.failures import ConnectionLost, ResponseTimedOut
from rangeland.connection.pool import ConnectionPool
from rangeland.dialects.cluster_values import ClusterView, LeaderRequest
from rangeland.dialects.error_meaning import ErrorMeaning
from rangeland.dialects.kafka import messages as m
from rangeland.dialects.kafka.legacy_requests import fit_request
from rangeland.dialects.kafka.requests import find_leaders, offsets_requests, read_offsets
from rangeland.dialects.kafka.session import WITHOUT_API_VERSIONS, KafkaSession
from rangeland.job import Job
from rangeland.model import Address, AtTime, Isolation, Leader, Partition, Survey
from rangeland.survey.survey_request import SurveyRequest
from rangeland.wire.encoding import decode, encode
from tests.unit.test_connection import (
    API_VERSIONS,
    Reply,
    framed,
    key_of,
    peer,
    settings_of,
    versions_response,
)

SEED = Address("seed", 9092)
ORDERS = Partition("orders", 0)


def sent(session: KafkaSession, request: Any) -> Any:
    """The request as it is on the wire."""
    _, whole = session.encode(request)
    header = m.RequestHeader(api_key=0, api_version=0, correlation_id=0, client_id="me")
    version = session.choose(type(request))
    return decode(type(request), version, memoryview(whole)[4 + len(encode(header, 1)) :])


def session_of(versions: dict[int, tuple[int, int]]) -> KafkaSession:
    session = KafkaSession("me")
    session.assume(versions)
    return session


# --- what is asked ----------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 1, 3, 4, 8])
def test_no_broker_is_asked_for_a_topic_by_a_name_that_it_would_make(version: int) -> None:
    wanted = m.MetadataRequest(topics=(m.MetadataRequestTopic(name="orders"),))
    found = sent(session_of({3: (0, version)}), wanted)
    if version < 4:
        assert found.topics == (() if version == 0 else None), "all topics"
    else:
        assert [t.name for t in found.topics] == ["orders"]
        assert not found.allow_auto_topic_creation


def test_all_topics_are_all_topics_in_every_version() -> None:
    everything, nothing = m.MetadataRequest(topics=None), m.MetadataRequest(topics=())
    assert fit_request(everything, 0).topics == ()
    assert fit_request(everything, 1).topics is None
    assert fit_request(nothing, 3).topics == ()


def test_brokers_without_transactions_are_asked_for_no_isolation() -> None:
    old = session_of({1: (0, 3), 2: (0, 1)})
    (question,) = offsets_requests({ORDERS: Leader(SEED)}, AtTime(5), Isolation.READ_COMMITTED)
    assert sent(old, question.message).isolation_level == m.READ_UNCOMMITTED
    fetch = m.FetchRequest(max_wait_ms=1, min_bytes=1, isolation_level=1, topics=())
    assert sent(old, fetch).isolation_level == m.READ_UNCOMMITTED
    new = session_of({1: (0, 4), 2: (0, 2)})
    assert sent(new, question.message).isolation_level == m.READ_COMMITTED
    assert sent(new, fetch).isolation_level == m.READ_COMMITTED


def test_the_oldest_keep_a_groups_offsets_at_its_coordinator() -> None:
    session = session_of(dict(WITHOUT_API_VERSIONS))
    assert session.choose(m.OffsetCommitRequest) == 1
    assert session.choose(m.OffsetFetchRequest) == 1


# --- what is answered -------------------------------------------------------------------


def view_of(response: m.MetadataResponse, topics: list[str] | None) -> ClusterView:
    search = find_leaders(topics, [SEED], {})
    assert isinstance(next(search), LeaderRequest)
    with pytest.raises(StopIteration) as done:
        search.send([response])
    view = done.value.value
    assert isinstance(view, ClusterView)
    return view


def test_of_all_topics_only_the_wanted_are_taken_and_the_others_said_to_be_missing() -> None:
    def topic(name: str) -> m.MetadataTopic:
        part = m.MetadataPartition(
            error_code=0, partition_index=0, leader_id=1, replica_nodes=(1,), isr_nodes=(1,)
        )
        return m.MetadataTopic(error_code=0, name=name, partitions=(part,))

    names = ("orders", "payments", "__consumer_offsets")
    told = m.MetadataResponse(
        brokers=(m.MetadataBroker(node_id=1, host="here", port=1),),
        topics=tuple(topic(name) for name in names),
    )
    response = decode(m.MetadataResponse, 0, memoryview(encode(told, 0)))
    view = view_of(response, ["orders", "gone"])
    assert list(view.topics) == ["orders", "gone"]
    assert view.topics["orders"].leaders[ORDERS].address == Address("here", 1)
    assert view.topics["gone"].is_unknown
    assert view.topics["gone"].code_name == "UNKNOWN_TOPIC_OR_PARTITION"
    everything = view_of(response, None).topics
    assert {name: t.is_internal for name, t in everything.items()} == {
        "orders": False,
        "payments": False,
        "__consumer_offsets": True,
    }


@pytest.mark.parametrize(
    ("starts", "offset"), [((), 0), ((400,), 400), ((400, 200, 0), 400)], ids=str
)
def test_a_time_is_not_exact_where_segments_answer(starts: tuple[int, ...], offset: int) -> None:
    found = _read(
        0, m.ListOffsetsPartitionResponse(partition_index=0, error_code=0, old_style_offsets=starts)
    )
    assert (found.offset, found.is_exact) == (offset, False)


def test_a_time_is_exact_where_messages_answer() -> None:
    found = _read(
        1, m.ListOffsetsPartitionResponse(partition_index=0, error_code=0, timestamp=7, offset=40)
    )
    assert (found.offset, found.is_exact) == (40, True)
    late = _read(
        1, m.ListOffsetsPartitionResponse(partition_index=0, error_code=0, timestamp=-1, offset=-1)
    )
    assert (late.offset, late.is_exact) == (None, True)


def test_an_error_says_nothing_about_offsets() -> None:
    found = _read(
        0, m.ListOffsetsPartitionResponse(partition_index=0, error_code=6, old_style_offsets=())
    )
    assert (found.offset, found.meaning) == (None, ErrorMeaning.FIND_LEADER)


def _read(version: int, part: m.ListOffsetsPartitionResponse) -> Any:
    topics = (m.ListOffsetsTopicResponse(name="orders", partitions=(part,)),)
    told = encode(m.ListOffsetsResponse(topics=topics), version)
    return read_offsets([decode(m.ListOffsetsResponse, version, memoryview(told))])[ORDERS]


# --- who is old -------------------------------------------------------------------------


BROKER = m.MetadataBroker(node_id=1, host="127.0.0.1", port=9)


def old(asked: list[int]) -> Reply:
    """A broker of 0.8: it closes at any question but the oldest, of which it answers two."""

    def reply(request: bytes) -> bytes | None:
        asked.append(key_of(request))
        responses: dict[int, Any] = {
            1: m.FetchResponse(responses=()),
            3: m.MetadataResponse(brokers=(BROKER,), topics=()),
        }
        known = responses.get(key_of(request))
        return framed(request[4:8] + encode(known, 0)) if known else None

    return reply


def test_a_broker_that_is_too_old_to_be_asked_is_remembered() -> None:
    asked: list[int] = []
    question = next(find_leaders(["orders"], [SEED], {})).requests[0]
    with peer(old(asked)) as address, ConnectionPool(settings_of(address)) as brokers:
        brokers.call(address, question)
        assert asked.count(API_VERSIONS) == 1
        asked.clear()
        brokers.drop(address)
        brokers.call(address, question)
        assert asked == [1, 3, 3], "how it answers is looked at on each connection"


def mute(asked: list[int]) -> Reply:
    """A broker of 0.9: at an opening it says nothing, and neither does it close. It does not look
    at the version of a question for metadata."""

    def reply(request: bytes) -> bytes | None:
        if key_of(request) == API_VERSIONS:
            asked.append(API_VERSIONS)
            return b""
        return old(asked)(request)

    return reply


def test_a_broker_that_says_nothing_to_an_opening_is_old_if_it_answers_as_the_old_do() -> None:
    asked: list[int] = []
    question = next(find_leaders(["orders"], [SEED], {})).requests[0]
    with (
        peer(mute(asked)) as address,
        ConnectionPool(settings_of(address, request_ms=1_000)) as brokers,
    ):
        brokers.call(address, question)
        assert not brokers.connect(address).reports_versions
        assert asked == [API_VERSIONS, 1, 3, 3]
        asked.clear()
        brokers.drop(address)
        brokers.call(address, question)
        assert asked == [1, 3, 3], "what it loses others' requests with is not asked again"


@pytest.mark.parametrize("kind", [mute, old])
def test_what_a_look_has_learnt_of_a_broker_is_known_to_those_who_read_it(
    monkeypatch: pytest.MonkeyPatch, kind: Any
) -> None:
    def look(brokers: ConnectionPool, *about: object, **more: object) -> Survey:
        brokers.connect(brokers.settings.seeds[0])
        return Survey(0, {})

    monkeypatch.setattr(job_survey, "take_survey", look)
    asked: list[int] = []
    question = next(find_leaders(["orders"], [SEED], {})).requests[0]
    with peer(kind(asked)) as address:
        settings = settings_of(address, request_ms=1_000)
        document = {
            "job": "j",
            "source": {"servers": [str(address)], "topics": ["orders"]},
            "sink": {"table": "lake/orders"},
        }
        job = Job.parse(json.dumps(document))
        survey = job_survey.survey_of(job, SurveyRequest(("orders",)), settings=settings)
        assert survey.reports_versions == {address: False}
        asked.clear()
        with ConnectionPool(
            pickle.loads(pickle.dumps(settings.with_versions_of(survey)))
        ) as brokers:
            brokers.call(address, question)
            assert brokers.reports_versions == survey.reports_versions
    assert asked == [1, 3, 3]


def test_a_broker_that_was_young_is_waited_for_and_asked_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(broker_connection, "OPENING_MS", 1_000)
    asked: list[int] = []

    def slow(request: bytes) -> bytes | None:
        asked.append(key_of(request))
        if len(asked) == 2:
            time.sleep(2)
        return versions_response(request)

    with peer(slow) as address, ConnectionPool(settings_of(address, request_ms=30_000)) as brokers:
        brokers.connect(address)
        brokers.drop(address)
        assert brokers.connect(address).reports_versions
    assert asked == [API_VERSIONS, API_VERSIONS]


def test_an_address_that_was_youngs_and_says_nothing_now_is_asked_for_its_age() -> None:
    asked: list[int] = []
    with peer(mute(asked)) as address:
        known = Survey(0, {}, reports_versions={address: True})
        with ConnectionPool(
            settings_of(address, request_ms=1_000).with_versions_of(known)
        ) as brokers:
            with pytest.raises(ResponseTimedOut):
                brokers.connect(address)
            assert asked == [API_VERSIONS]
            assert not brokers.connect(address).reports_versions


def test_the_age_is_asked_for_as_long_as_any_response_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(broker_connection, "OPENING_MS", 200)

    def slow(request: bytes) -> bytes | None:
        if key_of(request) != 1:
            return b""
        time.sleep(3.5)
        return framed(request[4:8] + b"\0\0\0\0")

    with peer(slow) as address, ConnectionPool(settings_of(address, request_ms=6_000)) as brokers:
        start = time.monotonic()
        with pytest.raises(ResponseTimedOut):
            brokers.connect(address)
        assert time.monotonic() - start < 8


@pytest.mark.parametrize("closes_at_the_oldest", [False, True], ids=["0.10 to 3.x", "4.x"])
def test_a_young_broker_that_is_slow_to_open_is_not_taken_for_an_old_one(
    closes_at_the_oldest: bool,
) -> None:
    asked: list[int] = []

    def slow(request: bytes) -> bytes | None:
        key, version = key_of(request), int.from_bytes(request[2:4], "big")
        asked.append(key)
        if key == API_VERSIONS:
            return b"" if asked.count(key) == 1 else versions_response(request)
        if key == 1:
            return None if closes_at_the_oldest else framed(request[4:8] + b"\0\0\0\0")
        told = m.MetadataResponse(brokers=(), topics=(), controller_id=-1)
        return framed(request[4:8] + encode(told, version))

    with peer(slow) as address, ConnectionPool(settings_of(address, request_ms=1_000)) as brokers:
        connection = brokers.connect(address)
        assert connection.reports_versions
        assert connection._session.versions[3] == (0, 13)  # type: ignore[attr-defined]
        rest = [API_VERSIONS] if closes_at_the_oldest else [3, API_VERSIONS]
        assert asked == [API_VERSIONS, 1, *rest]


def young(closes_at: Sequence[int], asked: list[int]) -> Reply:
    """A broker of 0.10 to 3.x that closes at these of its requests, counted from 1."""

    def reply(request: bytes) -> bytes | None:
        key, version = key_of(request), int.from_bytes(request[2:4], "big")
        if (key, version) == (1, 1):  # the greeting of TLS, which is tried too
            return None
        asked.append(key)
        if len(asked) in closes_at:
            return None
        if key == API_VERSIONS:
            return versions_response(request)
        if key == 1:
            return framed(request[4:8] + encode(m.FetchResponse(responses=()), 0))
        told = m.MetadataResponse(brokers=(BROKER,), topics=(), controller_id=-1)
        return framed(request[4:8] + encode(told, version))

    return reply


@pytest.mark.parametrize("closes_at", [(1,), (1, 2), (1, 3)])
def test_a_young_broker_that_closes_is_not_taken_for_an_old_one(closes_at: Sequence[int]) -> None:
    """Not even if it closes twice while one connection is opened."""
    asked: list[int] = []
    with peer(young(closes_at, asked)) as address, ConnectionPool(settings_of(address)) as brokers:
        connection = brokers.connect(address)
        assert connection.reports_versions
        assert connection._session.versions[3] == (0, 13)  # type: ignore[attr-defined]


def test_a_young_broker_that_closes_at_each_opening_is_lost_and_not_old() -> None:
    asked: list[int] = []

    def closing(request: bytes) -> bytes | None:
        answer = young((), asked)(request)
        return None if key_of(request) == API_VERSIONS else answer

    with (
        peer(closing) as address,
        ConnectionPool(settings_of(address)) as brokers,
        pytest.raises(ConnectionLost),
    ):
        brokers.connect(address)
    assert asked == [API_VERSIONS, 1, 3, API_VERSIONS]


def test_an_old_broker_that_was_upgraded_is_found_to_speak_by_now() -> None:
    asked: list[int] = []

    def upgraded(request: bytes) -> bytes | None:
        return versions_response(request) if key_of(request) == API_VERSIONS else None

    with (
        peer(mute(asked), mute(asked), upgraded) as address,
        ConnectionPool(settings_of(address, request_ms=1_000)) as brokers,
    ):
        assert not brokers.connect(address).reports_versions
        brokers.drop(address)
        assert brokers.connect(address).reports_versions


def test_the_age_of_a_broker_shows_in_the_version_of_its_response() -> None:
    one = m.MetadataBroker(node_id=1, host="here", port=9092)
    for brokers in ((), (one,), (one, one)):
        for version in (0, 1):
            session = KafkaSession("me")
            session.assume(WITHOUT_API_VERSIONS)
            frame = session.version_probe()
            told = encode(m.MetadataResponse(brokers=brokers, topics=()), version)
            response = frame[8:12] + told
            assert session.is_too_old(memoryview(response)) == (version == 0)


def test_one_that_is_upgraded_so_far_that_both_ways_work_is_new_again() -> None:
    """As of 0.11 to 3.x: it answers fetches of the oldest kind, too."""
    asked: list[int] = []
    question = next(find_leaders(["orders"], [SEED], {})).requests[0]

    def upgraded(request: bytes) -> bytes | None:
        key, version = key_of(request), int.from_bytes(request[2:4], "big")
        if key == API_VERSIONS:
            return versions_response(request)
        if key == 1:
            return framed(request[4:8] + b"\0\0\0\0")
        told = encode(m.MetadataResponse(brokers=(), topics=()), version)
        return framed(request[4:8] + (b"\0" if version >= 9 else b"") + told)

    was_old = old(asked)
    with (
        peer(was_old, was_old, was_old, upgraded) as address,
        ConnectionPool(settings_of(address)) as brokers,
    ):
        brokers.call(address, question)
        assert not brokers.connect(address).reports_versions
        brokers.drop(address)
        brokers.call(address, question)
        assert brokers.connect(address).reports_versions


def test_one_that_is_upgraded_is_found_to_be_new_again() -> None:
    asked: list[int] = []
    question = next(find_leaders(["orders"], [SEED], {})).requests[0]

    def upgraded(request: bytes) -> bytes | None:
        """As of 4.0: it closes at a fetch of the oldest kind."""
        key, version = key_of(request), int.from_bytes(request[2:4], "big")
        asked.append(key)
        if key == API_VERSIONS:
            return versions_response(request)
        if key == 1:
            return None
        told = encode(m.MetadataResponse(brokers=(), topics=()), version)
        return framed(request[4:8] + b"\0" + told)

    life: list[Reply] = [old(asked)]
    with peer(lambda request: life[-1](request)) as address:
        settings = settings_of(address)
        with ConnectionPool(settings) as brokers:
            brokers.call(address, question)
            brokers.drop(address)
            life.append(upgraded)
            asked.clear()
            brokers.call(address, question)
            assert asked == [1, API_VERSIONS, 3]
