"""Responses of a real RocketMQ name server and broker, byte for byte, about topics that
upstream's producer wrote.

What the topics hold is in ``expected.json``, as upstream's consumer read it; see
``capture_rocketmq.py``. Decoding is held to it by both decoders.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from rangeland.decode import rocketmq_decoder
from rangeland.dialects.error_meaning import ErrorMeaning
from rangeland.dialects.fetch_values import PartitionFetch
from rangeland.dialects.rocketmq import messages as m
from rangeland.dialects.rocketmq.frames import read_frame
from rangeland.dialects.rocketmq.log_entries import scan
from rangeland.dialects.rocketmq.records import decode_chunks
from rangeland.dialects.rocketmq.requests import read_offsets, read_records
from rangeland.dialects.rocketmq.routes import read_route, read_topics
from rangeland.dialects.rocketmq.session import RocketmqSession
from rangeland.errors import BadRecord, RemoteProtocolError
from rangeland.model import Counts, Isolation
from tests.fetched_records import fetched_at
from tests.golden.capture_rocketmq import (
    BROKER_REQUESTS,
    COUNT,
    HOME,
    KINDS,
    PADDING,
    PLAIN,
    SERVER_REQUESTS,
    SHORT,
    VERSION,
    queue_of,
)
from tests.reference.rocketmq_messages import RocketmqReference

STORED = HOME / VERSION
EXPECTED = json.loads((STORED / "expected.json").read_text(encoding="utf-8"))
REQUESTS = {**SERVER_REQUESTS, **BROKER_REQUESTS}
NAMES = sorted(REQUESTS)
COMMITTED = Isolation.READ_COMMITTED
OF_THE_CONSUMER = ("MIN_OFFSET", "MAX_OFFSET")
"""What upstream's consumer adds to the properties of a message."""


def data_of(name: str) -> memoryview:
    return memoryview((STORED / f"{name}.bin").read_bytes())


def response_of(name: str) -> m.RemotingResponse:
    session = RocketmqSession("golden")
    request_id, _ = session.encode(REQUESTS[name])
    answered = session.decode(data_of(name))
    assert answered is not None
    assert answered[0] == request_id
    response: m.RemotingResponse = answered[1]
    return response


def rows_of(name: str) -> list[dict[str, Any]]:
    chunks = list(decode_chunks(fetched_at(response_of(name).body), 0, 1 << 40))
    assert Counts.sum(chunk.counts for chunk in chunks).total == chunks[-1].next_offset
    return [row for chunk in chunks for row in chunk.batch.to_pylist()]


def properties_of(text: str) -> dict[str, str]:
    """As Java prints a map: no value here has a comma or an equals sign."""
    pairs = dict(pair.split("=", 1) for pair in text.strip("{}").split(", "))
    return {name: value for name, value in pairs.items() if name not in OF_THE_CONSUMER}


def test_every_question_has_its_response_stored() -> None:
    assert sorted(path.stem for path in STORED.glob("*.bin")) == NAMES
    text = (STORED / "README.md").read_text(encoding="utf-8")
    assert all(f"| {name}.bin |" in text for name in NAMES)
    assert EXPECTED["broker"] == VERSION


@pytest.mark.parametrize("name", NAMES)
def test_a_header_that_is_cut_is_refused(name: str) -> None:
    data = data_of(name)
    header_end = 4 + int.from_bytes(data[1:4], "big")
    for size in range(header_end):
        with pytest.raises(RemoteProtocolError):
            read_frame(data[:size])
    assert bytes(read_frame(data).body) == bytes(data[header_end:])


@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_what_upstreams_consumer_read(kind: str) -> None:
    rows = rows_of(f"Pull.{kind}")
    assert [[row["offset"], row["value"].decode()] for row in rows] == [
        [offset, body.replace(SHORT, PADDING)] for offset, body, _ in EXPECTED[kind]
    ]
    for row, (_, _, text) in zip(rows, EXPECTED[kind], strict=True):
        headers = [(h["key"], h["value"].decode()) for h in row["headers"]]
        wanted = properties_of(text)
        # The list of keys has a space in it, which is no separator here.
        assert dict(headers) == wanted
        assert len(headers) == len(dict(headers))
        assert row["key"] == (wanted["KEYS"].encode() if "KEYS" in wanted else None)
        assert row["timestampType"] == 1
        assert 0 <= (row["timestamp"] - row["bornTimestamp"]).total_seconds() < 30


@pytest.mark.parametrize("kind", KINDS)
def test_both_decoders_give_the_same(kind: str) -> None:
    body = memoryview(response_of(f"Pull.{kind}").body)
    wanted = RocketmqReference().decode_stored(body, 0, 1 << 40)
    found = rocketmq_decoder().decode_stored(body, 0, 1 << 40)
    assert found.batch.equals(wanted.batch)
    assert found.walked == wanted.walked
    codes = {"zlib": 3, "lz4": 1, "zstd": 2}
    assert set(() if found.codecs is None else found.codecs.tolist()) == {
        code for name, code in codes.items() if name == kind
    }


@pytest.mark.parametrize("kind", KINDS)
def test_damage_to_a_body_is_noticed(kind: str) -> None:
    body = bytearray(bytes(response_of(f"Pull.{kind}").body))
    body[88 + 3] ^= 0x10  # in the body of the first message, whose hosts are of four bytes
    with pytest.raises(BadRecord, match="checksum"):
        list(decode_chunks(fetched_at(body), 0, 1 << 40))


@pytest.mark.parametrize(
    ("name", "meaning", "code"),
    [
        ("Pull.end", ErrorMeaning.OK, "PULL_NOT_FOUND"),
        ("Pull.beyond", ErrorMeaning.OUT_OF_RANGE, "OFFSET_OVERFLOW_BADLY"),
        ("Pull.too-small", ErrorMeaning.OUT_OF_RANGE, "OFFSET_TOO_SMALL"),
        ("Pull.unknown-topic", ErrorMeaning.FIND_LEADER, "TOPIC_NOT_EXIST"),
        ("Pull.unknown-queue", ErrorMeaning.FIND_LEADER, "INVALID_PARAMETER"),
    ],
)
def test_a_pull_that_brings_nothing_says_why(name: str, meaning: ErrorMeaning, code: str) -> None:
    response = response_of(name)
    offset = int(response.request.fields["queueOffset"])
    series = m.SeriesResponse(m.PullSeries(PLAIN, offset, FAR_OFF, 1), (response,))
    asked = [PartitionFetch(PLAIN, None, None, offset, 1, FAR_OFF)]
    (part,) = read_records([series], asked, COMMITTED).partitions
    assert (part.meaning, part.code_name.split(":")[0]) == (meaning, code)
    assert not len(part.records)


FAR_OFF = 1 << 60


def test_a_pull_of_two_brings_two() -> None:
    assert [row["offset"] for row in rows_of("Pull.two") if row["offset"]] == [1, 2]
    assert scan(fetched_at(response_of("Pull.two").body, 1)).next_offset == 3


def test_offsets_are_read_as_they_are_and_not_believed_of_a_topic_that_is_not_there() -> None:
    wanted = {
        "MaxOffset.plain": COUNT,
        "MinOffset.plain": 0,
        "SearchOffset.early": 0,
        "SearchOffset.late": COUNT,
        "MaxOffset.unknown-topic": 0,  # so its route is asked for first
    }
    for name, offset in wanted.items():
        (found,) = read_offsets([response_of(name)]).values()
        assert (found.meaning, found.offset) == (ErrorMeaning.OK, offset), name


def test_a_route_names_the_broker_and_its_queue() -> None:
    route = read_route(response_of("Route.plain").body)
    (partition,) = route.leaders(PLAIN.topic)
    assert partition == PLAIN
    topics = read_topics(response_of("AllTopics.all").body)
    assert {queue_of(kind).topic for kind in KINDS} <= set(topics)
    assert not re.search(r"[^!-~]", "".join(topics))


def test_servers_say_what_they_are_not_for() -> None:
    assert response_of("Route.broker").code == response_of("MaxOffset.name-server").code == 3
    assert response_of("Route.unknown-topic").code == 17
