"""The lock of a table on a local path, held while committing.

If two processes rename their files to the same log entry, both may believe that they won, and
Hadoop's local file system keeps the loser's checksum file, which makes the log unreadable. Spark's
own writers do not use this lock. On other stores it is not needed: they, or their log stores,
refuse a second file of the same name.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from rangeland.delta.stores.store_errors import NO_FOLDER, impossible_path_error, store_error
from rangeland.delta.stores.table_path import TablePath
from rangeland.errors import RangelandError, StorageFailed, TableRefused
from rangeland.wording import duration

LOCK_PATH = "_rangeland/commit.lock"
_NEVER = (*NO_FOLDER, errno.EINVAL, errno.EEXIST)
_NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP)
PAUSE_S = 0.02
"""The pause between two attempts to take a lock: a commit takes longer than that."""
WARN_EVERY_S = 60.0
LONGEST_WAIT_S = 3600.0
"""The longest time to wait for a lock: a replacement holds it while Spark rewrites the files that
contain its rows."""
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
    """The error to raise if ``path``, in a table's folder, cannot be written or locked."""
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
    """Whether creating a folder in the nearest existing parent fails as if that parent did not
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
        if not _try_lock(handle):
            _wait_for_lock(handle, lock)
    except BaseException:
        handle.close()
        raise
    return handle


def _try_lock(handle: IO[str]) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _wait_for_lock(handle: IO[str], lock: Path) -> None:
    """Tries until the lock is free. A suspended process may never release it, and nothing else sets
    a deadline, so this raises StorageFailed after ``LONGEST_WAIT_S``."""
    fields = {"lock": str(lock)}
    logger.info("Waiting for the lock of another process", extra=fields)
    start = time.monotonic()
    warn_at_s = WARN_EVERY_S
    while not _try_lock(handle):
        waited_s = time.monotonic() - start
        if waited_s >= LONGEST_WAIT_S:
            raise _never_free_error(lock, _holder(handle), waited_s)
        if waited_s >= warn_at_s:
            warn_at_s += WARN_EVERY_S
            waited = duration(waited_s)
            logger.warning(
                "Still waiting for %s after %s: %s", lock, waited, _holder(handle), extra=fields
            )
        time.sleep(PAUSE_S)
    seconds = round(time.monotonic() - start, 3)
    logger.info("Got the lock", extra=fields | {"seconds": seconds})


def _never_free_error(lock: Path, holder: str, waited_s: float) -> StorageFailed:
    error = StorageFailed(
        f"{lock} was not free within {duration(waited_s)}",
        why=holder,
        do="find out why that process makes no progress, end it, then run again",
        path=str(lock),
    )
    return error.with_answers(
        retry="yes, once the process that holds the lock has ended", acts="the operator"
    )


def _holder(handle: IO[str]) -> str:
    """The process that holds the lock of this file, according to the kernel's list of locks. The
    list does not show processes of other hosts and containers, and exists only on Linux."""
    stat = os.fstat(handle.fileno())
    device = stat.st_dev
    locked = f"{os.major(device):02x}:{os.minor(device):02x}:{stat.st_ino}"
    try:
        locks = Path("/proc/locks").read_text().splitlines()
    except OSError:
        locks = []
    for line in locks:
        match line.split():
            case [_, "FLOCK", _, "WRITE", pid, file, *_] if file == locked and int(pid) > 0:
                return f"process {pid} holds it"
    return "another process holds it"
