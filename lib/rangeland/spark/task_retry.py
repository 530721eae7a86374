"""Which errors of a task Spark should try again, perhaps on another machine.

An error that is raised in a task is retried by Spark; one that the task returns ends the run.
"""

from __future__ import annotations

from pyspark import TaskContext

from rangeland.errors import RangelandError, StorageFailed, Unreachable


def may_pass_elsewhere(error: RangelandError, attempts: int) -> bool:
    """Whether Spark will try this task again, perhaps on another machine."""
    context = TaskContext.get()
    attempt = context.attemptNumber() if context is not None else attempts
    return isinstance(error, Unreachable | StorageFailed) and attempt + 1 < attempts
