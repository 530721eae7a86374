"""What Delta and Spark tasks log."""

from __future__ import annotations

import fcntl
import logging
import threading
import time
from pathlib import Path

import pytest

from rangeland.delta.stores.local_table_lock import LOCK_PATH, lock_table
from rangeland.delta.transaction_log.log_maintenance import LogMaintenance
from rangeland.errors import Unreachable
from rangeland.model import Partition, Slice
from rangeland.spark.executor_tasks import logged_reading

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
