"""Where a queue begins: what a compacted topic still has is not called expired, although its broker
names a later offset.
"""

from __future__ import annotations

import json
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
