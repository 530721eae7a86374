"""What ``check`` tries in the folders of a table, on a real disk."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Any

import pyarrow.fs as pafs
import pytest

from rangeland.delta.stores import store_probe
from rangeland.delta.stores.store_access import StoreSettings
from rangeland.errors import JobFileError, TableRefused


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def table_in(folder: Path) -> StoreSettings:
    for name in store_probe.FOLDERS:
        (folder / "table" / name).mkdir(parents=True, exist_ok=True)
    (folder / "table" / "_rangeland" / "commit.lock").touch()
    return StoreSettings(f"file:{folder}/table")


def test_a_table_that_can_be_written_is_left_as_it_was(tmp_path: Path) -> None:
    table = table_in(tmp_path)
    before = files(tmp_path)
    store_probe.try_store(table)
    assert files(tmp_path) == before


def test_a_table_that_is_not_there_is_tried_where_it_would_be_made(tmp_path: Path) -> None:
    store_probe.try_store(StoreSettings(f"file:{tmp_path}/a/b/table"))
    assert files(tmp_path) == []


def test_each_folder_is_written_renamed_locked_and_cleaned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    locked: list[str] = []
    table = table_in(tmp_path)
    monkeypatch.setattr(store_probe, "_lock", locked.append)
    store_probe.try_store(table)
    assert [os.path.dirname(path) for path in locked] == [
        str(tmp_path / "table" / name).rstrip("/") for name in store_probe.FOLDERS
    ]
    assert all(path.endswith(".renamed") for path in locked)


@pytest.mark.parametrize("folder", [f for f in store_probe.FOLDERS if f])
def test_one_folder_that_cannot_be_written_is_named(tmp_path: Path, folder: str) -> None:
    """One that leads to another file system, which nobody may write."""
    table = table_in(tmp_path)
    place = tmp_path / "table" / folder
    place.rename(tmp_path / "aside")
    place.symlink_to("/proc/self/fdinfo")
    with pytest.raises((TableRefused, JobFileError), match=folder):
        store_probe.try_store(table)


def test_what_could_not_be_removed_is_reported_and_what_could_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = table_in(tmp_path)
    before = files(tmp_path)

    def refuse(path: str) -> None:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(store_probe, "_lock", refuse)
    with pytest.raises(TableRefused, match="Permission denied"):
        store_probe.try_store(table)
    assert files(tmp_path) == before


@pytest.mark.parametrize(
    ("path", "words"), [("file/table", "it is a file"), ("x" * 300, "name too long")]
)
def test_a_path_that_no_table_can_have_is_a_mistake_in_the_job(
    tmp_path: Path, path: str, words: str
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(JobFileError, match=f"(?i){words}") as caught:
        store_probe.try_store(StoreSettings(f"file:{tmp_path}/{path}"))
    assert caught.value.exit_code == 78


@pytest.mark.parametrize("path", ["link", "link/table"])
def test_no_folder_can_be_created_through_a_link_to_nothing(tmp_path: Path, path: str) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "gone")
    with pytest.raises(JobFileError, match="a link to something that does not exist"):
        store_probe.try_store(StoreSettings(f"file:{tmp_path}/{path}"))
    assert files(tmp_path) == ["link"]


def test_a_folder_in_which_nothing_can_be_created_is_a_mistake_in_the_job() -> None:
    for path in ("/proc/table", "/proc/a/b/table"):
        with pytest.raises(JobFileError, match="cannot be written"):
            store_probe.try_store(StoreSettings(f"file:{path}"))


def test_a_disk_without_locks_is_not_a_place_for_a_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(handle: Any, how: int) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    with pytest.raises(TableRefused, match="cannot be locked"):
        store_probe.try_store(table_in(tmp_path))


def test_a_lock_that_another_holds_is_not_waited_for(tmp_path: Path) -> None:
    table = table_in(tmp_path)
    with open(tmp_path / "table" / "_rangeland" / "commit.lock", "a") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        store_probe.try_store(table)


def test_an_object_store_is_tried_without_renames(monkeypatch: pytest.MonkeyPatch) -> None:
    moved: list[str] = []
    memory = pafs._MockFileSystem()  # what Arrow's own tests use
    memory.create_dir("bucket/table")
    store_probe._try_folder(memory, "bucket/table", renames=False)
    assert moved == []
    assert memory.get_file_info(pafs.FileSelector("bucket/table")) == []
