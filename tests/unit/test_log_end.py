"""Where the epoch of a leader ends in its log: an answer that did not come is no answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest

from rangeland.cluster_settings import ClusterSettings
from rangeland.connection.failures import ConnectionClosed, ConnectionLost, ResponseTimedOut
from rangeland.connection.pool import ConnectionPool
from rangeland.dialects.dialect import load_dialect
from rangeland.dialects.kafka import messages as m
from rangeland.dialects.protocol_session import BrokerRequest, NoCommonVersion
from rangeland.errors import RangelandError, Unreachable
from rangeland.fetch.fetch_size import FetchLimits
from rangeland.fetch.fetch_steps import AskLogRange, FindLeaders, SendFetch, WaitUntil
from rangeland.fetch.fetch_thread import FetchThread
from rangeland.fetch.leader_judgement import FoundLeaders
from rangeland.fetch.leader_lookup import AskedBroker
from rangeland.fetch.read_settings import ReadSettings
from rangeland.fetch.slice_state import SliceRequest
from rangeland.model import Address, Leader, Partition, Slice
from tests.fakes.fetching import take_step

B1 = Address("b1", 1)
P0 = Partition("t", 0)
OK, MOVED, DENIED, UNKNOWN_EPOCH = 0, 6, 31, 75
LATEST = -1
READABLE_END = 7
NO_ANSWERS = [
    MOVED,
    UNKNOWN_EPOCH,
    ResponseTimedOut("could not receive from b1:1"),
    ConnectionClosed("b1:1 closed the connection"),
]


class Asked:
    """Connections to a leader whose log begins at 0, is readable up to 7, and answers the question
    where an epoch ends with this error code and offset, or in this way not at all."""

    def __init__(self, code: int | RangelandError, end: int = -1) -> None:
        self.dialect = load_dialect("kafka")
        self.code, self.end = code, end

    def call_all(self, address: Address, questions: Sequence[BrokerRequest]) -> list[Any]:
        return [self._answer(each.message) for each in questions]

    def _answer(self, request: Any) -> Any:
        if not isinstance(request, m.OffsetForLeaderEpochRequest):
            asked = request.topics[0].partitions[0].timestamp
            end = READABLE_END if asked == LATEST else 0
            part = m.ListOffsetsPartitionResponse(partition_index=0, error_code=OK, offset=end)
            topic = m.ListOffsetsTopicResponse(name="t", partitions=(part,))
            return m.ListOffsetsResponse(topics=(topic,))
        if isinstance(self.code, RangelandError):
            raise self.code
        part = m.EpochEnd(error_code=self.code, partition=0, leader_epoch=3, end_offset=self.end)
        return m.OffsetForLeaderEpochResponse(
            topics=(m.EpochEndTopic(topic="t", partitions=(part,)),)
        )


def epoch_end(brokers: Asked, epoch: int | None = 3) -> int | None:
    request = SliceRequest(
        P0, None, epoch, READABLE_END, 1 << 20, index=0, until_offset=READABLE_END + 10
    )
    return AskedBroker(cast(ConnectionPool, brokers), B1, request).epoch_end(Leader(B1, 3))


def test_a_leader_is_asked_for_the_end_of_its_epoch() -> None:
    assert epoch_end(Asked(OK, 9)) == 9


@pytest.mark.parametrize("answer", [OK, DENIED, NoCommonVersion("it is too old")])
def test_a_broker_may_be_unable_to_report_the_end_of_its_epoch(
    answer: int | RangelandError,
) -> None:
    assert epoch_end(Asked(answer)) is None
    assert epoch_end(Asked(OK, 9), epoch=None) is None


def test_a_dialect_without_epochs_has_no_end_of_one() -> None:
    brokers = Asked(OK, 9)
    brokers.dialect = load_dialect("jafka")
    assert epoch_end(brokers) is None


@pytest.mark.parametrize("answer", NO_ANSWERS)
def test_an_end_that_was_not_answered_is_not_known(answer: int | RangelandError) -> None:
    with pytest.raises(ConnectionLost):
        epoch_end(Asked(answer))


@pytest.mark.parametrize("answer", NO_ANSWERS)
def test_a_slice_that_waits_at_an_end_that_was_not_answered_is_unreachable_and_not_lost(
    answer: int | RangelandError,
) -> None:
    settings, limits = ReadSettings(ClusterSettings("kafka", (B1,))), FetchLimits()
    brokers = cast(ConnectionPool, Asked(answer))
    fetcher = FetchThread([Slice(0, P0, READABLE_END, 12)], settings, limits, brokers=brokers)
    with pytest.raises(Unreachable):
        carry_out(fetcher)
    (state,) = fetcher._loop.states.values()
    assert (state.next_offset, fetcher._loop.take_losses()) == (READABLE_END, [])


def carry_out(fetcher: FetchThread) -> None:
    """The steps of a slice of which the leader has no records."""
    loop, now_ms = fetcher._loop, 0
    while True:
        match take_step(loop, now_ms):
            case WaitUntil(at_ms):
                now_ms = at_ms
            case FindLeaders():
                loop.on_leaders(FoundLeaders({P0: Leader(B1, 3, copies=1)}))
            case SendFetch(requests=(request,)):
                loop.on_empty(request, None, throttled=False)
            case AskLogRange(leader, request):
                fetcher._measure(leader, request)
