"""Reads a topic with the library's own code, and compares the rows with librdkafka's.

Rows become `Consumed`, what confluent-kafka's records become too, so that two readings
are compared by `==`. No Spark, no table: survey, slices, fetches, receipts.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pytest

from rangeland.cluster_access.backend_choice import BrokerGroupIO
from rangeland.cluster_settings import ClusterSettings
from rangeland.connection.broker_connection import BrokerConnection
from rangeland.connection.pool import ConnectionPool
from rangeland.decode.columns import row_schema
from rangeland.fetch.fetch_size import FetchLimits
from rangeland.fetch.read_settings import ReadSettings
from rangeland.fetch.receipt_builder import ReceiptBuilder
from rangeland.fetch.slice_reading import read_slices
from rangeland.groups.kafka.group_backend import open_backend
from rangeland.model import Counts, Isolation, LogState, Range, Slice, Survey
from rangeland.planning.slice_receipt import Receipt
from rangeland.planning.slices import Slicing, cut_slices
from rangeland.survey.cluster_survey import take_survey
from rangeland.survey.survey_request import SurveyRequest
from rangeland.testing.consumer import Consumed
from rangeland.testing.processes import PATIENCE_S
from rangeland.untrusted import parse_address

UNCOMMITTED = Isolation.READ_UNCOMMITTED


def settings_of(bootstrap: Sequence[str], **changed: Any) -> ClusterSettings:
    """Settings with which a mistake shows within seconds."""
    base = ClusterSettings(
        "kafka",
        tuple(parse_address(server) for server in bootstrap),
        connect_ms=2_000,
        request_ms=10_000,
        survey_ms=15_000,
        no_progress_ms=10_000,
    )
    return replace(base, **changed)


def look(settings: ClusterSettings, **wanted: Any) -> Survey:
    edge = BrokerGroupIO(settings)
    with ConnectionPool(settings) as brokers, closing(edge):
        return take_survey(brokers, SurveyRequest(**wanted), ask_group=open_backend(edge).offsets)


def slices_of(survey: Survey, target_bytes: int = 128 << 20) -> list[Slice]:
    """All that the survey saw, cut as a plan would cut it."""
    logs = survey.logs.values()
    ranges = [
        Range(x.partition, x.start_offset, x.end_offset, x.leader.topic_id, x.size_bytes or 0)
        for x in logs
    ]
    return cut_slices(ranges, Slicing(target_bytes), survey.logs)


@dataclass(frozen=True)
class Read:
    """What came of a reading: rows in the order of partition and offset, and receipts."""

    rows: list[Consumed]
    receipts: tuple[Receipt, ...]
    table: pa.Table

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
    batches = []
    for chunk in read_slices(slices, ReadSettings(settings, **chosen), patience):
        tally.add(chunk)
        if chunk.rows is not None:
            batches.append(chunk.rows)
    table = pa.Table.from_batches(batches, schema=row_schema())
    table = table.sort_by(
        [("topic", "ascending"), ("partition", "ascending"), ("offset", "ascending")]
    )
    return Read(rows_of(table), tally.receipts(), table)


def read_topic(topic: str, settings: ClusterSettings, patience: FetchLimits | None = None) -> Read:
    return read(slices_of(look(settings, topics=(topic,))), settings, patience)


def rows_of(table: pa.Table) -> list[Consumed]:
    times = table.column("timestamp").cast(pa.int64()).to_pylist()
    columns = [table.column(name).to_pylist() for name in ("topic", "partition", "offset")]
    payload = [table.column(name).to_pylist() for name in ("key", "value")]
    headers = table.column("headers").to_pylist()
    return [
        Consumed(topic, partition, offset, key, value, _ms(time), _headers(found))
        for topic, partition, offset, key, value, time, found in zip(
            *columns, *payload, times, headers, strict=True
        )
    ]


def _ms(time: int | None) -> int:
    """As clients say it: -1 for a record without a time."""
    return -1 if time is None else time // 1000


def _headers(found: Any) -> tuple[tuple[str, bytes | None], ...] | None:
    return None if found is None else tuple((h["key"], h["value"]) for h in found)


def only_log(survey: Survey) -> LogState:
    (log,) = survey.logs.values()
    return log


def log_of(settings: ClusterSettings, topic: str) -> LogState:
    """The state of a topic with one partition."""
    return only_log(look(settings, topics=(topic,)))


def wait_for_end(settings: ClusterSettings, topic: str, end_offset: int) -> LogState:
    """The log of a topic with one partition once it ends there. The end of a transaction is
    acknowledged before its marker is in the log."""
    deadline = time.monotonic() + PATIENCE_S
    while (log := log_of(settings, topic)).end_offset < end_offset:
        assert time.monotonic() < deadline, f"{topic} ends at {log.end_offset}, not {end_offset}"
        time.sleep(0.05)
    assert log.end_offset == end_offset
    return log


@contextmanager
def spied_requests(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """All requests of the kinds a dialect asks for that are sent meanwhile."""
    sent: list[Any] = []
    send = BrokerConnection.send

    def spy(self: BrokerConnection, question: Any) -> None:
        sent.append(question.message)
        send(self, question)

    with monkeypatch.context() as patch:
        patch.setattr(BrokerConnection, "send", spy)
        yield sent
