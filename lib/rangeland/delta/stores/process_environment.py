"""Sets environment variables while the client of a store is being created, for libraries that
accept credentials in no other way."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

_lock = threading.Lock()


@contextmanager
def environment_of(values: Iterable[tuple[str, str]]) -> Iterator[None]:
    """Sets environment variables for the duration of the block. Only one block runs at a time,
    because the environment belongs to the whole process: a client that needs no variables must not
    see those of another."""
    variables = dict(values)
    with _lock:
        previous = {name: os.environ.get(name) for name in variables}
        os.environ.update(variables)
        try:
            yield
        finally:
            for name, value in previous.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value
