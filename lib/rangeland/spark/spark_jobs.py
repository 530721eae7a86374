"""Runs tasks on the executors as one Spark job, watches the job and ends it.

Tasks return our own errors as values, so that none of their facts are lost. Errors that may not
occur on another machine (an unreachable broker, a full disk) are raised as long as Spark has
attempts left, so that it tries elsewhere. The progress of each slice is reported through an
accumulator; a retried or speculative task reports the same progress again, which changes nothing.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from pyspark import Accumulator, AccumulatorParam, InheritableThread, SparkContext

from rangeland.errors import RangelandError
from rangeland.fetch.read_settings import ReadSettings
from rangeland.model import Slice
from rangeland.planning.slice_receipt import TaskResult
from rangeland.spark.executor_tasks import WriterSettings, read_and_write
from rangeland.spark.spark_errors import translate_spark_error
from rangeland.spark.task_context import may_pass_elsewhere, with_task_logging

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

R = TypeVar("R")

POLL_S = 0.05

logger = logging.getLogger(__name__)


class TasksStopped(Exception):
    """The caller stopped the tasks before they were done."""


@dataclass(frozen=True, slots=True)
class TaskProgress:
    """What the tasks of a job have reported so far."""

    read_widths: Mapping[int, int] = field(default_factory=dict)
    """The widths of the slices that have been read, by slice index."""
    results: Mapping[int, TaskResult] = field(default_factory=dict)
    """The results of tasks, keyed by their first slice; empty if the job itself returns them."""
    failure: RangelandError | None = None
    """The first error of a task that will not be tried again."""

    def merge(self, later: TaskProgress) -> TaskProgress:
        return TaskProgress(
            {**self.read_widths, **later.read_widths},
            {**self.results, **later.results},
            self.failure or later.failure,
        )


class _MergedProgress(AccumulatorParam[TaskProgress]):
    def zero(self, value: TaskProgress) -> TaskProgress:
        return TaskProgress()

    def addInPlace(self, value1: TaskProgress, value2: TaskProgress) -> TaskProgress:
        return value1.merge(value2)


@dataclass(frozen=True, slots=True)
class TasksToRun:
    """Tasks that read slices and write their rows, as one Spark job. ``on_read`` is called from
    time to time with the widths of the slices read so far, by slice index; ``stop`` ends the job
    once it returns True."""

    spark: SparkSession
    slices: Sequence[Sequence[Slice]]
    settings: ReadSettings
    writer: WriterSettings
    on_read: Callable[[Mapping[int, int]], None]
    stop: Callable[[], bool] = lambda: False


def run_tasks(tasks: TasksToRun) -> list[TaskResult]:
    """Runs all tasks and returns their results in order. Raises TasksStopped."""
    return _run(tasks, _new_progress(tasks), reports_results=False)


def run_tasks_until_stopped(tasks: TasksToRun) -> tuple[list[TaskResult], RangelandError | None]:
    """The same as ``run_tasks``, except that it returns the results of all tasks that have finished
    by the time ``stop`` returns True or a task fails, and the error if there was one."""
    progress = _new_progress(tasks)
    failure = None
    try:
        _run(tasks, progress, reports_results=True)
    except TasksStopped:
        pass
    except RangelandError as error:
        failure = error
    return list(progress.value.results.values()), failure


def _new_progress(tasks: TasksToRun) -> Accumulator[TaskProgress]:
    return tasks.spark.sparkContext.accumulator(TaskProgress(), _MergedProgress())


def _run(
    tasks: TasksToRun, progress: Accumulator[TaskProgress], *, reports_results: bool
) -> list[TaskResult]:
    """Runs all tasks, which report to ``progress``. Returns their results, unless these are
    reported there too."""

    def polled_error() -> RangelandError | None:
        so_far = progress.value
        tasks.on_read(so_far.read_widths)
        return so_far.failure

    results: list[TaskResult] = []
    action = _reading_action(tasks, progress, reports_results=reports_results)
    for result in watch(tasks.spark, action, polled_error, tasks.stop):
        if isinstance(result, RangelandError):
            raise result
        results.append(result)
    return results


def _reading_action(
    tasks: TasksToRun, progress: Accumulator[TaskProgress], *, reports_results: bool
) -> Callable[[], list[TaskResult | RangelandError]]:
    """The Spark action that runs all tasks."""
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
                progress.add(TaskProgress(failure=error))
                yield error
                continue
            reported = {slices[0].index: result} if reports_results else {}
            progress.add(TaskProgress({s.index: s.width for s in slices}, reported))
            if not reports_results:
                yield result

    frozen = [list(task) for task in tasks.slices]
    rdd = context.parallelize(frozen, max(1, len(frozen)))
    return rdd.mapPartitions(with_task_logging(work)).collect


class _SparkJob(Generic[R]):
    """A Spark action in a thread of its own. ``group`` is its name in Spark."""

    def __init__(self, context: SparkContext, action: Callable[[], list[R]], group: str) -> None:
        self._context = context
        self._action = action
        self._group = group
        self._outcome: Future[list[R]] = Future()
        self._thread = InheritableThread(target=self._act, name="rangeland-job", daemon=True)

    def _act(self) -> None:
        try:
            self._context.setJobGroup(self._group, "rangeland: read and write slices", True)
            self._outcome.set_result(self._action())
        except BaseException as error:  # for the waiting thread
            self._outcome.set_exception(error)

    def run(self) -> Iterator[None]:
        """Starts the action, and yields from time to time until it has ended."""
        logger.info("Spark job started", extra={"group": self._group})
        start = time.monotonic()
        self._thread.start()
        while self._thread.is_alive():
            self._thread.join(POLL_S)
            yield
        seconds = round(time.monotonic() - start, 3)
        logger.info("Spark job ended", extra={"group": self._group, "seconds": seconds})

    def cancel(self) -> None:
        self._context.cancelJobGroup(self._group)

    def cancel_after(self, failure: RangelandError) -> None:
        logger.info("Cancelling the Spark job: %s", failure, extra={"group": self._group})
        self.cancel()

    @property
    def has_failed(self) -> bool:
        return self._outcome.exception() is not None

    def results(self) -> list[R]:
        """The results of a job that has ended. Raises our own error for the one that Spark
        raised."""
        error = self._outcome.exception()
        if error is not None:
            translated = translate_spark_error(error)
            raise translated from (None if translated is error else error)
        return self._outcome.result()


def watch(
    spark: SparkSession,
    action: Callable[[], list[R]],
    poll: Callable[[], RangelandError | None] = lambda: None,
    stop: Callable[[], bool] = lambda: False,
    group: str = "",
) -> list[R]:
    """Runs a Spark action in another thread, and calls ``poll`` from this one from time to time.
    The first error that ``poll`` returns ends the job and is raised. Raises TasksStopped if
    ``stop`` has ended the job. ``group`` is the name of the job in Spark, for later queries about
    it."""
    job = _SparkJob(spark.sparkContext, action, group or job_group())
    failure: RangelandError | None = None
    stopped = False
    try:
        for _ in job.run():
            error = poll()
            if failure is None and error is not None:
                # One task has failed for good, so the results of the others are not needed.
                failure = error
                job.cancel_after(failure)
            if failure is None and (stopped or stop()):
                # Repeated until the job ends, because it may not have started yet at the first
                # call.
                stopped = True
                job.cancel()
    except BaseException:
        job.cancel()
        raise
    if failure is not None:
        raise failure
    if stopped and job.has_failed:
        raise TasksStopped
    return job.results()


def job_group() -> str:
    """A unique name for a Spark job."""
    return f"rangeland-{uuid.uuid4()}"


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
    except Exception:  # other versions of Spark may use other names
        return None
    return None
