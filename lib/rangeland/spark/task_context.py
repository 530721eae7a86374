"""What a Spark task makes of its place in a job: how it logs, and whether it is tried again.

Few things are imported here, since every task does.
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
    """``work`` for Spark to send to its workers, where it logs to stderr with the settings of this
    driver. Lines name the task as stage.partition.attempt."""
    settings = current_settings()

    def run(items: Iterable[In]) -> Iterator[Out]:
        configure_task(settings)
        return work(items)

    return run


def configure_task(settings: LogSettings) -> None:
    """Has the task that calls this log to its worker's stderr."""
    context = TaskContext.get()
    numbers = (context.stageId(), context.partitionId(), context.attemptNumber()) if context else ()
    configure(settings, ".".join(map(str, numbers)))


def may_pass_elsewhere(error: RangelandError, attempts: int) -> bool:
    """Whether Spark should try this task again, perhaps on another machine, and will: it does so
    if the error is raised; one that the task returns ends the run. ``attempts``: the most that
    Spark makes."""
    context = TaskContext.get()
    attempt = context.attemptNumber() if context is not None else attempts
    return isinstance(error, Unreachable | StorageFailed) and attempt + 1 < attempts
