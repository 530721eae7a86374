"""Does the work of many jobs side by side, in threads that end with the process.

After a signal, a command for one table ends wherever it is, with its JVM and the commits in it, and
the next run continues from there. A command for many tables must end in the same way. At exit,
Python would wait for the threads of a ``ThreadPoolExecutor``, and so for as long as a table waits
for a lock.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from queue import SimpleQueue
from typing import TypeVar

T = TypeVar("T")


@contextmanager
def results_of(
    works: Sequence[Callable[[], T]], at_a_time: int
) -> Iterator[Iterator[tuple[int, T]]]:
    """Calls each function, in the order given, at most ``at_a_time`` at a time. Iterates over their
    indexes and results, in the order in which they end, and raises what a function raises. Once the
    context is left, no further function is called, and those still running are not waited for."""
    waiting = deque(enumerate(works))
    ended: SimpleQueue[tuple[int, Future[T]]] = SimpleQueue()

    def act() -> None:
        while waiting:
            try:
                index, work = waiting.popleft()
            except IndexError:  # another thread was first
                return
            ended.put((index, _done(work)))

    for number in range(min(at_a_time, len(works))):
        threading.Thread(target=act, name=f"rangeland-job_{number}", daemon=True).start()
    try:
        yield ((index, future.result()) for index, future in (ended.get() for _ in works))
    finally:
        waiting.clear()


def _done(work: Callable[[], T]) -> Future[T]:
    future: Future[T] = Future()
    try:
        future.set_result(work())
    except BaseException as error:  # for the thread that waits
        future.set_exception(error)
    return future
