"""Java exceptions of calls over py4j, as errors of this library.

The chain of causes is fetched from the JVM here; ``java_errors`` decides what it means.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError

from rangeland.delta.java_errors import translate
from rangeland.errors import Bug

MAX_CAUSES = 12


@contextlib.contextmanager
def translated(what: str) -> Iterator[None]:
    """``what`` says what did not work if the block raises; the error begins with it."""
    try:
        yield
    except Py4JJavaError as error:
        raise translate(what, _chain(error.java_exception)) from None
    except Py4JError as error:
        raise Bug(what, why=str(error).strip().splitlines()[0]) from None
    except Exception as error:
        origin = getattr(error, "_origin", None)  # Spark wraps some of Java's exceptions
        if origin is None:
            raise
        raise translate(what, _chain(origin)) from None


def _chain(java: Any) -> list[tuple[str, str]]:
    chain: list[tuple[str, str]] = []
    while java is not None and len(chain) < MAX_CAUSES:
        chain.append((str(java.getClass().getName()), str(java.getMessage() or "")))
        java = java.getCause()
    return chain
