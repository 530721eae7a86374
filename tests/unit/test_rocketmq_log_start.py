"""Where a queue begins: what a compacted topic still has is not called expired, although its broker
names a later offset.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from rangeland.dialects.cluster_values import OffsetResult
from rangeland.dialects.error_meaning import ErrorMeaning
from rangeland.dialects.rocketmq import messages as m
from rangeland.dialects.rocketmq.frames import RESPONSE, Frame, read_frame, write_frame
from rangeland.dialects.rocketmq.requests import offsets_requests, read_offsets
from rangeland.dialects.rocketmq.session import RocketmqSession
from rangeland.model import Address, Earliest, Isolation, Leader, Partition
from tests.frames import split_frames
from tests.rocketmq_messages import stored

QUEUE = Partition("t", 0, "broker-a")
COMPACTED = {"attributes": {"cleanup.policy": "COMPACTION"}}
FOUND = (0, "FOUND")
TOO_SMALL = (21, "OFFSET_TOO_SMALL")


def searched(
    session: RocketmqSession,
    begins: int,
    topic: object = None,
    pull: tuple[int, str] = TOO_SMALL,
    *,
    config: int = 0,
) -> tuple[OffsetResult, list[int]]:
    """What a search comes to, and what was asked for it. ``pull``: the code and the status of a
    pull at offset 0."""

    def answer(sent: Frame) -> Frame:
        match sent.code:
            case m.MIN_OFFSET:
                return Frame(0, sent.opaque, RESPONSE, fields={"offset": str(begins)})
            case m.TOPIC_CONFIG:
                body = json.dumps(topic).encode() if config == 0 else b""
                return Frame(config, sent.opaque, RESPONSE, body=body)
        assert sent.fields["queueOffset"] == "0"
        fields = {"nextBeginOffset": "13", "minOffset": "12", "maxOffset": "99"}
        body = stored(b"v", 12) if pull == FOUND else b""
        return Frame(pull[0], sent.opaque, RESPONSE, pull[1], fields, body)

    codes: list[int] = []
    leaders = {QUEUE: Leader(Address("a", 1))}
    (question,) = offsets_requests(leaders, Earliest(), Isolation.READ_COMMITTED)
    _, sent = session.encode(question.message)
    response: Any = None
    while sent:
        (asked,) = (read_frame(frame) for frame in split_frames(sent))
        codes.append(asked.code)
        reply = b"".join(bytes(part) for part in write_frame(answer(asked)))
        response = session.decode(memoryview(reply))
        sent = session.due()
    assert session.unanswered == 0
    return read_offsets([response[1]])[QUEUE], codes


def test_a_compacted_queue_begins_where_it_is_answered_from() -> None:
    session = RocketmqSession("test")
    found, codes = searched(session, 50, COMPACTED, FOUND)
    assert (found.meaning, found.offset, codes) == (ErrorMeaning.OK, 0, [31, 351, 11])
    found, codes = searched(session, 50, COMPACTED, FOUND)
    assert (found.offset, codes) == (0, [31, 11]), "the type of the topic is asked for once"


@pytest.mark.parametrize("pull", [TOO_SMALL, (20, "OFFSET_TOO_SMALL"), (21, ""), (16, "no right")])
def test_one_that_its_broker_does_not_compact_begins_where_that_says(pull: tuple[int, str]) -> None:
    found, codes = searched(RocketmqSession("test"), 50, COMPACTED, pull)
    assert (found.meaning, found.offset, codes) == (ErrorMeaning.OK, 50, [31, 351, 11])
    found, _ = searched(RocketmqSession("test"), 50, COMPACTED, (19, "NO_MATCHED_LOGIC_QUEUE"))
    assert found.offset == 50


def test_nothing_more_is_asked_of_other_queues() -> None:
    session = RocketmqSession("test")
    assert searched(session, 0)[1] == [31]
    assert searched(session, -1)[0].offset == 0
    for topic in ({"attributes": {}}, {"attributes": {"cleanup.policy": "DELETE"}}):
        found, codes = searched(session, 50, topic)
        assert found.offset == 50
        assert codes in ([31, 351], [31])
    for config in (3, 16):
        found, codes = searched(RocketmqSession("test"), 50, config=config)
        assert (found.offset, codes) == (50, [31, 351])


def searched_together(
    session: RocketmqSession, body: bytes, config: int = 0
) -> tuple[dict[Partition, OffsetResult], Counter[int]]:
    """What the searches of three queues come to whose requests are all sent at once, as in a
    survey, and how often each request was sent."""
    queues = [Partition("t", number, "broker-a") for number in range(3)]
    questions = offsets_requests(
        dict.fromkeys(queues, Leader(Address("a", 1))), Earliest(), Isolation.READ_COMMITTED
    )
    encoded = [session.encode(question.message) for question in questions]
    sent = [read_frame(raw) for _, frames in encoded for raw in split_frames(frames)]
    codes: Counter[int] = Counter()
    found: dict[int, Any] = {}
    while sent:
        asked = sent.pop(0)
        codes[asked.code] += 1
        match asked.code:
            case m.MIN_OFFSET:
                reply = Frame(0, asked.opaque, RESPONSE, fields={"offset": "50"})
            case m.TOPIC_CONFIG:
                reply = Frame(config, asked.opaque, RESPONSE, body=body)
            case _:
                fields = {"nextBeginOffset": "13", "minOffset": "12", "maxOffset": "99"}
                reply = Frame(0, asked.opaque, RESPONSE, "FOUND", fields, stored(b"v", 12))
        decoded = session.decode(memoryview(b"".join(bytes(part) for part in write_frame(reply))))
        found |= dict([decoded] if decoded else ()) | dict(session.also_completed())
        sent += [read_frame(raw) for raw in split_frames(session.due())]
    assert session.unanswered == 0
    assert session.also_completed() == []
    return read_offsets([found[request_id] for request_id, _ in encoded]), codes


@pytest.mark.parametrize(
    ("body", "config", "offset", "pulls"),
    [
        (json.dumps(COMPACTED).encode(), 0, 0, 3),
        (b'{"attributes": {}}', 0, 50, 0),
        (b"no json", 0, 50, 0),
        (b"", 16, 50, 0),
    ],
    ids=["compacted", "not compacted", "unreadable", "denied"],
)
def test_the_type_of_a_topic_is_asked_for_once_for_all_of_its_queues(
    body: bytes, config: int, offset: int, pulls: int
) -> None:
    session = RocketmqSession("test")
    found, codes = searched_together(session, body, config)
    assert [result.offset for result in found.values()] == [offset] * 3
    assert (codes[m.MIN_OFFSET], codes[m.TOPIC_CONFIG], codes[m.PULL]) == (3, 1, pulls)
    found, codes = searched_together(session, body, config)
    assert [result.offset for result in found.values()] == [offset] * 3
    assert (codes[m.MIN_OFFSET], codes[m.TOPIC_CONFIG], codes[m.PULL]) == (3, 0, pulls)


def test_a_broker_that_is_busy_is_asked_for_the_type_again() -> None:
    session = RocketmqSession("test")
    found, codes = searched_together(session, b"", 2)
    assert [(r.meaning.is_retriable, r.offset) for r in found.values()] == [(True, None)] * 3
    assert codes[m.TOPIC_CONFIG] == 1
    found, codes = searched_together(session, json.dumps(COMPACTED).encode())
    assert [result.offset for result in found.values()] == [0] * 3
    assert codes[m.TOPIC_CONFIG] == 1


@pytest.mark.parametrize(
    ("pull", "config"),
    [
        ((2, "busy"), 0),
        ((20, "MESSAGE_WAS_REMOVING"), 0),
        ((19, "OFFSET_FOUND_NULL"), 0),
        (FOUND, 2),
    ],
)
def test_there_is_no_result_while_that_cannot_be_told(pull: tuple[int, str], config: int) -> None:
    found, _ = searched(RocketmqSession("test"), 50, COMPACTED, pull, config=config)
    assert found.meaning.is_retriable
    assert found.offset is None
