"""Temporary folders into which the JVM writes."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial


@contextmanager
def folder_for_java(prefix: str) -> Iterator[str]:
    """A temporary folder into which the JVM writes. If the call is interrupted, the JVM carries on
    and may create the folder again, so it is removed once more when this process ends."""
    folder = tempfile.mkdtemp(prefix=prefix)
    remove = partial(shutil.rmtree, folder, ignore_errors=True)
    atexit.register(remove)
    try:
        yield folder
    finally:
        remove()
    atexit.unregister(remove)
