"""Another vendor's brokers under faults: leaders that move constantly, fetches that fail."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rangeland.fetch.fetch_size import FetchLimits
from rangeland.testing.producer import Record, produce
from tests.brokers.kfake.cluster import FakeCluster
from tests.brokers.reading import look, read, settings_of, slices_of

pytestmark = pytest.mark.brokers

PARTITIONS, RECORDS = 6, 12_000
SMALL = FetchLimits(
    no_progress_ms=60_000, fetch_bytes=2 << 10, smallest_fetch_bytes=1 << 10, request_bytes=8 << 10
)
"""So that there are many fetches of few records: a batch is sent whole, so those are small, too."""


@pytest.fixture(scope="module")
def fake() -> Iterator[FakeCluster]:
    with FakeCluster() as cluster:
        yield cluster


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_every_record_comes_once_while_leaders_move_and_a_third_of_the_fetches_fail(
    fake: FakeCluster, seed: int
) -> None:
    topic = f"troubled-{seed}"
    fake.create_topic(topic, PARTITIONS)
    produce(
        fake.bootstrap,
        topic,
        [Record(b"value-%06d" % n, partition=n % PARTITIONS) for n in range(RECORDS)],
        batch_records=40,
    )
    settings = settings_of(fake.bootstrap)
    fake.trouble(seed)
    found = read(slices_of(look(settings, topics=(topic,)), 32 << 10), settings, SMALL)
    seen = fake.calm()
    assert [row.value for row in sorted(found.rows, key=lambda r: r.value or b"")] == [
        b"value-%06d" % n for n in range(RECORDS)
    ]
    assert found.counts.total == found.counts.landed == RECORDS
    assert sum(seen["failed"].values()) > 20, seen
    assert {"cut", "-1"} <= seen["failed"].keys(), seen
