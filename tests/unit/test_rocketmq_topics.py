"""What a connection remembers about how topics were created. Responses without that information
change nothing.
"""

from __future__ import annotations

import pytest

from rangeland.dialects.rocketmq import messages as m
from rangeland.dialects.rocketmq.topic_types import TopicTypes
from rangeland.model import Partition
from tests.rocketmq_messages import batch, inner, stored

QUEUE = Partition("t", 0, "broker-a")
BUSY, REFUSED = (m.RemotingResponse(m.topic_config("t"), code, "no", {}, b"") for code in (2, 16))


def config(body: bytes) -> m.RemotingResponse:
    return m.RemotingResponse(m.topic_config("t"), 0, "", {}, body)


def pulled(body: bytes, code: int = 0) -> m.RemotingResponse:
    return m.RemotingResponse(m.Pull(QUEUE, 0), code, "", {}, body)


FOR_BATCHES = config(b'{"attributes": {"queue.type": "BatchCQ"}}')
AS_USUAL = config(b'{"attributes": {"queue.type": "SimpleCQ"}}')
OLD = config(b'{"topicName": "t"}')
BATCH, SINGLE = pulled(batch([inner(b"v")])), pulled(stored(b"v"))


@pytest.mark.parametrize(
    ("responses", "known"),
    [
        ([], None),
        ([SINGLE], None),
        ([BUSY], None),
        ([config(b"no json"), config(b"[]")], None),
        ([AS_USUAL], False),
        ([OLD], False),
        ([BUSY, REFUSED, AS_USUAL], False),
        ([AS_USUAL, BUSY], False),
        ([AS_USUAL, BATCH], True),
        ([BUSY, FOR_BATCHES, BUSY], True),
        ([BATCH, AS_USUAL], True),
        ([FOR_BATCHES, SINGLE, pulled(b"", 19)], True),
    ],
)
def test_what_is_told_of_a_topic_is_known_for_good(
    responses: list[m.RemotingResponse], known: bool | None
) -> None:
    topics = TopicTypes()
    for response in responses:
        topics.learn("t", [response])
    assert topics.is_for_batches("t") is known
    assert topics.was_asked("t") == any(response is not SINGLE for response in responses)
    assert topics.needs_all("t") == (topics.was_asked("t") and known is not False)
    assert not topics.was_asked("other")


def test_a_topic_that_is_not_told_of_is_asked_about_ever_more_rarely() -> None:
    topics = TopicTypes()
    assert not topics.asks_again("t"), "nobody has asked yet"
    topics.learn("t", [BUSY])
    asked = [n for n in range(1, 1_000) if topics.asks_again("t")]
    assert asked == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]
    topics.learn("t", [AS_USUAL])
    assert not any(topics.asks_again("t") for _ in range(1_000))
