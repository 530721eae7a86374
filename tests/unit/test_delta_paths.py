"""Paths are split as Hadoop splits them, and written as Hadoop, Spark or Arrow expects them."""

from __future__ import annotations

import fcntl
import logging
import os
from pathlib import Path

import pyarrow.fs as pafs
import pytest

from rangeland.delta.stores import local_table_lock
from rangeland.delta.stores.local_table_lock import LOCK_PATH, lock_table
from rangeland.delta.stores.store_access import StoreSettings
from rangeland.delta.stores.store_probe import foreign_entries
from rangeland.delta.stores.table_path import TablePath
from rangeland.errors import JobFileError, StorageFailed, TableRefused


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("lake/x", ("", "", "lake/x")),
        ("/lake/x#y", ("", "", "/lake/x#y")),
        ("file:/lake/x?y", ("file", "", "/lake/x?y")),
        ("file:///lake/x%20y", ("file", "", "/lake/x%20y")),
        ("FILE:/lake", ("file", "", "/lake")),
        ("hdfs://name:8020/lake/", ("hdfs", "name:8020", "/lake")),
        ("s3a://bucket/a b/#", ("s3a", "bucket", "/a b/#")),
        ("s3a://bucket", ("s3a", "bucket", "")),
        ("abfss://c@a.dfs.core.windows.net/t", ("abfss", "c@a.dfs.core.windows.net", "/t")),
        ("lake/12:30", ("", "", "lake/12:30")),
        ("/lake//x/./y/../z/", ("", "", "/lake/x/z")),
        ("file:////lake", ("file", "", "/lake")),
        ("/", ("", "", "/")),
    ],
)
def test_a_path_has_the_parts_that_hadoop_sees(text: str, parts: tuple[str, str, str]) -> None:
    found = TablePath.parse(text)
    assert (found.scheme, found.authority, found.path) == parts
    assert TablePath.parse(str(found)) == found


def test_a_path_is_spelled_for_whoever_asks() -> None:
    path = TablePath.parse("s3a://bucket/a b/x#y%20z/")
    assert str(path) == "s3a://bucket/a b/x#y%20z"
    assert path.uri == "s3a://bucket/a%20b/x%23y%2520z"
    assert path.key == "bucket/a b/x#y%20z"
    assert path.local is None
    assert str(path.child("_rangeland/ledger")) == "s3a://bucket/a b/x#y%20z/_rangeland/ledger"
    assert TablePath.parse("file:/a%20b").local == Path("/a%20b")


@pytest.mark.parametrize("name", ["x#y", "x?y", "x%20y", "x%41", "x y", "x+y", "a:b", "ü"])
def test_files_lie_in_the_folder_that_was_named(tmp_path: Path, name: str) -> None:
    for spelled in (f"{tmp_path}/{name}", f"file:{tmp_path}/{name}/", f"file://{tmp_path}/{name}"):
        store, root = StoreSettings(spelled).open()
        assert isinstance(store, pafs.LocalFileSystem)
        assert root == f"{tmp_path}/{name}"


def test_one_table_has_one_lock_however_it_is_spelled(tmp_path: Path) -> None:
    table = tmp_path / "x#y"
    table.mkdir()
    with lock_table(f"file:{table}"):
        spellings = (f"{table}/", f"file://{table}", f"{tmp_path}/z/../x#y", f"file:{table}/.")
        for spelled in spellings:
            path = TablePath.parse(spelled).local
            assert path is not None
            handle = os.open(path / "_rangeland/commit.lock", os.O_RDWR)
            try:
                with pytest.raises(BlockingIOError):
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            finally:
                os.close(handle)
    assert os.listdir(tmp_path) == ["x#y"]


def test_a_path_where_no_folder_can_be_is_not_tried_again(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere" / "else")
    for name in ("file", "file/table", "x" * 300, "link"):
        with (
            pytest.raises(JobFileError, match="cannot be written"),
            lock_table(f"{tmp_path}/{name}"),
        ):
            pass
    for name in ("file", "x" * 300):
        with pytest.raises(JobFileError, match="cannot be written"):
            foreign_entries(StoreSettings(f"file:{tmp_path}/{name}"))


def test_a_path_where_nothing_can_be_created_is_not_tried_again() -> None:
    """To create something in /proc fails as if /proc were not there."""
    for path in ("/proc/table", "/proc/a/table", "file:/proc/table"):
        with pytest.raises(JobFileError, match="cannot be written"), lock_table(path):
            pass


def test_a_folder_that_was_removed_meanwhile_may_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*_: object) -> None:
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr(fcntl, "flock", gone)
    with pytest.raises(StorageFailed), lock_table(f"{tmp_path}/table"):
        pass
    assert os.listdir(tmp_path) == ["table"]


@pytest.mark.parametrize("number", [1, 13, 30, 37, 95])
def test_a_lock_that_is_denied_is_not_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Also by a folder that is immutable, on a disk that is read-only, or without locks."""

    def denied(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", denied)
    with pytest.raises(TableRefused, match=os.strerror(number)), lock_table(f"{tmp_path}/table"):
        pass


class Clock:
    """In place of the module ``time``: waiting takes no time."""

    now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(local_table_lock, "time", made)
    monkeypatch.setattr(local_table_lock, "PAUSE_S", 1.0)
    return made


def wait_for_the_lock(table: Path) -> StorageFailed:
    """Waits for a lock that this process holds itself, and returns the error."""
    with (
        lock_table(str(table)),
        pytest.raises(StorageFailed, match="was not free within 1 h 00 min") as caught,
        lock_table(str(table)),
    ):
        pytest.fail("two have the lock")
    return caught.value


def test_a_lock_that_is_never_released_ends_the_wait(
    tmp_path: Path, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """Its holder may be suspended."""
    with caplog.at_level(logging.WARNING, "rangeland"):
        error = wait_for_the_lock(tmp_path)
    lock = tmp_path / LOCK_PATH
    holder = f"process {os.getpid()} holds it"
    assert (error.exit_code, error.facts, error.why) == (75, {"path": str(lock)}, holder)
    assert str(lock) in error.what
    assert clock.now_s == local_table_lock.LONGEST_WAIT_S
    first, *later = [record.message for record in caplog.records]
    assert first == f"Still waiting for {lock} after 1 min 00 s: {holder}"
    assert len(later) == 58
    with lock_table(str(tmp_path)):  # it is not left locked
        pass


@pytest.mark.usefixtures("clock")
def test_the_holder_of_a_lock_may_be_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It runs on another host, or in another container."""
    with lock_table(str(tmp_path)):
        stat = (tmp_path / LOCK_PATH).stat()
    device = f"{os.major(stat.st_dev):02x}:{os.minor(stat.st_dev):02x}"
    locks = [
        f"1: FLOCK ADVISORY WRITE 0 {device}:{stat.st_ino} 0 EOF",
        f"2: FLOCK ADVISORY WRITE 7 ff:{device}:{stat.st_ino} 0 EOF",
        f"2: -> FLOCK ADVISORY WRITE 7 {device}:{stat.st_ino} 0 EOF",
        f"3: POSIX ADVISORY WRITE 7 {device}:{stat.st_ino} 0 0",
    ]
    monkeypatch.setattr(Path, "read_text", lambda path: "\n".join(locks))
    assert wait_for_the_lock(tmp_path).why == "another process holds it"
