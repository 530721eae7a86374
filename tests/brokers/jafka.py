"""Reads topics of Jafka brokers with the library's own fetch package: survey, slices, receipts.

Rows become tuples of (broker, partition, offset, position, value), sorted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rangeland.cluster_settings import ClusterSettings
from rangeland.fetch.fetch_size import FetchLimits
from rangeland.fetch.read_settings import ReadSettings
from rangeland.fetch.receipt_builder import ReceiptBuilder
from rangeland.fetch.slice_chunks import ReadChunk
from rangeland.fetch.slice_reading import read_slices
from rangeland.job.value_parsers import parse_named_broker
from rangeland.model import Counts, LogState, Partition, Slice
from rangeland.planning.slice_receipt import Receipt
from rangeland.testing.jafka import JafkaCluster
from tests.brokers.surveys import look

Row = tuple[str, int, int, int, bytes]


def settings_of(cluster: JafkaCluster, **changed: Any) -> ClusterSettings:
    """Settings with which a mistake shows within seconds."""
    named_brokers = tuple(parse_named_broker(server) for server in cluster.servers)
    base = ClusterSettings(
        "jafka",
        tuple(address for _, address in named_brokers),
        named_brokers=named_brokers,
        connect_ms=2_000,
        request_ms=10_000,
        survey_ms=4_000,
        no_progress_ms=4_000,
    )
    return replace(base, **changed)


def log_of(settings: ClusterSettings, topic: str, number: int = 0, broker: str = "1") -> LogState:
    return look(settings, topics=(topic,)).logs[Partition(topic, number, broker)]


@dataclass(frozen=True)
class Read:
    """What came of a reading."""

    rows: list[Row]
    receipts: tuple[Receipt, ...]

    @property
    def values(self) -> list[bytes]:
        return [row[-1] for row in self.rows]

    @property
    def counts(self) -> Counts:
        return Counts.sum(receipt.counts for receipt in self.receipts)


def read(
    slices: Sequence[Slice],
    settings: ClusterSettings,
    patience: FetchLimits | None = None,
    **chosen: Any,
) -> Read:
    """``chosen``: what the task's settings have beside the cluster."""
    tally = ReceiptBuilder(slices)
    rows: list[Row] = []
    for chunk in read_slices(slices, ReadSettings(settings, **chosen), patience):
        tally.add(chunk)
        if isinstance(chunk, ReadChunk):
            rows += rows_of(chunk.rows)
    return Read(sorted(rows), tally.receipts())


def rows_of(batch: Any) -> Iterable[Row]:
    if batch is None:
        return
    for row in batch.to_pylist():
        nothing = [row[name] for name in ("key", "timestamp", "timestampType", "headers")]
        assert nothing == [None] * 4
        yield row["broker"], row["partition"], row["offset"], row["position"], row["value"]
