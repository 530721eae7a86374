"""Where a queue has its first message at or after a time, whatever its broker says.

Brokers before 5.1.1 name the message whose time is the closest, or any of those that have it, and
newer ones the last batch of a topic for batches where they should name the end. Intervals that meet
at a time share no message, and leave none out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pytest

from rangeland.dialects.cluster_values import OffsetResult
from rangeland.dialects.error_meaning import ErrorMeaning
from rangeland.dialects.rocketmq import messages as m
from rangeland.dialects.rocketmq.frames import RESPONSE, Frame, read_frame, write_frame
from rangeland.dialects.rocketmq.requests import read_offsets
from rangeland.dialects.rocketmq.session import RocketmqSession
from rangeland.dialects.rocketmq.time_search import MAX_SEARCH_PULLS
from rangeland.model import Partition
from tests.frames import split_frames
from tests.rocketmq_messages import batch, inner, stored

QUEUE = Partition("t", 0, "broker-a")
BEGIN = 20
TIMES = (100, 200, 200, 200, 200, 300, 300, 900)
"""Of the messages from offset ``BEGIN`` on."""


def frames_in(data: bytes) -> list[Frame]:
    return [read_frame(frame) for frame in split_frames(data)]


def response_to(sent: Frame, fields: dict[str, Any] | None = None, **more: Any) -> memoryview:
    texts = {name: str(value) for name, value in (fields or {}).items()}
    response = Frame(more.pop("code", 0), sent.opaque, RESPONSE, fields=texts, **more)
    return memoryview(b"".join(bytes(part) for part in write_frame(response)))


class Held(NamedTuple):
    """An entry at ``[offset, until)``, as it is stored."""

    offset: int
    until: int
    data: bytes


def plain(times: Sequence[int] = TIMES, begin: int = BEGIN) -> list[Held]:
    return [Held(o, o + 1, stored(b"v", o, stored_ms=t)) for o, t in enumerate(times, begin)]


def in_batches(times: Sequence[int] = TIMES, begin: int = BEGIN) -> list[Held]:
    """Three messages of each time."""
    return [
        Held(o, o + 3, batch([inner(b"v")] * 3, o, stored_ms=t))
        for o, t in zip(range(begin, begin + 3 * len(times), 3), times, strict=True)
    ]


def pulled(sent: Frame, entries: Sequence[Held], begin: int) -> memoryview:
    """As ``DefaultMessageStore.getMessage`` upstream."""
    at, end = int(sent.fields["queueOffset"]), entries[-1].until if entries else begin
    fields: dict[str, Any] = {"minOffset": begin, "maxOffset": end, "nextBeginOffset": at}
    if end == 0:
        return response_to(sent, fields, code=19, remark="NO_MESSAGE_IN_QUEUE")
    if at < begin:
        fields["nextBeginOffset"] = begin
        return response_to(sent, fields, code=21, remark="OFFSET_TOO_SMALL")
    if at == end:
        return response_to(sent, fields, code=19, remark="OFFSET_OVERFLOW_ONE")
    if at > end:
        fields["nextBeginOffset"] = end
        return response_to(sent, fields, code=21, remark="OFFSET_OVERFLOW_BADLY")
    found = next(each for each in entries if each.until > at)
    fields["nextBeginOffset"] = found.until
    return response_to(sent, fields, remark="FOUND", body=found.data)


def found_by(
    session: RocketmqSession,
    time_ms: int,
    named: int,
    answer: Callable[[Frame], memoryview],
) -> tuple[OffsetResult, int]:
    """What a search comes to where the broker names an offset, and after how many pulls."""
    pulls = 0
    _, sent = session.encode(m.TimeSearch(QUEUE, time_ms))
    response: Any = None
    while sent:
        (frame,) = frames_in(sent)
        assert frame.code in (m.SEARCH_OFFSET, m.PULL)
        if frame.code == m.PULL:
            pulls += 1
            reply = answer(frame)
        else:
            reply = response_to(frame, {"offset": named})
        response = session.decode(reply)
        sent = session.due()
    assert session.unanswered == 0
    return read_offsets([response[1]])[QUEUE], pulls


def searched(
    time_ms: int, named: int, entries: Sequence[Held], begin: int = BEGIN
) -> tuple[int | None, int]:
    session = RocketmqSession("test")
    result, pulls = found_by(session, time_ms, named, lambda sent: pulled(sent, entries, begin))
    assert result.meaning is ErrorMeaning.OK
    return result.offset, pulls


@pytest.mark.parametrize("entries", [plain(), in_batches()], ids=["plain", "batches"])
@pytest.mark.parametrize("time_ms", [0, 99, 100, 101, 199, 200, 201, 300, 301, 899, 900, 901])
def test_the_first_message_that_is_late_enough_is_found_wherever_the_broker_says_it_is(
    entries: list[Held], time_ms: int
) -> None:
    late = [at for at, stored_at in zip(entries, TIMES, strict=True) if stored_at >= time_ms]
    first = late[0].offset if late else entries[-1].until
    for named in (-1, 0, *range(BEGIN - 2, entries[-1].until + 3), 1 << 40, (1 << 63) - 1):
        assert searched(time_ms, named, entries)[0] == first, named


@pytest.mark.parametrize(
    ("time_ms", "named", "first"),
    [
        (450, 26, 27),  # the closest one, 150 ms before; the next is 450 ms after
        (950, 27, 28),  # the last one, where nothing is that late yet
        (200, 23, 21),  # one of several of the same time
        (260, 25, 25),  # the closest one is the right one
    ],
)
def test_what_brokers_before_5_1_1_name_is_corrected(time_ms: int, named: int, first: int) -> None:
    assert searched(time_ms, named, plain())[0] == first


def test_a_message_that_was_the_last_one_is_in_the_interval_before_a_later_time() -> None:
    """Two intervals meet at 950. The first is planned while nothing is that late, the second when
    the next message is closer to that time than the last one before it."""
    before, _ = searched(950, 27, plain())
    after, _ = searched(950, 28, plain((*TIMES, 960)))
    assert before == after == 28


@pytest.mark.parametrize("entries", [plain(), in_batches()], ids=["plain", "batches"])
def test_a_time_that_is_found_takes_two_pulls(entries: list[Held]) -> None:
    """The message, and the one before it."""
    for index in (1, 5, 7):
        assert searched(TIMES[index], entries[index].offset, entries) == (entries[index].offset, 2)
    assert searched(901, entries[-1].until, entries) == (entries[-1].until, 2)
    assert searched(50, BEGIN, entries) == (BEGIN, 2)


def test_a_search_in_a_long_queue_is_short() -> None:
    """All of it has the same time, or all but one."""
    entries = plain([7] * 1000, 0)
    for time_ms, first in ((7, 0), (8, 1000)):
        for named in (0, 1, 500, 999, 1000):
            offset, pulls = searched(time_ms, named, entries, 0)
            assert offset == first
            assert pulls <= 22


@pytest.mark.parametrize("begin", [0, BEGIN])
@pytest.mark.parametrize("named", [-1, 0, BEGIN])
def test_a_queue_without_messages_has_none_of_any_time(named: int, begin: int) -> None:
    """It never had any, or they have all expired."""
    assert searched(5, named, [], begin)[0] == begin


def test_where_the_queue_is_compacted_the_range_begins_after_the_last_older_message() -> None:
    entries = [each for each in plain() if each.offset not in (21, 22, 25)]
    for named in range(BEGIN, BEGIN + 9):
        assert searched(200, named, entries)[0] == 21
        assert searched(300, named, entries)[0] == 25


@pytest.mark.parametrize("named", [BEGIN - 5, BEGIN, BEGIN + 3, BEGIN + 8, BEGIN + 20])
@pytest.mark.parametrize(("time_ms", "first"), [(50, 20), (200, 21), (901, 28)])
def test_codes_without_a_status_do(named: int, time_ms: int, first: int) -> None:
    """As of a static topic: 21 before the queue, 19 after it."""

    def answer(sent: Frame) -> memoryview:
        if int(sent.fields["queueOffset"]) in range(BEGIN, BEGIN + 8):
            return pulled(sent, plain(), BEGIN)
        is_before = int(sent.fields["queueOffset"]) < BEGIN
        fields = {"minOffset": BEGIN, "maxOffset": BEGIN + 8}
        return response_to(sent, fields, code=21 if is_before else 19)

    found, _ = found_by(RocketmqSession("test"), time_ms, named, answer)
    assert (found.meaning, found.offset) == (ErrorMeaning.OK, first)


# --- no result yet ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "remark", "meaning"),
    [
        (2, "busy", ErrorMeaning.RETRY),
        (20, "MESSAGE_WAS_REMOVING", ErrorMeaning.RETRY),
        (19, "OFFSET_FOUND_NULL", ErrorMeaning.UNKNOWN),
        (16, "no right", ErrorMeaning.DENIED),
    ],
)
@pytest.mark.parametrize("failing", [0, 1])
def test_a_time_has_no_result_while_a_message_cannot_be_looked_at(
    code: int, remark: str, meaning: ErrorMeaning, failing: int
) -> None:
    """It may be older, or late enough as well."""
    replies = [lambda sent: pulled(sent, plain(), BEGIN)] * failing
    fields = {"minOffset": BEGIN, "maxOffset": 28, "nextBeginOffset": 28}

    def answer(sent: Frame) -> memoryview:
        if replies:
            return replies.pop()(sent)
        return response_to(sent, fields, code=code, remark=remark)

    found, _ = found_by(RocketmqSession("test"), 300, 25, answer)
    assert (found.meaning, found.offset) == (meaning, None)
    assert remark in found.code_name


@pytest.mark.parametrize("fields", [{"nextBeginOffset": 26}, {"nextBeginOffset": 25}])
def test_a_response_without_its_message_shows_nothing(fields: dict[str, int]) -> None:
    body = b"" if fields["nextBeginOffset"] == 26 else stored(b"v", 25, stored_ms=1)

    def answer(sent: Frame) -> memoryview:
        return response_to(sent, {**fields, "maxOffset": 28}, remark="FOUND", body=body)

    found, pulls = found_by(RocketmqSession("test"), 300, 25, answer)
    assert (found.meaning, found.offset, pulls) == (ErrorMeaning.RETRY, None, 1)
    assert "no message at offset 25" in found.code_name


def test_a_broker_whose_queue_does_not_end_is_not_asked_for_ever() -> None:
    def answer(sent: Frame) -> memoryview:
        at = int(sent.fields["queueOffset"])
        body = stored(b"v", at, stored_ms=1)
        next_offset = min(at + 1, (1 << 63) - 1)
        return response_to(sent, {"nextBeginOffset": next_offset}, remark="FOUND", body=body)

    found, pulls = found_by(RocketmqSession("test"), 300, 0, answer)
    assert (found.meaning, found.offset) == (ErrorMeaning.RETRY, None)
    assert pulls <= MAX_SEARCH_PULLS


# --- topics for batches --------------------------------------------------------------------


def test_a_batch_that_a_search_meets_shows_that_its_topic_is_made_for_batches() -> None:
    """Its messages are pulled whatever their tags."""
    session = RocketmqSession("test")
    found_by(session, 300, BEGIN, lambda sent: pulled(sent, in_batches(), BEGIN))
    (pull, *others) = frames_in(session.encode(m.PullSeries(QUEUE, 0, 9, 1 << 20, ("A",)))[1])
    assert {frame.fields["subscription"] for frame in (pull, *others)} == {"*"}


def test_a_busy_response_does_not_take_back_that_a_topic_is_made_for_batches() -> None:
    session = RocketmqSession("test")
    found_by(session, 300, BEGIN, lambda sent: pulled(sent, in_batches(), BEGIN))
    found, _ = found_by(session, 300, BEGIN, lambda sent: response_to(sent, code=2, remark="busy"))
    assert found.meaning is ErrorMeaning.RETRY
    (pull, *others) = frames_in(session.encode(m.PullSeries(QUEUE, 0, 9, 1 << 20, ("A",)))[1])
    assert {frame.fields["subscription"] for frame in (pull, *others)} == {"*"}
