"""A replica in the reader's own rack is read instead of its leader, and left at once if it
fails.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from rangeland.cluster_settings import ClusterSettings
from rangeland.fetch import fetch_thread
from rangeland.fetch.fetch_size import FetchLimits
from rangeland.fetch.read_settings import ReadSettings
from rangeland.fetch.slice_chunks import ReadChunk
from rangeland.fetch.slice_reading import read_slices
from rangeland.loss import Action
from rangeland.model import Counts, LogState
from rangeland.planning.policy import Policy
from rangeland.testing.consumer import Consumed, consume
from rangeland.testing.kafka import KafkaCluster
from rangeland.testing.processes import PATIENCE_S
from rangeland.testing.producer import create_topic, numbered_records, produce
from tests.brokers.reading import log_of, read, settings_of, spied_requests
from tests.brokers.surveys import slice_of

pytestmark = pytest.mark.brokers

RACKS = {
    "broker.rack": "rack-{node}",
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
}
COUNT = 20_000
SMALL = FetchLimits(no_progress_ms=20_000, fetch_bytes=32 << 10, request_bytes=64 << 10)


@dataclass(frozen=True)
class Racked:
    """A topic of one partition on three brokers: its log, a follower of it, and the judge's
    records."""

    cluster: KafkaCluster
    log: LogState
    follower: int
    judged: list[Consumed]

    def settings(self, rack: str) -> ClusterSettings:
        return settings_of(self.cluster.bootstrap, rack=rack)

    @property
    def follower_address(self) -> str:
        return self.cluster.address(self.follower)


@pytest.fixture(scope="module")
def racked() -> Iterator[Racked]:
    with KafkaCluster(brokers=3, heap_mb=160, properties=RACKS) as cluster:
        create_topic(cluster.bootstrap, "racked", replicas=3)
        produce(cluster.bootstrap, "racked", numbered_records(COUNT), batch_records=200)
        log = log_of(settings_of(cluster.bootstrap), "racked")
        by_id = dict(zip(log.leader.replica_ids, log.leader.replicas, strict=True))
        follower = max(number for number, at in by_id.items() if at != log.leader.address)
        yield Racked(cluster, log, follower, consume(cluster.bootstrap, "racked"))


def test_bytes_come_from_the_replica_in_the_reader_s_rack(
    racked: Racked, monkeypatch: pytest.MonkeyPatch
) -> None:
    with spied_requests(monkeypatch) as sent:
        found = read([slice_of(racked.log)], racked.settings(f"rack-{racked.follower}"), SMALL)
    assert found.rows == racked.judged
    assert {receipt.address for receipt in found.receipts} == {racked.follower_address}
    racks = {request.rack_id for request in sent if hasattr(request, "rack_id")}
    assert racks == {f"rack-{racked.follower}"}


@pytest.mark.parametrize("rack", ["", "nowhere"])
def test_without_a_replica_in_its_rack_a_reader_stays_with_the_leader(
    racked: Racked, rack: str
) -> None:
    found = read([slice_of(racked.log, 0, 5_000)], racked.settings(rack), SMALL)
    assert found.rows == racked.judged[:5_000]
    assert {receipt.address for receipt in found.receipts} == {str(racked.log.leader.address)}


def test_damage_on_a_replica_s_disk_is_read_at_the_leader(racked: Racked) -> None:
    """Whatever a policy says: the leader has these records whole."""
    flip(racked)
    try:
        for action in Action:
            settings = racked.settings(f"rack-{racked.follower}")
            policy = Policy(corrupt=action)
            found = read([slice_of(racked.log)], settings, SMALL, policy=policy)
            assert found.rows == racked.judged
            assert found.receipts[0].counts == Counts(landed=COUNT)
            assert found.receipts[0].held is None
    finally:
        flip(racked)


def flip(racked: Racked) -> None:
    """A byte in the middle of the replica's own copy, in place. Done twice, nothing has
    happened."""
    (segment,) = racked.cluster.directory.glob(f"data/kafka-{racked.follower}/racked-0/*.log")
    middle = segment.stat().st_size // 2
    with segment.open("r+b") as file:
        file.seek(middle)
        (byte,) = file.read(1)
        file.seek(middle)
        file.write(bytes([byte ^ 0x01]))


def test_a_replica_that_dies_is_left_for_the_leader(
    racked: Racked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch_thread, "PREFETCH_BYTES", 64 << 10)
    settings = racked.settings(f"rack-{racked.follower}")
    try:
        served, offsets = read_and_kill(racked, settings)
    finally:
        racked.cluster.restart(racked.follower)
        wait_for_the_replica(racked)
    assert offsets == list(range(COUNT))
    assert served == [racked.follower_address, str(racked.log.leader.address)]


def read_and_kill(racked: Racked, settings: ClusterSettings) -> tuple[list[str], list[int]]:
    """Who has served, in order, and the offsets; the replica is killed once it has served."""
    served: list[str] = []
    offsets: list[int] = []
    for chunk in read_slices([slice_of(racked.log)], ReadSettings(settings), SMALL):
        assert isinstance(chunk, ReadChunk)
        offsets += chunk.rows.column("offset").to_pylist()
        if chunk.address not in served:
            served.append(chunk.address)
            if chunk.address == racked.follower_address:
                racked.cluster.kill(racked.follower)
    return served, offsets


def wait_for_the_replica(racked: Racked) -> None:
    """Until its leader sends readers to it again: it is in sync."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        found = read([slice_of(racked.log, 0, 500)], racked.settings(f"rack-{racked.follower}"))
        if found.receipts[0].address == racked.follower_address:
            return
        time.sleep(0.2)
    pytest.fail("the replica did not come back")
