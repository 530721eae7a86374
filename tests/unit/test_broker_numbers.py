"""A number that a broker or a registry supplies never decides how much memory or time we take."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any, cast

import pytest

from rangeland.cluster_settings import ClusterSettings
from rangeland.connection.failures import ConnectionLost
from rangeland.connection.socket_stream import Stream
from rangeland.dialects.kafka import messages as m
from rangeland.dialects.rocketmq.routes import MAX_QUEUES, read_route
from rangeland.errors import RangelandError, RemoteProtocolError, Unreachable
from rangeland.fetch.fetch_loop import FetchLoop
from rangeland.fetch.fetch_steps import SendFetch, WaitUntil
from rangeland.groups.kafka.group_backend import open_backend
from rangeland.model import Address, Leader, LogState, Partition, Range
from rangeland.planning.planned_ranges import MAX_ESTIMATED_BYTES, with_estimate
from rangeland.planning.slices import MAX_SLICES, Slicing, cut_slices
from rangeland.untrusted import MAX_INT64
from rangeland.zookeeper.broker_registry import (
    IDS,
    TOPICS,
    parse_broker,
    parse_kafka_topic,
    parse_partition_count,
    registry_seen_by,
)
from rangeland.zookeeper.znodes import Znode
from rangeland.zookeeper.zookeeper_client import ZooKeeper
from tests.fakes.fetching import take_step
from tests.scripted_io import ScriptedIO, found
from tests.unit.test_throttle import B1, loop_of, slice_of

P0 = Partition("t", 0)


@pytest.fixture(autouse=True)
def quickly() -> Iterator[None]:
    started = time.process_time()
    yield
    assert time.process_time() - started < 5


# --- JSON of RocketMQ ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        b"{" + b'"' * 1_000_000,
        b"{" + b'\\"' * 500_000,
        b'{"' + b"\\" * 1_000_001,
        b"{" + b"1," * 500_000,
        b"{" + b"1" * 1_000_000,
        b"{" + b" " * 1_000_000,
        b"{ " * 500_000,
        b"{1: " * 250_000,
        b'{"a":"' + b"{1:" * 300_000,
    ],
    ids=lambda body: repr(body[:8]),
)
def test_json_with_bare_keys_is_read_in_linear_time(body: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="a route cannot be read"):
        read_route(body)


def test_bare_keys_are_quoted_outside_of_texts_only() -> None:
    body = rb'{"brokerDatas":[{"brokerName":"b{1:\"2\",3:","brokerAddrs":{0:"h:1", -1 : "h:2"}}]}'
    with pytest.raises(RemoteProtocolError, match="a broker's number"):
        read_route(body)
    route = read_route(body.replace(b', -1 : "h:2"', b', 1 : "h:2"'))
    assert route.brokers[r'b{1:"2",3:'] == ("", {0: Address("h", 1), 1: Address("h", 2)})


@pytest.mark.parametrize("count", ["100000000", str(MAX_QUEUES + 1), "-1", "1.5", '"4"', "1e9"])
def test_a_number_of_queues_that_cannot_be_is_refused(count: str) -> None:
    body = f'{{"queueDatas":[{{"brokerName":"b","readQueueNums":{count}}}]}}'
    with pytest.raises(RemoteProtocolError, match="readQueueNums") as caught:
        read_route(body.encode())
    assert caught.value.exit_code == 75


def test_queues_of_all_brokers_together_are_bounded() -> None:
    listed = ",".join(f'{{"brokerName":"b{n}","readQueueNums":65536}}' for n in range(2_000))
    with pytest.raises(RemoteProtocolError, match="131072000 queues in all"):
        read_route(f'{{"queueDatas":[{listed}]}}'.encode())


# --- ZooKeeper ----------------------------------------------------------------------------


@pytest.mark.parametrize("content", [b"100000000", b"9" * 5_000, b"-1", "²".encode(), b""])
def test_a_number_of_partitions_that_cannot_be_is_refused(content: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="number of partitions"):
        parse_partition_count("t", "1", content)


class ManyBrokers:
    """Stands in for a ZooKeeper client: two thousand brokers have as many partitions as can be."""

    names = tuple(str(n) for n in range(2_000))

    def children_of(self, paths: Iterable[str]) -> dict[str, list[str]]:
        return {p: ["t"] if p == TOPICS else list(self.names) for p in paths}

    def read_all(self, paths: Iterable[str]) -> dict[str, Znode]:
        return {path: Znode(self._content(path), 0, 0, 0) for path in paths}

    @staticmethod
    def _content(path: str) -> bytes:
        if path.startswith(IDS):
            return b"creator:h:1"
        return b"" if path == f"{TOPICS}/t" else b"65536"


def test_partitions_of_all_brokers_together_are_bounded() -> None:
    with pytest.raises(RemoteProtocolError, match="131072000 partitions on 2000 brokers"):
        registry_seen_by(cast(ZooKeeper, ManyBrokers()))


@pytest.mark.parametrize(
    "content",
    [
        b'{"host":null,"port":-1,"endpoints":["SSL://h:99999"]}',
        b'{"host":null,"port":-1,"endpoints":["SSL://[h:9"]}',
        b'{"host":null,"port":-1,"endpoints":["SSL://h"]}',
        b'{"host":"h","port":99999}',
        b'{"host":"h","port":true}',
        b'{"host":"h","port":' + b"9" * 5_000 + b"}",
        b'{"host":"h","port":Infinity}',
        b'{"a":' * 5_000,
        b"c:h:99999:true",
        b"c:h:" + b"9" * 5_000,
        "c:h:²".encode(),
        b"c::9",
    ],
    ids=lambda content: repr(content[:40]),
)
def test_an_address_that_cannot_be_is_refused(content: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="in ZooKeeper cannot be read"):
        parse_broker("1", content)


def test_partitions_that_are_no_map_are_refused() -> None:
    for content in (b'{"partitions":[1]}', b'{"partitions":{"1":[]}}', b"{}", b"[]"):
        with pytest.raises(RemoteProtocolError):
            parse_kafka_topic("t", content)


# --- offsets ------------------------------------------------------------------------------


@pytest.mark.parametrize("size_bytes", [None, 0, -5, 1 << 40, MAX_INT64])
@pytest.mark.parametrize("end", [2**62, MAX_INT64])
def test_an_end_that_cannot_be_makes_no_more_slices_than_a_plan_may_have(
    end: int, size_bytes: int | None
) -> None:
    log = LogState(P0, Leader(B1), 0, end, size_bytes)
    asked = with_estimate(Range(P0, 0, end), log)
    assert 0 <= asked.estimated_bytes <= MAX_ESTIMATED_BYTES
    slices = cut_slices([asked], Slicing(1, 0), {P0: log})
    assert 1 <= len(slices) <= MAX_SLICES
    assert (slices[0].from_offset, slices[-1].until_offset) == (0, end)
    assert all(a.until_offset == b.from_offset for a, b in pairwise(slices))


def test_many_ranges_share_the_slices_of_a_plan() -> None:
    ranges = [Range(Partition("t", n), 0, 1 << 40, None, 1 << 50) for n in range(10)]
    assert 90_000 < len(cut_slices(ranges, Slicing(1, 0), {})) <= MAX_SLICES


# --- waiting ------------------------------------------------------------------------------


@pytest.mark.parametrize("throttle_ms", [2**31 - 1, -(2**31), 24 * 86_400_000])
def test_no_broker_makes_us_wait_longer_than_a_slice_may_stand_still(throttle_ms: int) -> None:
    loop = loop_of(slice_of(0))
    step = take_step(loop, 0)
    assert isinstance(step, SendFetch)
    loop.on_response(B1, 10, throttle_ms, 0)
    loop.on_records(step.requests[0], 50)
    following = take_step(loop, 1)
    assert isinstance(following, SendFetch) or following == WaitUntil(10_000)


def test_a_broker_that_only_ever_holds_us_back_is_given_up() -> None:
    loop = loop_of(slice_of(0))
    with pytest.raises(Unreachable):
        _hold_back(loop, responses=1_000)
    assert 10 * 10_000 <= loop.now_ms <= 13 * 10_000


def _hold_back(loop: FetchLoop, responses: int) -> None:
    for _ in range(responses):
        step: Any = take_step(loop, loop.now_ms)
        while isinstance(step, WaitUntil):
            step = take_step(loop, step.at_ms)
        loop.on_response(B1, 0, 2**31 - 1, loop.now_ms)
        loop.on_empty(step.requests[0], 100, throttled=True)


# --- addresses that brokers name ----------------------------------------------------------


@pytest.mark.parametrize(
    "address",
    [
        Address("127.0.0.1", 99_999),
        Address("127.0.0.1", -1),
        Address("a\0b", 1),
        Address("a" * 70, 1),
    ],
    ids=repr,
)
def test_an_address_that_no_socket_takes_is_a_broker_that_cannot_be_reached(
    address: Address,
) -> None:
    settings = ClusterSettings("kafka", (Address("127.0.0.1", 1),), connect_ms=200)
    with pytest.raises(ConnectionLost) as caught:
        Stream(address, settings)
    assert caught.value.exit_code == 75
    named = replace(settings, seeds=(address,))
    with pytest.raises(RangelandError) as mistaken:
        Stream(address, named)
    assert mistaken.value.exit_code in (75, 78)


def test_a_coordinator_that_describes_no_group_is_not_taken_for_one_without_members() -> None:
    io = ScriptedIO([found(), (m.DescribeGroupsRequest, m.DescribeGroupsResponse(groups=()))])
    with pytest.raises(RemoteProtocolError, match="described 0"):
        open_backend(io).view("g")
