"""The leader is killed while it is read, once per generation of brokers.

Each partition is on two brokers and every record was acknowledged by both, so the reading
must end with each record once. The one that was killed comes back.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from rangeland.fetch.fetch_size import FetchLimits
from rangeland.fetch.read_settings import ReadSettings
from rangeland.fetch.receipt_builder import ReceiptBuilder
from rangeland.fetch.slice_reading import read_slices
from rangeland.model import Counts
from rangeland.testing.kafka import KafkaCluster, KafkaZooKeeperCluster
from rangeland.testing.producer import Record, create_topic, leader_of, produce
from tests.brokers.reading import log_of, settings_of
from tests.brokers.surveys import slice_of

pytestmark = [pytest.mark.brokers, pytest.mark.slow]

VERSIONS = ("0.8.2.2", "0.10.2.2", "0.11.0.3", "3.9.1", "4.1.0", "4.4.0")
COUNT = 24_000
SMALL = FetchLimits(no_progress_ms=60_000, fetch_bytes=64 << 10, request_bytes=64 << 10)
"""So that the reading takes many requests, of which most come after the kill."""
TOPIC = (
    "t" * 150
)  # long, for what the oldest brokers say of a short one is too short for the client


@pytest.fixture(params=VERSIONS)
def cluster(request: pytest.FixtureRequest) -> Iterator[KafkaCluster | KafkaZooKeeperCluster]:
    if request.param.startswith("0."):
        with KafkaZooKeeperCluster(request.param, brokers=2) as old:
            old.create_topic(TOPIC, replicas=2)
            yield old
    else:
        # Three, since two without one of them elect nobody.
        with KafkaCluster(request.param, brokers=3) as new:
            create_topic(new.bootstrap, TOPIC, replicas=2)
            yield new


def test_the_reading_goes_on_at_the_next_leader(
    cluster: KafkaCluster | KafkaZooKeeperCluster,
) -> None:
    noise = random.Random(1)  # gzip is to leave enough for many requests
    records = [Record(b"%d " % n + noise.randbytes(1000)) for n in range(COUNT)]
    produce(
        cluster.bootstrap,
        TOPIC,
        records,
        codec="gzip",
        batch_records=20,
        version=cluster.version,
    )
    settings = settings_of(cluster.bootstrap, request_ms=5_000, no_progress_ms=60_000)
    slice_ = slice_of(log_of(settings, TOPIC))
    assert slice_.until_offset == COUNT
    killed = leader_of(cluster.bootstrap, TOPIC)
    tally = ReceiptBuilder([slice_])
    values: list[bytes] = []
    leaders: list[str] = []
    for chunk in read_slices([slice_], ReadSettings(settings), SMALL):
        tally.add(chunk)
        if chunk.rows is not None:
            values += chunk.rows.column("value").to_pylist()
        if not leaders:
            cluster.kill(killed)
        leaders.append(chunk.address)
    assert values == [record.value for record in records]
    (receipt,) = tally.receipts()
    assert receipt.counts == Counts(landed=COUNT)
    assert leaders[0] == cluster.address(killed)
    assert leaders[-1] != leaders[0], "it was read to its end before the leader was gone"

    cluster.restart(killed)
    assert sorted(cluster.running) == cluster.ids
    assert log_of(settings, TOPIC).end_offset == COUNT
