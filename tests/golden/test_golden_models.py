"""The simulation's models of brokers against responses of real ones: given the logs that real
brokers had, they answer the same questions in the same way.
"""

from __future__ import annotations

import pytest

from rangeland.dialects.jafka.messages import encode_request
from rangeland.dialects.rocketmq import messages as m
from rangeland.dialects.rocketmq.error_codes import STATUSES
from rangeland.dialects.rocketmq.frames import Frame, read_frame, write_frame
from rangeland.dialects.rocketmq.routes import read_route
from rangeland.wire.framing import frame
from tests.golden import capture_jafka, capture_rocketmq, test_golden_jafka, test_golden_rocketmq
from tests.jafka_entries import entry
from tests.simulation.jafka import OWNER, ByteLog, JafkaCluster
from tests.simulation.rocketmq import MASTER, NAME_SERVERS, Queue, RocketmqCluster
from tests.simulation.world import World

PULLED = ("nextBeginOffset", "minOffset", "maxOffset", "suggestWhichBrokerId", "offset")


@pytest.fixture(scope="module")
def jafka() -> JafkaCluster:
    model = JafkaCluster(World(0), per_response=100)
    lines = [line.encode() for line in capture_jafka.LINES]
    for topic in (capture_jafka.PLAIN, capture_jafka.PACKED):
        (log,) = model.create(topic, 1, compacts=False).logs
        assert isinstance(log, ByteLog)
        log.segment_bytes = 1 << 20  # type: ignore[misc]
        if topic == capture_jafka.PLAIN:
            for line in lines:
                log.keep([line], entry(line), 0)
        else:
            log.keep(lines, bytes(test_golden_jafka.response_of("Fetch.packed").records), 0)
    return model


@pytest.mark.parametrize("name", test_golden_jafka.NAMES)
def test_jafka(jafka: JafkaCluster, name: str) -> None:
    asked = frame(*encode_request(capture_jafka.REQUESTS[name]))
    (response,) = jafka.answers(OWNER, asked)
    assert response[4:] == bytes(test_golden_jafka.data_of(name))


@pytest.fixture(scope="module")
def rocketmq() -> RocketmqCluster:
    model = RocketmqCluster(World(0), per_response=32)
    (queue,) = model.create(capture_rocketmq.PLAIN.topic, 1, compacts=False).logs
    assert isinstance(queue, Queue)
    body = bytes(test_golden_rocketmq.response_of("Pull.plain").body)
    while body:
        size = int.from_bytes(body[:4], "big")
        queue.keep(body[:size], 0, (body[:size],))
        body = body[size:]
    return model


OTHERS = {f"Pull.{kind}" for kind in capture_rocketmq.KINDS} - {"Pull.plain"}


@pytest.mark.parametrize("name", sorted({*test_golden_rocketmq.NAMES} - OTHERS))
def test_rocketmq(rocketmq: RocketmqCluster, name: str) -> None:
    at_server = name in capture_rocketmq.SERVER_REQUESTS
    request = test_golden_rocketmq.REQUESTS[name]
    asked = Frame(request.code, 0, fields=request.fields)
    (response,) = rocketmq.answers(
        NAME_SERVERS[0] if at_server else MASTER, frame(*write_frame(asked))
    )
    mine, real = (
        read_frame(memoryview(response)[4:]),
        read_frame(test_golden_rocketmq.data_of(name)),
    )
    assert mine.code == real.code
    known = {status.name for status in STATUSES}
    assert mine.remark == real.remark or not {mine.remark, real.remark} & known
    said = {name: text for name, text in real.fields.items() if name in PULLED}
    assert {name: mine.fields.get(name) for name in said} == said
    if request.code == m.PULL:
        assert bytes(mine.body) == bytes(real.body)
    elif request.code == m.ROUTE and real.body:
        mine_route, real_route = read_route(mine.body), read_route(real.body)
        assert list(mine_route.queues.values()) == list(real_route.queues.values())
