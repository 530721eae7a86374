"""A broker whose response does not come in time is asked for less; one that is gone is not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest

from rangeland.cluster_settings import ClusterSettings
from rangeland.connection.failures import ConnectionClosed, ConnectionLost, ResponseTimedOut
from rangeland.connection.pool import ConnectionPool
from rangeland.dialects.dialect import load_dialect
from rangeland.dialects.protocol_session import BrokerRequest
from rangeland.fetch.fetch_size import FetchLimits
from rangeland.fetch.fetch_steps import SendFetch
from rangeland.fetch.fetch_thread import FetchThread
from rangeland.fetch.read_settings import ReadSettings
from rangeland.model import Address, Partition, Slice

B1 = Address("b1", 1)


class Failing:
    """Connections to brokers that fail in one way."""

    def __init__(self, error: ConnectionLost) -> None:
        self.dialect = load_dialect("kafka")
        self.error = error

    def call_all(self, address: Address, questions: Sequence[BrokerRequest]) -> list[Any]:
        raise self.error

    def receive_or_call_again(
        self, address: Address, questions: Sequence[BrokerRequest]
    ) -> list[Any]:
        raise self.error

    def drop(self, address: Address) -> None:
        """There is no connection."""


@pytest.mark.parametrize("is_sent", [False, True])
@pytest.mark.parametrize(("kind", "parts"), [(ResponseTimedOut, 2), (ConnectionClosed, 1)])
def test_half_is_requested_after_a_response_that_did_not_come_in_time(
    kind: type[ConnectionLost], parts: int, is_sent: bool
) -> None:
    slice_ = Slice(0, Partition("t", 0), 0, 12, leader=B1)
    brokers = cast(ConnectionPool, Failing(kind("could not receive from b1:1")))
    settings = ReadSettings(ClusterSettings("kafka", (B1,)))
    fetcher = FetchThread([slice_], settings, FetchLimits(), brokers=brokers)
    ask = fetcher._loop.next(0)
    assert isinstance(ask, SendFetch)
    assert fetcher._fetch(ask, is_sent=is_sent) is None
    assert fetcher._loop.states[0].size.bytes == ask.requests[0].max_bytes // parts
