"""The job's consumer group in virtual time: the group backend in memory of ``tests.fakes``, and
heartbeats that are sent whenever the driver takes a step after they are due.

A driver that is paused, or that waits for a rebalance, sends no heartbeats meanwhile. That is
harder than real drivers have it, whose heartbeats have a thread of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from rangeland.cluster_settings import ClusterSettings
from rangeland.errors import Unreachable
from rangeland.job import Job
from rangeland.job_group import heartbeat_thread, lease
from rangeland.model import Partition
from tests.fakes import group_backend
from tests.fakes.group_backend import InMemoryGroupBackend, InMemoryGroups
from tests.simulation.world import Process, World

GROUP = "orders"
SHORTEST_WAIT_S = 0.25


class Groups(InMemoryGroups):
    """The groups of one world."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world
        self.changed: Any = _Condition(world)

    def offsets(self) -> dict[Partition, int]:
        return self.group(GROUP).offsets


class Backend(InMemoryGroupBackend):
    """A driver's way to the groups; it may be refused, and a dead driver has none."""

    groups: Groups

    def reached(self) -> None:
        if self.groups.world.point("group") == "refused":
            raise Unreachable("the group backend cannot be reached", why="it refuses")


class _Condition:
    """In place of ``threading.Condition``: only one process runs at any time, and nothing that
    holds it takes a step."""

    def __init__(self, world: World) -> None:
        self._world = world

    def __enter__(self) -> None: ...

    def __exit__(self, *error: object) -> None: ...

    def wait(self, seconds: float) -> None:
        self._world.point("group.wait")
        self._world.sleep(max(seconds, SHORTEST_WAIT_S))

    def notify_all(self) -> None: ...


class _Lock:
    """In place of ``threading.RLock``. ``depth``: how often the driver holds it."""

    def __init__(self) -> None:
        self.depth = 0

    def acquire(self, timeout: float = -1) -> bool:
        self.depth += 1
        return True

    def release(self) -> None:
        self.depth -= 1

    def __enter__(self) -> None:
        self.depth += 1

    def __exit__(self, *error: object) -> None:
        self.depth -= 1


class _Ended:
    """In place of the event that ends the heartbeats: each wait allows for one of them."""

    def __init__(self) -> None:
        self._is_set = False
        self.is_due = False

    def set(self) -> None:
        self._is_set = True

    def is_set(self) -> bool:
        return self._is_set

    def wait(self, seconds: float) -> bool:
        is_due, self.is_due = self.is_due, False
        return self._is_set or not is_due


class _Beats:
    """In place of the thread that sends heartbeats."""

    def __init__(self, target: Callable[[], None], **how: object) -> None:
        self._beat = target
        self._heartbeat: Any = getattr(target, "__self__")  # noqa: B009
        self._world: World = self._heartbeat._membership.backend.groups.world
        self._process: Process = self._world.current
        self._is_beating = False
        self._due_ms = 0

    def start(self) -> None:
        self._wait()
        self._process.background = self._step

    def join(self, timeout: float | None = None) -> None:
        self._process.background = None

    def _wait(self) -> None:
        self._due_ms = self._world.now_ms + self._heartbeat._membership.beat_ms

    def _step(self) -> None:
        if self._is_beating or self._heartbeat._lock.depth or self._world.now_ms < self._due_ms:
            return
        self._is_beating = self._heartbeat._ended.is_due = True
        try:
            self._beat()
        finally:
            self._is_beating = False
            self._wait()


class Threading:
    """In place of the module ``threading`` of the heartbeat."""

    RLock = _Lock
    Event = _Ended
    Thread = _Beats


def changes(groups_now: Callable[[], Groups], time: Any) -> Iterator[tuple[Any, str, Any]]:
    def opened(job: Job, settings: ClusterSettings) -> Backend:
        groups = groups_now()
        return Backend(groups, groups.world.current.name.replace(" ", "-"))

    yield heartbeat_thread, "threading", Threading
    yield lease, "open_backend", opened
    yield group_backend, "time", time
