"""What a reading that ends early returns, with and without a transform."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rangeland.errors import RangelandError, RangeLost, Unreachable
from rangeland.landing.execution import slice_tasks
from rangeland.landing.execution.slice_tasks import SliceTasks
from rangeland.loss import Loss, LossKind
from rangeland.model import Partition
from rangeland.planning.loss_errors import range_lost_error
from rangeland.spark import spark_jobs
from rangeland.spark.spark_jobs import TasksStopped
from tests.fakes.landing import landing_context
from tests.unit.test_landing_target import plan

P = Partition("orders", 0)
EXPIRED = range_lost_error([Loss(P, 0, 40, LossKind.EXPIRED, "it begins at 40")])
AWAY = Unreachable("b1:9092 cannot be reached")


class Tasks(SliceTasks):
    """Tasks without Spark. Both ways of reading end with ``error``."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, error: Exception, transform: Any) -> None:
        def end(*about: object, **more: object) -> Any:
            raise error

        monkeypatch.setattr(slice_tasks, "wait_for_workers", lambda context: None)
        monkeypatch.setattr(slice_tasks, "check_files_are_visible", lambda *about: None)
        monkeypatch.setattr(slice_tasks, "run_transformed", end)
        monkeypatch.setattr(spark_jobs, "_run", end)
        super().__init__(replace(landing_context(None), transform=transform))

    def _tasks_to_run(self, *about: object, **more: object) -> Any:
        progress = SimpleNamespace(accumulator=lambda first, _: SimpleNamespace(value=first))
        return SimpleNamespace(spark=SimpleNamespace(sparkContext=progress))


def error_of(
    monkeypatch: pytest.MonkeyPatch, error: Exception, transform: Any
) -> RangelandError | None:
    tasks = Tasks(monkeypatch, error, transform)
    results, found = tasks.read_until_stopped(
        plan(), cast(Any, None), plan().slices, lambda: False, {}
    )
    assert results == []
    return found


@pytest.mark.parametrize("transform", [None, "a transform"])
def test_the_error_that_ends_a_reading_is_returned(
    transform: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert error_of(monkeypatch, AWAY, transform) is AWAY
    lost = error_of(monkeypatch, EXPIRED, transform)
    assert isinstance(lost, RangeLost)
    assert [loss.kind for loss in lost.losses] == [LossKind.EXPIRED]


@pytest.mark.parametrize("transform", [None, "a transform"])
def test_a_reading_that_is_stopped_has_no_error(
    transform: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert error_of(monkeypatch, TasksStopped(), transform) is None
