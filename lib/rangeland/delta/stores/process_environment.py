"""Environment variables for as long as the client of a store is made, for libraries that take
credentials in no other way."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

_lock = threading.Lock()


@contextmanager
def environment_of(values: Iterable[tuple[str, str]]) -> Iterator[None]:
    """One client is made at a time: the environment is that of the whole process."""
    named = dict(values)
    if not named:
        yield
        return
    with _lock:
        before = {name: os.environ.get(name) for name in named}
        os.environ.update(named)
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value
