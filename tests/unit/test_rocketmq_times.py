"""Times after the last batch of a queue, for which a broker answers with the beginning of that
batch.

No interval that ends there leaves the batch out, whatever the broker reports for the topic.
"""

from __future__ import annotations

from typing import Any

import pytest

from rangeland.dialects.cluster_values import OffsetResult
from rangeland.dialects.error_meaning import ErrorMeaning
from rangeland.dialects.rocketmq import messages as m
from rangeland.dialects.rocketmq.frames import RESPONSE, Frame, read_frame, write_frame
from rangeland.dialects.rocketmq.requests import read_offsets
from rangeland.dialects.rocketmq.session import RocketmqSession
from rangeland.model import Partition
from tests.frames import split_frames
from tests.rocketmq_messages import STORED_MS, batch, inner

QUEUE = Partition("t", 0, "broker-a")


def frames_in(data: bytes) -> list[Frame]:
    return [read_frame(frame) for frame in split_frames(data)]


def response_to(sent: Frame, fields: dict[str, Any] | None = None, **more: Any) -> memoryview:
    texts = {name: str(value) for name, value in (fields or {}).items()}
    response = Frame(more.pop("code", 0), sent.opaque, RESPONSE, fields=texts, **more)
    return memoryview(b"".join(bytes(part) for part in write_frame(response)))


@pytest.mark.parametrize(
    ("kind", "time_ms", "offset", "asked"),
    [
        ("BatchCQ", STORED_MS + 1, "9", [29, 351, 11]),
        ("BatchCQ", STORED_MS, "6", [29, 351, 11]),
        ("SimpleCQ", STORED_MS + 1, "6", [29, 351]),
        (None, STORED_MS + 1, "9", [29, 351, 11]),
        (None, STORED_MS, "6", [29, 351, 11]),
    ],
)
def test_a_time_after_the_last_batch_is_that_of_the_end(
    kind: str | None, time_ms: int, offset: str, asked: list[int]
) -> None:
    """Of which a broker says that it is where the last batch begins."""
    session, codes = RocketmqSession("test"), []

    def ask() -> Any:
        _, sent = session.encode(m.TimeSearch(QUEUE, time_ms))
        response: Any = None
        while sent:
            (frame,) = frames_in(sent)
            codes.append(frame.code)
            match frame.code:
                case m.SEARCH_OFFSET:
                    reply = response_to(frame, {"offset": 6})
                case m.TOPIC_CONFIG if kind is not None:
                    made = f'{{"attributes": {{"queue.type": "{kind}"}}}}'
                    reply = response_to(frame, body=made.encode())
                case m.TOPIC_CONFIG:
                    reply = response_to(frame, code=16)
                case m.PULL:
                    body = batch([inner(b"v")] * 3, 6)
                    reply = response_to(frame, {"nextBeginOffset": 9}, body=body)
            response = session.decode(reply)
            sent = session.due()
        return response[1]

    found = ask()
    assert (found.fields["offset"], found.request.about, codes) == (offset, QUEUE, asked)
    del codes[:]
    assert ask().fields["offset"] == offset
    assert codes == [code for code in asked if code != 351], "how a topic was made is asked once"


def searched(config: int, pull: tuple[int, str], attributes: str = "") -> OffsetResult:
    """What a search for a time that names offset 6 comes to, where the topic's config has this
    code, and the pull that looks at the entry this code and status."""
    session = RocketmqSession("test")
    _, sent = session.encode(m.TimeSearch(QUEUE, STORED_MS + 1))
    response: Any = None
    while sent:
        (frame,) = frames_in(sent)
        match frame.code:
            case m.SEARCH_OFFSET:
                reply = response_to(frame, {"offset": 6})
            case m.TOPIC_CONFIG:
                made = f'{{"attributes": {{{attributes}}}}}'.encode()
                reply = response_to(frame, code=config, body=b"" if config else made)
            case _:
                reply = response_to(frame, {"nextBeginOffset": 6}, code=pull[0], remark=pull[1])
        response = session.decode(reply)
        sent = session.due()
    return read_offsets([response[1]])[QUEUE]


@pytest.mark.parametrize(("config", "attributes"), [(0, '"queue.type": "BatchCQ"'), (2, "")])
def test_a_time_has_no_response_while_the_entry_that_is_named_cannot_be_looked_at(
    config: int, attributes: str
) -> None:
    """It may be the last batch, which would be left out of an interval that ends there."""
    for code, remark, meaning in (
        (2, "busy", ErrorMeaning.RETRY),
        (20, "MESSAGE_WAS_REMOVING", ErrorMeaning.RETRY),
        (19, "OFFSET_FOUND_NULL", ErrorMeaning.UNKNOWN),
        (16, "no right", ErrorMeaning.DENIED),
    ):
        found = searched(config, (code, remark), attributes)
        assert (found.meaning, found.offset) == (meaning, None)
        assert remark in found.code_name
    for code, remark in ((19, "OFFSET_OVERFLOW_ONE"), (21, "OFFSET_TOO_SMALL")):
        found = searched(config, (code, remark), attributes)
        assert (found.meaning, found.offset) == (ErrorMeaning.OK, 6)


def test_a_busy_response_does_not_take_back_that_a_topic_is_made_for_batches() -> None:
    """Two searches have both asked before either has its response."""
    session, found = RocketmqSession("test"), []
    asked = [f for _ in range(2) for f in frames_in(session.encode(m.TimeSearch(QUEUE, 5))[1])]
    for frame in asked:
        session.decode(response_to(frame, {"offset": 6}))
    first, second = frames_in(session.due())
    made = b'{"attributes": {"queue.type": "BatchCQ"}}'
    session.decode(response_to(first, body=made))
    session.decode(response_to(second, code=2))
    pulls = frames_in(session.due())
    assert [frame.code for frame in pulls] == [m.PULL] * 2
    for frame in pulls:
        body = batch([inner(b"v")] * 3, 6, stored_ms=4)
        response = session.decode(response_to(frame, {"nextBeginOffset": 9}, body=body))
        assert response is not None
        found.append(response[1].fields["offset"])
    assert found == ["9", "9"]
    (pull, *others) = frames_in(session.encode(m.PullSeries(QUEUE, 0, 9, 1 << 20, ("A",)))[1])
    assert {frame.fields["subscription"] for frame in (pull, *others)} == {"*"}
