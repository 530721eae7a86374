"""Topics that brokers compact: read over the gaps, wherever a pull or a slice begins."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from rangeland.dialects.rocketmq import messages as m
from rangeland.dialects.rocketmq.missing_messages import found_at
from rangeland.model import Counts, Partition
from rangeland.testing.processes import PATIENCE_S
from rangeland.testing.rocketmq import RocketmqCluster
from rangeland.testing.rocketmq_clients import RocketmqClient
from tests.brokers.rocketmq import log_of, read, settings_of
from tests.brokers.surveys import slice_of

pytestmark = pytest.mark.brokers

MESSAGES, EACH = 1_000, 10
QUICK_COMPACTION = {
    "compactionMappedFileSize": 16 << 10,
    "compactionCqMappedFileSize": 46 * 100,
    "compactionScheduleInternal": 500,
    "maxOffsetMapSize": 1 << 20,
}
"""What is written to the last file is not compacted."""


@pytest.fixture(scope="module")
def compacting() -> Iterator[RocketmqCluster]:
    with RocketmqCluster(properties=QUICK_COMPACTION) as cluster:
        yield cluster


@pytest.mark.slow
def test_a_topic_that_its_broker_compacts_is_read_over_all_gaps(
    compacting: RocketmqCluster, topic: str
) -> None:
    """Every tenth message has a key of its own, and all others have the same."""
    queue = Partition(topic, 0, "broker-a")
    made = m.create_topic(topic, 1)
    attributes = {"attributes": "+cleanup.policy=COMPACTION"}
    with RocketmqClient(compacting.address()) as client:
        client.ask(m.RemotingRequest(made.code, {**made.fields, **attributes}))
        for offset in range(MESSAGES):
            key = f"own-{offset}" if offset % EACH == 0 else "same"
            client.ask(m.send(queue, bytes(100), {"KEYS": key, "TAGS": "A"}, 1))
        deadline = time.monotonic() + PATIENCE_S
        while found_at(client.ask(m.Pull(queue, 1))) != EACH and time.monotonic() < deadline:
            time.sleep(0.2)
    # Once name servers know this one, they know the other.
    compacting.create_topic(f"{topic}-later", 1)
    settings = settings_of(compacting)
    log = log_of(settings, topic)
    assert (log.start_offset, log.end_offset) == (0, MESSAGES)
    whole: list[int] = []
    before = [-1]
    while whole != before:  # the broker goes on for a while
        before = whole
        time.sleep(3)
        whole = [row["offset"] for row in read([slice_of(log)], settings).rows]
    assert set(range(0, MESSAGES, EACH)) < set(whole)
    assert len(whole) < MESSAGES / 2
    for first, until in ((0, MESSAGES), (1, MESSAGES), (1, 5), (3, 11), (401, 700)):
        there = [offset for offset in whole if first <= offset < until]
        gone = until - first - len(there)
        for tags, counts in (
            ((), Counts(landed=len(there), compacted=gone)),
            (("A",), Counts(landed=len(there), filtered=gone)),
        ):
            found = read([slice_of(log, first, until)], settings_of(compacting), tags=tags)
            assert [row["offset"] for row in found.rows] == there
            assert found.counts == counts
