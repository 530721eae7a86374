"""A master that suggests its slave for reading, and a slave that lags behind its master."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

import pytest

from rangeland.errors import Unreachable
from rangeland.fetch.fetch_size import FetchLimits
from rangeland.fetch.read_settings import ReadSettings
from rangeland.fetch.slice_chunks import ReadChunk
from rangeland.fetch.slice_reading import read_slices
from rangeland.model import Counts
from rangeland.testing.rocketmq import RocketmqCluster
from rangeland.testing.rocketmq_clients import produce
from tests.brokers.rocketmq import log_of, read, settings_of, wait_for_slave
from tests.brokers.surveys import slice_of
from tests.record_values import values_of

pytestmark = pytest.mark.brokers


@pytest.fixture(scope="module")
def pair() -> Iterator[RocketmqCluster]:
    """A master that takes all its messages for too old to give them from memory, and a slave."""
    properties = {"accessMessageInMemoryMaxRatio": 0}
    with RocketmqCluster(slaves=True, properties=properties) as cluster:
        yield cluster


@pytest.mark.slow
def test_what_the_master_has_on_disk_only_is_read_from_the_slave_that_it_suggests(
    pair: RocketmqCluster, topic: str
) -> None:
    pair.create_topic(topic, 1)
    values = values_of("v", 2_000)
    produce(pair.address(), topic, values)
    wait_for_slave(pair, topic, len(values))
    settings = settings_of(pair)
    log = log_of(settings, topic)
    assert str(log.leader.address) == pair.address()
    patience = FetchLimits(fetch_bytes=20_000, smallest_fetch_bytes=20_000)
    chunks = list(read_slices([slice_of(log)], ReadSettings(settings), patience))
    assert [address for address, _ in groupby(chunk.address for chunk in chunks)] == [
        pair.address(),
        pair.address("broker-a-slave"),
    ]
    batches = [chunk.rows for chunk in chunks if isinstance(chunk, ReadChunk)]
    rows = [value for batch in batches for value in batch.column("value").to_pylist()]
    assert rows == values
    assert sum((chunk.counts for chunk in chunks), Counts()) == Counts(landed=len(values))


@pytest.mark.slow
def test_what_a_slave_lacks_is_read_from_the_master(pair: RocketmqCluster, topic: str) -> None:
    """It is suggested all the same."""
    pair.create_topic(topic, 1)
    first, late = values_of("first", 500), values_of("late", 500)
    produce(pair.address(), topic, first)
    wait_for_slave(pair, topic, len(first))
    pair.pause("broker-a-slave")
    try:
        produce(pair.address(), topic, late)
        settings = settings_of(pair, request_ms=1_000)
        assert read([slice_of(log_of(settings, topic))], settings).values == first + late
    finally:
        pair.resume("broker-a-slave")


@pytest.mark.slow
@pytest.mark.chaos
def test_a_slave_that_is_behind_while_the_master_is_gone_is_waited_for_not_believed(
    pair: RocketmqCluster, topic: str
) -> None:
    pair.create_topic(topic, 1)
    first, late = values_of("first", 300), values_of("late", 300)
    produce(pair.address(), topic, first)
    wait_for_slave(pair, topic, len(first))
    pair.kill("broker-a-slave")
    produce(pair.address(), topic, late)
    settings = settings_of(pair, no_progress_ms=3_000)
    log = log_of(settings, topic)
    pair.kill()
    pair.restart("broker-a-slave")
    try:
        alone = log_of(settings, topic)
        assert alone.leader.is_replica
        assert (str(alone.leader.address), alone.end_offset) == (
            pair.address("broker-a-slave"),
            len(first),
        )
        for start in (0, 300, 450):  # before, at and behind where the slave's queue ends
            with pytest.raises(Unreachable, match="got no further"):
                read([slice_of(log, start)], settings)
    finally:
        pair.restart()
    wait_for_slave(pair, topic, 600)
    assert read([slice_of(log)], settings).values == first + late
