"""Checks, before a run writes to a table's path, that the store allows everything a run does: a
file is written, read, renamed, locked and removed, in each folder that a run writes to.

If the table does not exist yet, the nearest existing parent folder is checked. On object stores,
which have no folders and where commits do not depend on renaming, a file is written, read and
removed.
"""

from __future__ import annotations

import errno
import fcntl
import os
import posixpath
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pyarrow as pa
import pyarrow.fs as pafs

from rangeland.delta.stores.local_table_lock import LOCK_PATH, folder_error
from rangeland.delta.stores.store_access import StoreSettings, has_folders
from rangeland.delta.stores.store_errors import as_os_errors, as_own_errors
from rangeland.errors import StorageFailed

FOLDERS = ("", "_delta_log", "_rangeland", "_rangeland/ledger", "_rangeland/ledger/_delta_log")
CONTENT = b"rangeland check\n"


def try_store(table: StoreSettings) -> None:
    """Tries out the operations of a run at a table's path. Raises TableRefused if permission is
    missing, JobFileError for a path where no table can be, and StorageFailed for failures that may
    be temporary."""
    store, root = table.open()
    with _as_folder_errors(root):
        folders = _existing_folders(store, root) if has_folders(store) else [root]
    for folder in folders:
        _try_folder(store, folder, renames=has_folders(store))
    if isinstance(store, pafs.LocalFileSystem):
        _try_lock_file(posixpath.join(root, LOCK_PATH))


def foreign_entries(table: StoreSettings) -> list[str]:
    """The entries of a folder that is to become a table, apart from our own ledger. Empty if
    another writer has just created a table there."""
    store, root = table.open()
    with as_own_errors(root):
        infos = store.get_file_info(pafs.FileSelector(root, allow_not_found=True))
    names = {info.base_name for info in infos}
    return [] if "_delta_log" in names else sorted(names - {"_rangeland"})


def _existing_folders(store: pafs.FileSystem, root: str) -> list[str]:
    """The folders of the table, or else its nearest existing parent."""
    folders = [posixpath.join(root, name).rstrip("/") or "/" for name in FOLDERS]
    existing = [info.path for info in store.get_file_info(folders) if _is_folder(store, info)]
    above = root
    while not existing:
        above = posixpath.dirname(above)
        if _is_folder(store, store.get_file_info(above)) or above == posixpath.dirname(above):
            existing = [above]
    return existing


def _is_folder(store: pafs.FileSystem, info: pafs.FileInfo) -> bool:
    if info.type is pafs.FileType.File:
        raise NotADirectoryError(errno.ENOTDIR, "it is a file and not a folder", info.path)
    is_missing = info.type is pafs.FileType.NotFound and isinstance(store, pafs.LocalFileSystem)
    if is_missing and os.path.islink(info.path):
        raise FileExistsError(
            errno.EEXIST, "it is a link to something that does not exist", info.path
        )
    return bool(info.type is pafs.FileType.Directory)


def _try_folder(store: pafs.FileSystem, folder: str, *, renames: bool) -> None:
    # Spark and Delta ignore names that begin with a dot.
    path = posixpath.join(folder, f".rangeland-check-{uuid.uuid4()}")
    files = [path]
    try:
        with _as_folder_errors(path):
            with store.open_output_stream(path) as sink:
                sink.write(CONTENT)
            if renames:
                files.append(f"{path}.renamed")
                store.move(path, files[-1])
            with store.open_input_stream(files[-1]) as source:
                content = source.read()
            if isinstance(store, pafs.LocalFileSystem):
                _lock(files[-1])
            store.delete_file(files[-1])
            files.clear()
    finally:
        for name in files:
            with suppress(OSError, pa.ArrowException):
                store.delete_file(name)
    if content != CONTENT:
        raise StorageFailed(
            f"could not write {path}",
            why=f"{len(CONTENT)} bytes were written, {len(content)} read back",
            do="land in a store that returns what was written to it",
        )


def _lock(path: str) -> None:
    with open(path, "a") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _try_lock_file(path: str) -> None:
    """Tries to open an existing lock file, which may belong to another user, for writing. Takes no
    lock."""
    try:
        with open(path, "r+"):
            pass
    except FileNotFoundError:
        pass
    except OSError as error:
        raise folder_error(error, path, len(CONTENT)) from error


@contextmanager
def _as_folder_errors(path: str) -> Iterator[None]:
    try:
        with as_os_errors():
            yield
    except OSError as error:
        raise folder_error(error, path, len(CONTENT)) from error
