"""The proxy of the tests: what it passes on, rewrites, and breaks, without a broker."""

from __future__ import annotations

import socket

import pytest

from rangeland.connection.pool import ConnectionPool
from rangeland.dialects.dialect import load_dialect
from rangeland.dialects.fetch_values import FetchOptions, PartitionFetch
from rangeland.dialects.jafka import messages as jafka
from rangeland.dialects.kafka import messages as kafka
from rangeland.dialects.rocketmq import messages as rocketmq
from rangeland.dialects.rocketmq.frames import Frame, read_frame, write_frame
from rangeland.errors import Unreachable
from rangeland.model import Isolation, Partition
from rangeland.untrusted import parse_address
from rangeland.wire.encoding import encode
from tests.servers.fault_proxy import CALM, Faults, Proxy
from tests.servers.proxied_protocols import (
    JafkaConversation,
    KafkaConversation,
    RocketmqConversation,
)
from tests.unit.test_connection import (
    ALL_TOPICS,
    NO_TOPICS,
    answers_metadata,
    peer,
    settings_of,
    young,
)

TERMS = FetchOptions(Isolation.READ_COMMITTED, 0, 1 << 20)


def elsewhere(address: str) -> str:
    return {"broker:9092": "proxy:1", "10.0.0.7:10911": "127.0.0.1:2"}[address]


def test_kafka_s_brokers_are_named_by_their_proxies() -> None:
    talk = KafkaConversation(elsewhere)
    talk.on_request(bytes((0, 3, 0, 1, 0, 0, 0, 5)))
    broker = kafka.MetadataBroker(node_id=1, host="broker", port=9092)
    response = kafka.MetadataResponse(brokers=(broker,), topics=(), controller_id=1)
    sent = talk.on_response(b"\0\0\0\5" + encode(response, 1))
    moved = kafka.MetadataBroker(node_id=1, host="proxy", port=1)
    told = kafka.MetadataResponse(brokers=(moved,), topics=(), controller_id=1)
    assert sent.frame == b"\0\0\0\5" + encode(told, 1)
    assert sent.failed is None


def test_kafka_s_fetch_fails_with_the_code_in_each_partition() -> None:
    talk = KafkaConversation(elsewhere)
    talk.on_request(bytes((0, 1, 0, 4, 0, 0, 0, 6)))
    part = kafka.FetchedPartitionData(
        partition_index=0, error_code=0, high_watermark=9, records=memoryview(b"records")
    )
    response = kafka.FetchResponse(responses=(kafka.FetchedTopic(topic="t", partitions=(part,)),))
    failed = talk.on_response(b"\0\0\0\6" + encode(response, 4)).failed
    assert failed is not None
    session = load_dialect("kafka").open_session("me")
    session.assume({1: (4, 4)})  # type: ignore[attr-defined]
    asked = [PartitionFetch(Partition("t", 0), None, None, 0, 99)]
    (question,) = load_dialect("kafka").records_requests(asked, TERMS)
    number, _ = session.encode(question.message, question.max_version)
    frame = number.to_bytes(4, "big") + failed(-1)[4:]
    decoded = session.decode(memoryview(frame))
    assert decoded is not None
    (found,) = (
        load_dialect("kafka").read_records([decoded[1]], asked, Isolation.READ_COMMITTED).partitions
    )
    assert (found.code_name, len(found.records)) == ("UNKNOWN_SERVER_ERROR", 0)


@pytest.mark.parametrize("count", [1, 3])
def test_jafka_s_fetch_fails_with_the_code_in_each_partition(count: int) -> None:
    dialect = load_dialect("jafka")
    asked = [PartitionFetch(Partition("t", n, "1"), None, None, 0, 99) for n in range(count)]
    (question,) = dialect.records_requests(asked, TERMS)
    session, talk = dialect.open_session("me"), JafkaConversation(elsewhere)
    talk.on_request(session.encode(question.message)[1][4:])
    failed = talk.on_response(b"any").failed
    assert failed is not None
    decoded = session.decode(memoryview(failed(-1)))
    assert decoded is not None
    found = dialect.read_records([decoded[1]], asked, Isolation.READ_COMMITTED)
    assert [part.code_name for part in found.partitions] == ["UNKNOWN"] * count
    end = jafka.OffsetsRequest(topic="t", partition=0, time_ms=-1, max_count=1)
    talk.on_request(session.encode(end)[1][4:])
    assert talk.on_response(b"any").failed is None


def test_rocketmq_s_brokers_are_named_by_their_proxies_and_pulls_fail() -> None:
    talk = RocketmqConversation(elsewhere)
    for opaque, code in ((1, rocketmq.ROUTE), (2, rocketmq.PULL)):
        talk.on_request(b"".join(write_frame(Frame(code, opaque))))
    pulled = talk.on_response(b"".join(write_frame(Frame(0, 2, flag=1, body=b"messages"))))
    route = b'{"brokerAddrs":{0:"10.0.0.7:10911"}}'
    told = talk.on_response(b"".join(write_frame(Frame(0, 1, flag=1, body=route))))
    assert bytes(read_frame(memoryview(told.frame)).body) == route.replace(
        b"10.0.0.7:10911", b"127.0.0.1:2"
    )
    assert told.failed is None
    assert pulled.failed is not None
    found = read_frame(memoryview(pulled.failed(2)))
    assert (found.code, found.opaque, found.is_response, bytes(found.body)) == (2, 2, True, b"")


def ask(proxy: Proxy) -> object:
    address = parse_address(proxy.addresses[0])
    with ConnectionPool(settings_of(address, request_ms=30_000)) as brokers:
        return brokers.call(address, ALL_TOPICS)


def test_what_is_not_troubled_comes_through_and_what_is_does_not() -> None:
    with peer(young(answers_metadata)) as broker, Proxy("kafka", [str(broker)]) as proxy:
        assert ask(proxy) == NO_TOPICS
        for faults in (Faults(1, refused=1.0), Faults(1, cut=1.0)):
            proxy.make(faults)
            with pytest.raises(Unreachable):
                ask(proxy)
        assert proxy.done["cut"] > 0
        proxy.make(Faults(1, delayed=1.0, delay_s=0.01, bytes_per_second=1_000))
        assert ask(proxy) == NO_TOPICS
        assert proxy.done["slowed"] > 1
        assert proxy.done["delayed"] > 1
        proxy.make(CALM)
        assert ask(proxy) == NO_TOPICS


def test_a_proxy_before_no_broker_closes_and_leaves_nothing_behind() -> None:
    # Bound without listening: connections are refused, and the proxy cannot get this port itself.
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        nobody = f"127.0.0.1:{bound.getsockname()[1]}"
        with Proxy("kafka", [nobody]) as proxy, pytest.raises(Unreachable):
            ask(proxy)
