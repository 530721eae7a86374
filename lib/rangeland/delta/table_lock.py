"""The lock of a table on a local path: who holds it commits.

Two processes that rename over each other's log entry can both believe they won, and Hadoop's
local file system leaves a checksum file of the loser behind. Spark's own writers do not know
this lock. Other stores refuse a second file of the same name, or have log stores that do.
"""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator

from rangeland.delta.java_errors import translate
from rangeland.delta.table_path import TablePath

LOCK_PATH = "_rangeland/commit.lock"


@contextlib.contextmanager
def locked(uri: str) -> Iterator[None]:
    """Holds the table's lock file while committing to a local path; else nothing."""
    folder = TablePath.parse(uri).local
    if folder is None:
        yield
        return
    lock = folder / LOCK_PATH
    try:
        lock.parent.mkdir(parents=True, exist_ok=True)
        handle = open(lock, "a")  # noqa: SIM115 - closed below, after the yield
        fcntl.flock(handle, fcntl.LOCK_EX)
    except OSError as error:
        found = translate(f"locking {lock}", [("java.io.IOException", str(error))])
        raise found from error
    with handle:
        yield
