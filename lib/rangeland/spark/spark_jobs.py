"""Runs tasks on the executors as one Spark job, watches it and ends it.

Tasks return our own errors as values, so that none of their facts are lost. Errors that may not
occur on another machine (an unreachable broker, a full disk) are raised while Spark has attempts
left, so that it tries elsewhere. The progress of each slice is reported through an accumulator; a
retried or speculative task reports the same again and changes nothing.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from pyspark import AccumulatorParam, InheritableThread

from rangeland.errors import RangelandError
from rangeland.fetch.read_settings import ReadSettings
from rangeland.model import Slice
from rangeland.planning.slice_receipt import TaskResult
from rangeland.spark.executor_tasks import WriterSettings, read_and_write
from rangeland.spark.spark_errors import translate_spark_error
from rangeland.spark.task_context import may_pass_elsewhere, with_task_logging

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POLL_S = 0.05
ERROR = "error"
SliceOffsets = dict[int, int]
_NOISY = (
    "org.apache.spark.executor.Executor",
    "org.apache.spark.scheduler.TaskSetManager",
)

logger = logging.getLogger(__name__)


class TasksStopped(Exception):
    """The caller stopped the tasks before they were done."""


class ByKey(AccumulatorParam[dict[Any, Any]]):
    """Merges dictionaries; a repeated key has the same value again."""

    def zero(self, value: dict[Any, Any]) -> dict[Any, Any]:
        return {}

    def addInPlace(self, value1: dict[Any, Any], value2: dict[Any, Any]) -> dict[Any, Any]:
        value1.update(value2)
        return value1


@dataclass(frozen=True, slots=True)
class TasksToRun:
    """Tasks that read slices and write their rows, as one Spark job. ``on_read`` is called from
    time to time with the offsets read so far, by slice index; ``stop`` ends the job once it is
    true."""

    spark: SparkSession
    slices: Sequence[Sequence[Slice]]
    settings: ReadSettings
    writer: WriterSettings
    on_read: Callable[[SliceOffsets], None]
    stop: Callable[[], bool] = lambda: False


def run_tasks(tasks: TasksToRun) -> list[TaskResult]:
    """Runs all tasks and returns their results in order. Raises TasksStopped."""
    done = tasks.spark.sparkContext.accumulator({}, ByKey())
    return watch(tasks.spark, _reading_action(tasks, done), done, tasks.on_read, tasks.stop)


def run_tasks_until_stopped(tasks: TasksToRun) -> tuple[list[TaskResult], RangelandError | None]:
    """Like ``run_tasks``, but returns the results of all tasks that have ended by the time ``stop``
    is true or a task fails, and the error if there was one."""
    done = tasks.spark.sparkContext.accumulator({}, ByKey())
    ended = tasks.spark.sparkContext.accumulator({}, ByKey())
    failure = None
    try:
        watch(tasks.spark, _reading_action(tasks, done, ended), done, tasks.on_read, tasks.stop)
    except TasksStopped:
        pass
    except RangelandError as error:
        failure = error
    return list(ended.value.values()), failure


def _reading_action(tasks: TasksToRun, done: Any, ended: Any = None) -> Callable[[], list[Any]]:
    """The Spark action that runs all tasks. It returns their results, unless an accumulator
    ``ended`` takes them one by one."""
    context = tasks.spark.sparkContext
    settings = tasks.settings
    writer = tasks.writer
    attempts = int(context._conf.get("spark.task.maxFailures", "4"))
    local = str(context.master).startswith("local")

    def work(items: Iterable[list[Slice]]) -> Iterator[TaskResult | RangelandError]:
        for slices in items:
            try:
                result = read_and_write(slices, settings, writer)
            except RangelandError as error:
                if not local and may_pass_elsewhere(error, attempts):
                    raise
                done.add({ERROR: error})
                yield error
                continue
            done.add({s.index: s.width for s in slices})
            if ended is None:
                yield result
            else:
                ended.add({slices[0].index: result})

    frozen = [list(task) for task in tasks.slices]
    collect: Callable[[], list[Any]] = (
        context.parallelize(frozen, max(1, len(frozen)))
        .mapPartitions(with_task_logging(work))
        .collect
    )
    return collect


def watch(
    spark: SparkSession,
    action: Callable[[], list[Any]],
    done: Any,
    on_read: Callable[[dict[Any, Any]], None],
    stop: Callable[[], bool] = lambda: False,
    group: str = "",
) -> list[Any]:
    """Runs a Spark action in another thread and reports its progress from this one. The first error
    that a task returns ends the others. Raises TasksStopped if ``stop`` has ended it. ``group``
    is the name of the job in Spark, for later queries about it."""
    group = group or job_group()
    context = spark.sparkContext
    ended: list[Any] = []

    def act() -> None:
        try:
            context.setJobGroup(group, "rangeland: read and write slices", True)
            ended.append(action())
        except BaseException as error:  # for the waiting thread
            ended.append(error)

    thread = InheritableThread(target=act, name="rangeland-job", daemon=True)
    logger.info("Spark job started", extra={"group": group})
    start = time.monotonic()
    thread.start()
    failure: RangelandError | None = None
    stopped = False
    try:
        while thread.is_alive():
            thread.join(POLL_S)
            offsets = dict(done.value)
            error = offsets.pop(ERROR, None)
            if error is not None and failure is None:
                # One task has failed for good: the results of the others are not needed.
                failure = error
                logger.info("Cancelling the Spark job: %s", error, extra={"group": group})
                context.cancelJobGroup(group)
            on_read(offsets)
            if failure is None and (stopped or stop()):
                # Repeated until it ends: the job may not have started at the first call.
                stopped = True
                context.cancelJobGroup(group)
    except BaseException:
        context.cancelJobGroup(group)
        raise
    seconds = round(time.monotonic() - start, 3)
    logger.info("Spark job ended", extra={"group": group, "seconds": seconds})
    if failure is not None:
        raise failure
    if stopped and isinstance(ended[0], BaseException):
        raise TasksStopped
    return task_results(ended[0])


def job_group() -> str:
    """A unique name for a Spark job."""
    return f"rangeland-{uuid.uuid4()}"


@contextmanager
def quiet_executors(spark: SparkSession) -> Iterator[None]:
    """Silences local executors, which log to our own stderr: dozens of lines of Java for an
    exception that is reported anyway. Executors of a cluster keep logging."""
    pyspark_logger = logging.getLogger("SQLQueryContextLogger")  # it logs the whole Java trace, too
    pyspark_logger.setLevel(logging.CRITICAL)
    context = spark.sparkContext
    if not str(context.master).startswith("local"):
        yield
        return
    jvm: Any = context._jvm
    log4j = jvm.org.apache.logging.log4j
    levels = []
    try:
        for name in _NOISY:
            levels.append((name, log4j.LogManager.getLogger(name).getLevel()))
            log4j.core.config.Configurator.setLevel(name, log4j.Level.OFF)
    except Exception:  # another logging backend
        levels = []
    try:
        yield
    finally:
        with suppress(Exception):  # the JVM may have gone
            for name, level in levels:
                log4j.core.config.Configurator.setLevel(name, level)


def failed_task(spark: SparkSession, group: str) -> int | None:
    """The number, within its stage, of a failed task in the newest job of a group; None if unknown.
    It is only a hint for a search."""
    context = spark.sparkContext
    try:
        java = context._jsc.sc()
        jvm = cast(Any, context._jvm)
        java.listenerBus().waitUntilEmpty()
        statuses = jvm.java.util.ArrayList()
        statuses.add(jvm.org.apache.spark.status.api.v1.TaskStatus.FAILED)
        tracker = context.statusTracker()
        nothing = jvm.scala.Option.empty()
        for number in sorted(tracker.getJobIdsForGroup(group), reverse=True):
            for stage in reversed(cast(Any, tracker.getJobInfo(number)).stageIds):
                tasks = java.statusStore().taskList(stage, 0, 0, 1, nothing, True, statuses)
                if tasks.nonEmpty():
                    return int(tasks.head().index())
    except Exception:  # another Spark may have other names
        return None
    return None


def task_results(results: list[Any] | BaseException) -> list[Any]:
    """The results of a Spark job. Raises the error of a task, or Spark's if that is the result."""
    if isinstance(results, BaseException):
        translated = translate_spark_error(results)
        raise translated from (None if translated is results else results)
    for result in results:
        if isinstance(result, RangelandError):
            raise result
    return list(results)
