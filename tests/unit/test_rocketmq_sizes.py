"""Estimated sizes of queues, and the replica that brokers suggest, from their responses."""

from __future__ import annotations

import pytest

from rangeland.dialects.fetch_values import PartitionFetch
from rangeland.dialects.rocketmq import messages as m
from rangeland.dialects.rocketmq.queue_sizes import FEW, SAMPLE, read_sizes, sizes_requests
from rangeland.dialects.rocketmq.requests import read_records
from rangeland.model import Isolation, Partition
from tests.rocketmq_messages import messages

Q0, Q1, Q2 = (Partition("t", number, "broker-a") for number in range(3))


def response(
    request: m.RemotingRequest, size: int, end: int, start: int = 0, code: int = 0
) -> m.RemotingResponse:
    """``SAMPLE`` messages with bodies of ``size``."""
    at = int(request.fields["queueOffset"])
    body = messages([bytes(size)] * SAMPLE, at) if code == 0 else b""
    fields = {"nextBeginOffset": at + SAMPLE, "minOffset": start, "maxOffset": end}
    return m.RemotingResponse(request, code, "", {k: str(v) for k, v in fields.items()}, body)


def test_queues_with_much_to_read_are_looked_at_in_their_middle_and_at_their_end() -> None:
    asked = sizes_requests({Q0: (1_000, 2_000), Q1: (0, FEW - 1), Q2: (5, 5)})
    found = [(q.message.about, q.message.fields["queueOffset"]) for q in asked]
    assert found == [(Q0, "1500"), (Q0, str(2_000 - SAMPLE))]
    assert {q.message.fields["maxMsgNums"] for q in asked} == {str(SAMPLE)}


def test_a_queue_is_as_large_as_if_all_its_messages_were_like_those_that_came() -> None:
    middle, end = sizes_requests({Q0: (1_000, 2_000)})
    small, large = (len(messages([bytes(size)])) for size in (10, 90))
    responses = [
        response(middle.message, 10, 2_000, 1_000),
        response(end.message, 90, 2_000, 1_000),
    ]
    assert read_sizes(responses) == {Q0: 1_000 * (small + large) // 2}


def test_a_queue_that_says_nothing_has_no_size() -> None:
    (middle, end) = sizes_requests({Q0: (0, 1_000)})
    responses = [response(middle.message, 10, 1_000, code=2), response(end.message, 10, 1_000)]
    assert read_sizes(responses) == {Q0: 1_000 * len(messages([bytes(10)]))}
    assert read_sizes(responses[:1]) == {}


@pytest.mark.parametrize("named", [None, 0, 1])
def test_the_last_response_says_who_should_be_read(named: int | None) -> None:
    requests = [m.Pull(Q0, offset) for offset in (0, 32)]
    responses = []
    for request, who in zip(requests, (0, named), strict=True):
        at = int(request.fields["queueOffset"])
        fields = {"nextBeginOffset": str(at + 32), "maxOffset": "99"}
        fields |= {} if who is None else {"suggestWhichBrokerId": str(who)}
        responses.append(m.RemotingResponse(request, 0, "FOUND", fields, messages([b"v"] * 32, at)))
    asked = [PartitionFetch(Q0, None, None, 0, 1 << 20, 99)]
    series = m.SeriesResponse(m.PullSeries(Q0, 0, 99, 1 << 20), tuple(responses))
    (part,) = read_records([series], asked, Isolation.READ_COMMITTED).partitions
    assert part.preferred == (0 if named is None else named)


def test_an_empty_response_says_it_too() -> None:
    request = m.Pull(Q0, 5)
    fields = {"nextBeginOffset": "5", "maxOffset": "5", "suggestWhichBrokerId": "1"}
    empty = m.RemotingResponse(request, 19, "OFFSET_OVERFLOW_ONE", fields, b"")
    asked = [PartitionFetch(Q0, None, None, 5, 1 << 20, 99)]
    series = m.SeriesResponse(m.PullSeries(Q0, 5, 99, 1 << 20), (empty,))
    (part,) = read_records([series], asked, Isolation.READ_COMMITTED).partitions
    assert (part.preferred, part.readable_end, len(part.records)) == (1, 5, 0)
