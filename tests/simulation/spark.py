"""A model of Spark: tasks run one after the other in the driver's thread, and are tried again,
copied or lost as faults demand.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.errors import PySparkException

from rangeland.errors import RangelandError
from tests.simulation.delta import Tables
from tests.simulation.files import MemoryStore
from tests.simulation.world import ExecutorLost, World

MAX_FAILURES = 4


class Accumulator:
    def __init__(self, value: Any, param: Any) -> None:
        self.value = value
        self._param = param

    def add(self, more: Any) -> None:
        self.value = self._param.addInPlace(self.value, more)


@dataclass(frozen=True)
class TaskState:
    attempt: int

    def attemptNumber(self) -> int:
        return self.attempt


class TaskContext:
    """In place of PySpark's."""

    now: TaskState | None = None

    @classmethod
    def get(cls) -> TaskState | None:
        return cls.now


class Rdd:
    def __init__(self, context: SparkContext, parts: Sequence[Sequence[Any]]) -> None:
        self._context = context
        self._parts = parts
        self._work: Callable[[Iterator[Any]], Iterator[Any]] = lambda items: items

    def mapPartitions(self, work: Callable[[Iterator[Any]], Iterator[Any]]) -> Rdd:
        self._work = work
        return self

    def collect(self) -> list[Any]:
        """Tasks start in any order; results are in the order of the parts."""
        order = list(range(len(self._parts)))
        self._context.random.shuffle(order)
        results: dict[int, list[Any]] = {}
        for index in order:
            if self._context.is_cancelled:
                raise PySparkException("the job was cancelled")
            results[index] = self._task(self._parts[index])
        return [item for index in sorted(results) for item in results[index]]

    def _task(self, items: Sequence[Any]) -> list[Any]:
        world = self._context.world
        for attempt in range(MAX_FAILURES):
            TaskContext.now = TaskState(attempt)
            world.current.in_task += 1
            try:
                if world.point("task.start") == "speculate":
                    list(self._work(iter(items)))  # a copy that ends later: its result is dropped
                found = list(self._work(iter(items)))
                if world.point("task.end") != "result-lost":
                    return found
                error: BaseException = ExecutorLost()
            except (ExecutorLost, RangelandError) as raised:
                error = raised
            finally:
                world.current.in_task -= 1
                TaskContext.now = None
        name = f"rangeland.errors.{type(error).__name__}: {error}"
        if isinstance(error, ExecutorLost):
            name = "ExecutorLostFailure (executor 1 exited)"
        raise PySparkException(f"Job aborted due to stage failure\n{name}")


class SparkContext:
    def __init__(self, world: World, *, is_local: bool) -> None:
        self.world = world
        self.random = random.Random(world.seed)
        self.master = "local[2]" if is_local else "yarn"
        self.defaultParallelism = 2
        self.applicationId = "simulated"
        self.is_cancelled = False

    @property
    def _conf(self) -> dict[str, str]:
        return {"spark.task.maxFailures": str(MAX_FAILURES)}

    def accumulator(self, value: Any, param: Any) -> Accumulator:
        return Accumulator(value, param)

    def parallelize(self, items: Sequence[Any], count: int) -> Rdd:
        return Rdd(self, [[item] for item in items])

    def setJobGroup(self, group: str, text: str, interrupt: bool) -> None:
        self.is_cancelled = False

    def cancelJobGroup(self, group: str) -> None:
        self.is_cancelled = True


class SimulatedSpark:
    """A session: what the product uses of it, and the world that it is in."""

    def __init__(self, world: World, tables: Tables, store: MemoryStore, *, is_local: bool) -> None:
        self.world = world
        self.tables = tables
        self.store = store
        self.sparkContext = SparkContext(world, is_local=is_local)


class InlineThread:
    """In place of a thread that the caller waits for: it has ended when ``start`` returns."""

    def __init__(self, target: Callable[[], None], name: str = "", daemon: bool = True) -> None:
        self._target = target
        self._polls = 1

    def start(self) -> None:
        self._target()

    def is_alive(self) -> bool:
        """Once more after its end, so that a caller that polls sees what it has left."""
        self._polls -= 1
        return self._polls >= 0

    def join(self, timeout: float | None = None) -> None: ...
