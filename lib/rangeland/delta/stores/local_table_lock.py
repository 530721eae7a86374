"""The lock of a table on a local path, held while committing.

If two processes rename over each other's log entry, both may believe they won, and Hadoop's local
file system keeps the loser's checksum file, which makes the log unreadable. Spark's own writers do
not use this lock. Other stores, or the log stores for them, refuse a second file of the same name.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from rangeland.delta.stores.store_errors import NO_FOLDER, impossible_path_error, store_error
from rangeland.delta.stores.table_path import TablePath
from rangeland.errors import RangelandError, TableRefused

LOCK_PATH = "_rangeland/commit.lock"
_NEVER = (*NO_FOLDER, errno.EINVAL, errno.EEXIST)
_NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP)
logger = logging.getLogger(__name__)


@contextlib.contextmanager
def lock_table(uri: str) -> Iterator[None]:
    """Holds the lock of a table on a local path; does nothing for other stores."""
    folder = TablePath.parse(uri).local
    if folder is None:
        yield
        return
    lock = folder / LOCK_PATH
    try:
        lock.parent.mkdir(parents=True, exist_ok=True)
        handle = _locked_file(lock)
    except OSError as error:
        raise folder_error(error, str(lock)) from error
    with handle:
        yield


def folder_error(error: OSError, path: str, size_bytes: int = 0) -> RangelandError:
    """The error to raise when ``path``, in a table's folder, cannot be written or locked."""
    if error.errno in _NEVER or (error.errno == errno.ENOENT and _takes_no_folder(path)):
        return impossible_path_error(error, path)
    if error.errno in _NO_LOCKS:
        return TableRefused(
            f"{path} cannot be locked",
            why=str(error),
            do="put the table on a disk with file locks, or in an object store",
        )
    return store_error(error, path, size_bytes)


def _takes_no_folder(path: str) -> bool:
    """Whether creating a folder in the nearest existing folder above fails as if that did not
    exist, as in /proc."""
    above = next((folder for folder in Path(path).parents if folder.is_dir()), None)
    if above is None:
        return False
    folder = above / f".rangeland-check-{uuid.uuid4()}"
    try:
        folder.mkdir()
        folder.rmdir()
    except OSError as error:
        return error.errno == errno.ENOENT and above.is_dir()
    return False


def _locked_file(lock: Path) -> IO[str]:
    handle = open(lock, "a")  # noqa: SIM115 - closed by the caller
    try:
        _acquire(handle, lock)
    except BaseException:
        handle.close()
        raise
    return handle


def _acquire(handle: IO[str], lock: Path) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        logger.info("Waiting for the lock of another process", extra={"lock": str(lock)})
        start = time.monotonic()
        fcntl.flock(handle, fcntl.LOCK_EX)
        seconds = round(time.monotonic() - start, 3)
        logger.info("Got the lock", extra={"lock": str(lock), "seconds": seconds})
