"""RocketMQ brokers that go away while they are read, and logs that lose their beginning."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from rangeland.dialects.rocketmq import messages as m
from rangeland.errors import RangeLost, Unreachable
from rangeland.fetch import fetch_thread, slice_reading
from rangeland.fetch.fetch_size import FetchLimits
from rangeland.fetch.read_settings import ReadSettings
from rangeland.fetch.receipt_builder import ReceiptBuilder
from rangeland.fetch.slice_chunks import ReadChunk
from rangeland.loss import Action
from rangeland.model import Counts, Partition
from rangeland.planning.policy import Policy
from rangeland.testing.rocketmq import RocketmqCluster
from rangeland.testing.rocketmq_clients import RocketmqClient, produce
from tests.brokers.rocketmq import log_of, read, settings_of, wait_for_slave
from tests.brokers.surveys import look, slice_of, slices_of
from tests.record_values import values_of

pytestmark = [pytest.mark.brokers, pytest.mark.chaos, pytest.mark.slow]


@pytest.fixture(scope="module")
def pair() -> Iterator[RocketmqCluster]:
    """A master with its slave and two name servers, to be harmed and mended."""
    with RocketmqCluster(slaves=True, name_servers=2) as cluster:
        yield cluster


def test_a_slave_is_read_while_the_master_is_gone_and_the_master_again_after_it(
    pair: RocketmqCluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair.create_topic(topic, 1)
    values = values_of("v", 4_000)
    produce(pair.address(), topic, values)
    wait_for_slave(pair, topic, len(values))
    settings = settings_of(pair, no_progress_ms=30_000, survey_ms=15_000)
    log = log_of(settings, topic)
    assert str(log.leader.address) == pair.address()
    both = [pair.address(), pair.address("broker-a-slave")]
    assert [str(a) for a in log.leader.replicas] == both
    assert log.leader.replica_ids == (0, 1)

    # The master goes away in the middle of a reading that was planned with it.
    monkeypatch.setattr(fetch_thread, "PREFETCH_BYTES", 1)
    patience = FetchLimits(
        fetch_bytes=20_000, smallest_fetch_bytes=20_000, no_progress_ms=30_000, backoff_ms=50
    )
    tally, seen = ReceiptBuilder([slice_of(log)]), []
    for chunk in slice_reading.read_slices([slice_of(log)], ReadSettings(settings), patience):
        tally.add(chunk)
        assert isinstance(chunk, ReadChunk)
        seen += chunk.rows.column("value").to_pylist()
        if pair.process().running:
            assert chunk.address == pair.address()
            pair.kill()
    assert seen == values
    (receipt,) = tally.receipts()
    assert receipt.counts == Counts(landed=len(values))
    assert receipt.address == pair.address("broker-a-slave")
    time.sleep(0.2)
    assert pair.running == ["namesrv-1", "namesrv-2", "broker-a-slave"]
    alone = log_of(settings, topic)
    assert str(alone.leader.address) == pair.address("broker-a-slave")
    assert (alone.start_offset, alone.end_offset) == (0, len(values))
    again = read([slice_of(log)], settings)
    assert again.values == values
    assert again.receipts[0].address == pair.address("broker-a-slave")

    pair.restart()
    back = log_of(settings, topic)
    assert str(back.leader.address) == pair.address()
    assert (back.start_offset, back.end_offset) == (0, len(values))
    assert read([slice_of(back)], settings).receipts[0].address == pair.address()


def test_name_servers_are_asked_in_turn(pair: RocketmqCluster, topic: str) -> None:
    pair.create_topic(topic, 1)
    produce(pair.address(), topic, [b"v"])
    settings = settings_of(pair)
    pair.kill("namesrv-1")
    try:
        assert read(slices_of(look(settings, topics=(topic,))), settings).values == [b"v"]
        only_first = settings_of(pair, seeds=settings.seeds[:1], survey_ms=500)
        with pytest.raises(Unreachable, match=pair.servers[0]):
            look(only_first, topics=(topic,))
    finally:
        pair.restart("namesrv-1", wait=False)


def test_a_silent_broker_is_named(pair: RocketmqCluster, topic: str) -> None:
    pair.create_topic(topic, 1)
    produce(pair.address(), topic, [b"v"])
    settings = settings_of(pair, request_ms=500, survey_ms=1_000)
    pair.pause()
    try:
        with pytest.raises(Unreachable, match=pair.address()):
            look(settings, topics=(topic,))
    finally:
        pair.resume()


@pytest.mark.slow
def test_messages_that_are_deleted_are_called_expired(topic: str) -> None:
    with RocketmqCluster() as cluster:
        cluster.create_topic(topic, 1)
        values = [bytes([i % 251]) * 100_000 for i in range(120)]
        produce(cluster.address(), topic, values)
        settings = settings_of(cluster, survey_ms=20_000)
        before = log_of(settings, topic)
        assert (before.start_offset, before.end_offset) == (0, 120)
        cluster.stop()
        oldest = min((cluster.store() / "commitlog").iterdir())
        oldest.unlink()
        cluster.restart()
        after = log_of(settings, topic)
        assert 0 < after.start_offset < after.end_offset == 120
        with pytest.raises(RangeLost, match="expired") as caught:
            read([slice_of(before)], settings)
        assert str(after.start_offset) in str(caught.value)
        skipping = Policy(expired=Action.SKIP)
        found = read([slice_of(before)], settings_of(cluster), policy=skipping)
        assert found.values == values[after.start_offset :]
        assert found.counts.lost == after.start_offset
        assert found.receipts[0].losses[0].kind == "expired"


@pytest.mark.slow
def test_a_broker_that_gives_little_at_a_time_is_read_all_the_same(topic: str) -> None:
    """8 messages a response: what it takes to be on disk, and suggests to have from a slave. Nor
    does it make groups."""
    properties = {"accessMessageInMemoryMaxRatio": 0, "autoCreateSubscriptionGroup": "false"}
    with RocketmqCluster(properties=properties) as cluster:
        cluster.create_topic(topic, 1)
        values = values_of("v", 3_000)
        produce(cluster.address(), topic, values)
        settings = settings_of(cluster)
        with RocketmqClient(cluster.address()) as client:
            response = client.ask(m.Pull(Partition(topic, 0, "broker-a"), 0))
            assert response.fields["nextBeginOffset"] == "8"
        assert read([slice_of(log_of(settings, topic))], settings).values == values
