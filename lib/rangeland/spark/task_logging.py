"""Logging in tasks: each writes to its worker's stderr as the driver does to its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

from pyspark import TaskContext

from rangeland.logging_setup import LogSettings, configure, current_settings

In = TypeVar("In")
Out = TypeVar("Out")


def with_task_logging(
    work: Callable[[Iterator[In]], Iterator[Out]],
) -> Callable[[Iterator[In]], Iterator[Out]]:
    """``work`` for Spark to send to its workers, with the log settings of this driver. Lines
    name the task as stage.partition.attempt."""
    settings = current_settings()

    def run(items: Iterator[In]) -> Iterator[Out]:
        configure_task(settings)
        return work(items)

    return run


def configure_task(settings: LogSettings) -> None:
    """Has the task that calls this log to its worker's stderr."""
    context = TaskContext.get()
    numbers = (context.stageId(), context.partitionId(), context.attemptNumber()) if context else ()
    configure(settings, ".".join(map(str, numbers)))
