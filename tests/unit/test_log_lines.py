"""What Delta, Spark tasks and their threads log."""

from __future__ import annotations

import fcntl
import logging
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from rangeland.cluster_settings import ClusterSettings
from rangeland.connection.pool import ConnectionPool
from rangeland.delta.stores.local_table_lock import LOCK_PATH, lock_table
from rangeland.delta.transaction_log.log_maintenance import LogMaintenance
from rangeland.dialects.dialect import load_dialect
from rangeland.dialects.error_meaning import ErrorMeaning
from rangeland.dialects.fetch_values import FetchedPartition, FetchResult, PartitionFetch
from rangeland.dialects.protocol_session import BrokerRequest
from rangeland.errors import AccessDenied, Unreachable
from rangeland.fetch.fetch_size import FetchLimits
from rangeland.fetch.fetch_thread import FetchThread
from rangeland.fetch.read_settings import ReadSettings
from rangeland.model import Address, Partition, Slice
from rangeland.spark.executor_tasks import logged_reading

BROKER = Address("b1", 1)
SLICES = [Slice(3, Partition("orders", 0), 10, 20)]


def test_a_task_logs_its_start_and_its_end(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "rangeland"), logged_reading(SLICES):
        pass
    assert [record.message for record in caplog.records] == ["Task started", "Task ended"]
    assert vars(caplog.records[0])["slices"] == "orders/0 [10, 20)"


def test_a_task_that_fails_logs_why(caplog: pytest.LogCaptureFixture) -> None:
    with (
        caplog.at_level(logging.INFO, "rangeland"),
        pytest.raises(Unreachable),
        logged_reading(SLICES),
    ):
        raise Unreachable("reading orders/0", why="no broker answers")
    assert "no broker answers" in caplog.records[-1].message


class _Answering:
    """Kafka's dialect, but that a response says this of each partition."""

    def __init__(self, meanings: Sequence[ErrorMeaning]) -> None:
        self.kafka = load_dialect("kafka")
        self.meanings = meanings

    def __getattr__(self, name: str) -> Any:
        return getattr(self.kafka, name)

    def read_records(self, _: Any, asked: Sequence[PartitionFetch], isolation: Any) -> FetchResult:
        parts = [
            FetchedPartition(one.partition, meaning, meaning.name)
            for one, meaning in zip(asked, self.meanings, strict=True)
        ]
        return FetchResult(ErrorMeaning.OK, "", tuple(parts))


class Answering:
    """Connections to a broker with such a dialect."""

    def __init__(self, *meanings: ErrorMeaning) -> None:
        self.dialect = _Answering(meanings)

    def call_all(self, address: Address, questions: Sequence[BrokerRequest]) -> list[Any]:
        return []


def test_what_comes_before_an_error_is_logged_before_the_error_is_raised(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", logger="rangeland.fetch")
    slices = [Slice(i, Partition("t", i), 7, 12, leader=BROKER) for i in (0, 1)]
    brokers = cast(ConnectionPool, Answering(ErrorMeaning.RETRY, ErrorMeaning.DENIED))
    settings = ReadSettings(ClusterSettings("kafka", (BROKER,)))
    fetcher = FetchThread(slices, settings, FetchLimits(), brokers=brokers)
    fetcher._run()
    with pytest.raises(AccessDenied):
        list(fetcher.pieces())
    (line,) = caplog.records
    assert line.message.startswith("Retrying in ")
    assert line.message.endswith(" ms: b1:1 answered RETRY at offset 7")
    fields = vars(line)
    assert (fields["topic"], fields["partition"], fields["offset"]) == ("t", 0, 7)


def test_a_wait_for_a_lock_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    lock = tmp_path / LOCK_PATH
    lock.parent.mkdir()
    entered = threading.Event()

    def commit() -> None:
        with lock_table(str(tmp_path)):
            entered.set()

    with caplog.at_level(logging.INFO, "rangeland"):
        with lock_table(str(tmp_path)):
            pass
        assert caplog.records == []
        with lock.open("a") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            other = threading.Thread(target=commit)
            other.start()
            while not caplog.records:
                time.sleep(0.01)
            assert not entered.is_set()
        other.join()
    waiting = "Waiting for the lock of another process"
    assert [record.message for record in caplog.records] == [waiting, "Got the lock"]


def test_failed_maintenance_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    maintenance = LogMaintenance()
    with caplog.at_level(logging.INFO, "rangeland"):
        maintenance.start("lake/orders", lambda: ["no checkpoint: 100% of the disk is used"])
        assert maintenance.wait_for_maintenance() == ("no checkpoint: 100% of the disk is used",)
    assert [record.message for record in caplog.records] == [
        "Maintenance failed: no checkpoint: 100% of the disk is used"
    ]
