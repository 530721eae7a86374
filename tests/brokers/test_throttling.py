"""A quota of a real broker, and the job's own byte rate, are observed."""

from __future__ import annotations

import time
from struct import pack, unpack
from typing import Any

import pytest

from rangeland.cluster_settings import ClusterSettings
from rangeland.connection.broker_connection import BrokerConnection
from rangeland.connection.pool import ConnectionPool
from rangeland.dialects.protocol_session import BrokerRequest
from rangeland.fetch.fetch_loop import FetchLoop
from rangeland.fetch.fetch_size import FetchLimits
from rangeland.fetch.fetch_thread import FetchThread
from rangeland.fetch.read_settings import ReadSettings
from rangeland.model import Address, Counts
from rangeland.testing.kafka import KafkaCluster
from rangeland.testing.producer import Record, create_topic, produce
from rangeland.wire.declarations import Array, Bool, Int16, Int32, Int64, String, message, struct
from tests.brokers.reading import log_of, read, settings_of
from tests.brokers.surveys import slice_of

pytestmark = pytest.mark.brokers

SMALL = FetchLimits(no_progress_ms=60_000, fetch_bytes=64 << 10, request_bytes=64 << 10)


def filled(kafka: KafkaCluster, topic: str, kilobytes: int) -> None:
    create_topic(kafka.bootstrap, topic)
    produce(kafka.bootstrap, topic, [Record(b"x" * 1000)] * kilobytes, batch_records=20)


# --- the broker's quota ---------------------------------------------------------------------


@struct
class QuotaEntity:
    entity_type: String
    entity_name: String | None


@struct
class QuotaResponse:
    error_code: Int16
    error_message: String | None
    entity: Array[QuotaEntity]


@struct
class AlterClientQuotasResponse:
    throttle_time_ms: Int32
    entries: Array[QuotaResponse]


@struct
class QuotaOp:
    """``value`` is a double; its bits, as a whole number."""

    key: String
    value: Int64
    remove: Bool


@struct
class QuotaEntry:
    entity: Array[QuotaEntity]
    ops: Array[QuotaOp]


@message(key=49, versions=(0, 0), flexible_from=1, response=AlterClientQuotasResponse)
class AlterClientQuotasRequest:
    entries: Array[QuotaEntry]
    validate_only: Bool


def set_quota(settings: ClusterSettings, client: str, rate: float) -> None:
    entity = QuotaEntity(entity_type="client-id", entity_name=client)
    (bits,) = unpack(">q", pack(">d", rate))
    op = QuotaOp(key="consumer_byte_rate", value=bits, remove=False)
    request = AlterClientQuotasRequest(
        entries=(QuotaEntry(entity=(entity,), ops=(op,)),), validate_only=False
    )
    with ConnectionPool(settings) as brokers:
        response = brokers.call(settings.seeds[0], BrokerRequest(request))
    assert [entry.error_code for entry in response.entries] == [0]


@pytest.mark.slow
def test_a_broker_that_throttles_is_left_alone_for_as_long_as_it_says(
    kafka: KafkaCluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(kafka, topic, 1_300)
    settings = settings_of(kafka.bootstrap, client_id=f"client-{topic}")
    set_quota(settings, settings.client_id, 100_000)
    log = log_of(settings, topic)
    events: list[tuple[float, int | None]] = []
    on_response, send = FetchLoop.on_response, BrokerConnection.send

    def spy_on_response(
        self: FetchLoop, at: Address, size: int, throttle_ms: int, now: int
    ) -> None:
        events.append((time.monotonic(), throttle_ms))
        on_response(self, at, size, throttle_ms, now)

    def spy_on_send(self: BrokerConnection, question: Any) -> None:
        events.append((time.monotonic(), None))
        send(self, question)

    monkeypatch.setattr(FetchLoop, "on_response", spy_on_response)
    monkeypatch.setattr(BrokerConnection, "send", spy_on_send)
    found = read([slice_of(log)], settings, SMALL)
    assert found.counts == Counts(landed=1_300)
    throttled = [(at, ms) for at, ms in events if ms]
    assert throttled, "the broker has not throttled"
    for at, ms in throttled:
        following = [sent for sent, told in events if told is None and sent > at]
        assert not following or following[0] - at >= ms / 1000 - 0.005


# --- the job's own rate ---------------------------------------------------------------------


def test_a_rate_makes_reading_as_slow_as_it_says(kafka: KafkaCluster, topic: str) -> None:
    filled(kafka, topic, 3_000)
    log = log_of(settings_of(kafka.bootstrap), topic)
    assert log.leader.address is not None
    rates = ((log.leader.address, 1_500_000),)
    began = time.monotonic()
    found = read([slice_of(log)], settings_of(kafka.bootstrap), rates=rates)
    assert found.counts == Counts(landed=3_000)
    # Two seconds' worth, of which the last response need not be waited for. A bound from below
    # holds on a busy machine, too.
    assert time.monotonic() - began > 0.9


def test_a_fetcher_asks_for_less_at_a_time_when_it_is_slowed() -> None:
    address = Address("h", 1)
    settings = ReadSettings(ClusterSettings("kafka", (address,)), rates=((address, 100_000),))
    fetcher = FetchThread([], settings, FetchLimits())
    assert fetcher._options.max_bytes == 100_000
