"""The lock of a table on a local path, held while committing.

Of two processes that rename over each other's log entry both may believe they won, and Hadoop's
local file system keeps a checksum file of the loser. Spark's own writers do not use this lock.
Other stores refuse a second file of the same name, or have log stores that do.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from rangeland.delta.data_files import NO_FOLDER, impossible_path
from rangeland.delta.java_errors import translate
from rangeland.delta.table_path import TablePath

LOCK_PATH = "_rangeland/commit.lock"
logger = logging.getLogger(__name__)


@contextlib.contextmanager
def locked(uri: str) -> Iterator[None]:
    """Holds the lock of a table on a local path; does nothing for other stores."""
    folder = TablePath.parse(uri).local
    if folder is None:
        yield
        return
    lock = folder / LOCK_PATH
    try:
        lock.parent.mkdir(parents=True, exist_ok=True)
        handle = open(lock, "a")  # noqa: SIM115 - closed below, after the yield
        _acquire(handle, lock)
    except OSError as error:
        if error.errno in (*NO_FOLDER, errno.EEXIST):
            raise impossible_path(error, str(lock)) from error
        found = translate(f"locking {lock}", [("java.io.IOException", str(error))])
        raise found from error
    with handle:
        yield


def _acquire(handle: IO[str], lock: Path) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        logger.info("Waiting for the lock of another process", extra={"lock": str(lock)})
        start = time.monotonic()
        fcntl.flock(handle, fcntl.LOCK_EX)
        waited = round(time.monotonic() - start, 3)
        logger.info("Got the lock", extra={"lock": str(lock), "seconds": waited})
