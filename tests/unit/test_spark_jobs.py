"""How a Spark job is watched, and how it ends."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.errors import PySparkException

from rangeland.errors import Bug, RangelandError, Unreachable
from rangeland.planning.slice_receipt import TaskResult
from rangeland.spark import spark_jobs
from rangeland.spark.spark_jobs import TaskProgress, TasksStopped, watch

REFUSED = Unreachable("broker-1:9092 cannot be reached", why="connection refused")


class Context:
    """In place of a ``SparkContext``, for one job."""

    def __init__(self) -> None:
        self.cancelled = threading.Event()
        self.cancellations = 0

    def setJobGroup(self, group: str, text: str, interrupt: bool) -> None: ...

    def cancelJobGroup(self, group: str) -> None:
        self.cancellations += 1
        self.cancelled.set()

    def wait_until_cancelled(self) -> list[str]:
        assert self.cancelled.wait(10)
        raise PySparkException("the job was cancelled")


class Session:
    def __init__(self) -> None:
        self.sparkContext = Context()


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(spark_jobs, "InheritableThread", threading.Thread)
    monkeypatch.setattr(spark_jobs, "POLL_S", 0.001)
    return Session()


def fail_with(error: BaseException) -> Callable[[], list[str]]:
    def action() -> list[str]:
        raise error

    return action


def test_a_job_returns_the_results_of_its_action(session: Any) -> None:
    assert watch(session, lambda: ["a", "b"]) == ["a", "b"]
    assert session.sparkContext.cancellations == 0


def test_a_failure_that_is_polled_ends_the_job_once_and_is_raised(session: Any) -> None:
    context = session.sparkContext
    later = Unreachable("broker-2:9092 cannot be reached")
    failures = iter([None, REFUSED])
    with pytest.raises(Unreachable) as raised:
        watch(session, context.wait_until_cancelled, lambda: next(failures, later))
    assert raised.value is REFUSED
    assert context.cancellations == 1


def test_a_job_that_is_stopped_says_so(session: Any) -> None:
    with pytest.raises(TasksStopped):
        watch(session, session.sparkContext.wait_until_cancelled, stop=lambda: True)


def test_a_job_that_ends_although_it_is_stopped_returns_its_results(session: Any) -> None:
    context = session.sparkContext

    def action() -> list[str]:
        context.cancelled.wait(10)
        return ["a"]

    assert watch(session, action, stop=lambda: True) == ["a"]


def test_an_error_of_the_watching_thread_cancels_the_job(session: Any) -> None:
    context = session.sparkContext

    def poll() -> RangelandError | None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        watch(session, context.wait_until_cancelled, poll)
    assert context.cancellations == 1


def test_an_error_of_spark_is_the_cause_of_ours(session: Any) -> None:
    aborted = PySparkException("Job aborted due to stage failure")
    with pytest.raises(Bug) as raised:
        watch(session, fail_with(aborted))
    assert raised.value.__cause__ is aborted


def test_what_is_not_spark_s_is_raised_as_it_is_and_is_not_its_own_cause(session: Any) -> None:
    with pytest.raises(EOFError) as gone:
        watch(session, fail_with(EOFError("gone")))
    assert gone.value.__cause__ is None


def test_progress_is_merged_by_slice_and_by_task() -> None:
    result = TaskResult(())
    progress = TaskProgress({0: 10}).merge(TaskProgress({1: 5}, {1: result}))
    assert progress == TaskProgress({0: 10, 1: 5}, {1: result})


def test_progress_that_is_reported_again_changes_nothing() -> None:
    progress = TaskProgress({0: 10, 1: 5}, {0: TaskResult(())})
    assert progress.merge(progress) == progress


def test_the_first_failure_stays() -> None:
    later = TaskProgress(failure=Unreachable("broker-2:9092 cannot be reached"))
    progress = TaskProgress({0: 10}).merge(TaskProgress(failure=REFUSED)).merge(later)
    assert progress == TaskProgress({0: 10}, failure=REFUSED)


def test_progress_reaches_the_driver_whole() -> None:
    progress = pickle.loads(pickle.dumps(TaskProgress({0: 10}, {0: TaskResult(())}, REFUSED)))
    assert (progress.read_widths, progress.results) == ({0: 10}, {0: TaskResult(())})
    assert progress.failure.why == "connection refused"
