"""A Spark task's place in its job: how it logs, and whether it will be tried again.

There are few imports, because every task has to load them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from pyspark import TaskContext

from rangeland.errors import RangelandError, StorageFailed, Unreachable
from rangeland.logging_setup import LogSettings, configure, current_settings

In = TypeVar("In")
Out = TypeVar("Out")


def with_task_logging(
    work: Callable[[Iterable[In]], Iterator[Out]],
) -> Callable[[Iterable[In]], Iterator[Out]]:
    """``work``, made to log to stderr with this driver's settings when a worker runs it. Log lines
    name the task as stage.partition.attempt."""
    settings = current_settings()

    def run(items: Iterable[In]) -> Iterator[Out]:
        configure_task(settings)
        return work(items)

    return run


def configure_task(settings: LogSettings) -> None:
    """Makes the calling task log to its worker's stderr."""
    context = TaskContext.get()
    numbers = (context.stageId(), context.partitionId(), context.attemptNumber()) if context else ()
    configure(settings, ".".join(map(str, numbers)))


def may_pass_elsewhere(error: RangelandError, attempts: int) -> bool:
    """Whether the error can be retried, perhaps on another machine, and Spark has attempts left.
    Spark retries a task that raises its error, whereas an error that a task returns ends the run.
    ``attempts`` is Spark's limit."""
    context = TaskContext.get()
    attempt = context.attemptNumber() if context is not None else attempts
    return isinstance(error, Unreachable | StorageFailed) and attempt + 1 < attempts
