"""Puts the models in the places of sockets, Delta Kernel, Spark, threads and clocks.

Modules of the product look names up when they are used, so it is enough to set attributes; all are
set back at the end. The models refer to the world of the present history.
"""

from __future__ import annotations

import gc
import logging
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from threading import Condition
from types import SimpleNamespace
from typing import Any

from rangeland.cluster_settings import ClusterSettings
from rangeland.connection import broker_connection
from rangeland.delta.ledger import compaction, ledger_files
from rangeland.delta.parquet_files import data_files
from rangeland.delta.quarantine import quarantine_table, quarantine_writer
from rangeland.delta.stores.store_access import StoreSettings
from rangeland.delta.stores.table_path import TablePath
from rangeland.delta.transaction_log import delta_kernel
from rangeland.fetch import fetch_thread
from rangeland.fleet import landed_topics
from rangeland.landing import landing_steps
from rangeland.landing.audit import removed_and_unknown_rows, table_rows
from rangeland.landing.execution import slice_tasks
from rangeland.landing.special_plans import replacement, table_adoption
from rangeland.landing.target import table_location, target_ledger, target_writer
from rangeland.model import Address
from rangeland.planning.plan import PlanId
from rangeland.schema_registry.unknown_ids import UnknownIds
from rangeland.spark import spark_jobs, task_context
from rangeland.spark.replace_where import RowsChanged
from rangeland.survey import cluster_survey
from tests.simulation import group_model, memories, spark, sql
from tests.simulation.clusters import SimulatedCluster, SimulatedStream
from tests.simulation.delta import SimulatedKernel, Tables
from tests.simulation.files import MemoryStore, Parquet, RowArrow
from tests.simulation.group_model import Groups
from tests.simulation.world import World

GARBAGE = 200_000
"""New objects after which cycles are looked for: there are few, and much that is not garbage."""


class Stage:
    """The world of the present history."""

    world: World
    groups: Groups
    tables: Tables
    store: MemoryStore
    cluster: SimulatedCluster


STAGE = Stage()


class VirtualTime:
    """In place of the module ``time``."""

    @staticmethod
    def monotonic() -> float:
        return STAGE.world.now_ms / 1000

    @staticmethod
    def monotonic_ns() -> int:
        return STAGE.world.now_ms * 1_000_000

    @staticmethod
    def time() -> float:
        return STAGE.world.clock_ms() / 1000

    @staticmethod
    def time_ns() -> int:
        return STAGE.world.clock_ms() * 1_000_000

    @staticmethod
    def sleep(seconds: float) -> None:
        STAGE.world.point("sleep")
        STAGE.world.sleep(seconds)


class Event:
    """In place of ``threading.Event``, for a thread that runs inline."""

    def __init__(self) -> None:
        self._is_set = False

    def set(self) -> None:
        self._is_set = True

    def is_set(self) -> bool:
        return self._is_set

    def wait(self, seconds: float) -> bool:
        if not self._is_set:
            VirtualTime.sleep(seconds)
        return self._is_set


class _Done:
    def __init__(self, act: Callable[[], Any]) -> None:
        self._result: Any = None
        self._error: BaseException | None = None
        try:
            self._result = act()
        except BaseException as error:
            self._error = error

    def result(self) -> Any:
        if self._error is not None:
            raise self._error
        return self._result


class InlinePool:
    """In place of ``ThreadPoolExecutor``."""

    def __init__(self, workers: int) -> None: ...

    def __enter__(self) -> InlinePool:
        return self

    def __exit__(self, *error: object) -> None: ...

    def submit(self, act: Callable[..., Any], *arguments: Any) -> _Done:
        return _Done(lambda: act(*arguments))


class _Workers:
    is_ready = True

    def wait(self, translated: object) -> None: ...


def _stream(address: Address, settings: ClusterSettings) -> SimulatedStream:
    return SimulatedStream(STAGE.cluster, address, settings)


def _opened(settings: StoreSettings) -> tuple[MemoryStore, str]:
    return STAGE.store, TablePath.parse(settings.uri).key


def _locked(uri: str) -> AbstractContextManager[None]:
    return STAGE.tables.locked(TablePath.parse(uri).key)


def _replaced(
    new: sql.Frame, path: str, where: str, plan_id: PlanId, *, evolves: bool
) -> RowsChanged | None:
    return sql.replace_rows(STAGE.tables, new, path, where, plan_id)


def _modules() -> list[Any]:
    return [found for name, found in sys.modules.items() if name.startswith("rangeland.")]


def _changes() -> Iterator[tuple[Any, str, Any]]:
    identifiers = SimpleNamespace(uuid4=lambda: STAGE.world.new_id(), UUID=uuid.UUID)
    for module in _modules():
        if getattr(module, "time", None) is time:
            yield module, "time", VirtualTime
    for module in (data_files, quarantine_writer, ledger_files, spark_jobs):
        yield module, "uuid", identifiers
    for module in (data_files, quarantine_table, ledger_files):
        yield module, "pq", Parquet
    yield ledger_files, "pds", Parquet
    yield ledger_files, "pa", RowArrow
    # So that histories of a few landings compact their ledgers, several times.
    yield compaction, "MANY", 5
    yield compaction, "NEWEST", 2
    yield StoreSettings, "open", _opened
    for module in (table_location, landed_topics):
        yield module, "DeltaKernel", SimulatedKernel
    yield target_writer, "ThreadPoolExecutor", InlinePool
    yield broker_connection, "Stream", _stream
    threads = SimpleNamespace(Condition=Condition, Event=Event, Thread=spark.InlineThread)
    yield fetch_thread, "threading", threads
    yield spark_jobs, "InheritableThread", spark.InlineThread
    yield task_context, "TaskContext", spark.TaskContext
    yield spark_jobs, "with_task_logging", lambda work: work
    for module in (landing_steps, slice_tasks):
        yield module, "start_workers", lambda *arguments: _Workers()
    for module, names in (
        (removed_and_unknown_rows, ("table_frame", "has_rows")),
        (table_rows, ("table_frame", "intervals_in", "rows_of_entries")),
        (replacement, ("table_frame", "has_rows", "intervals_in", "prepared_frame", "compare")),
        (table_adoption, ("table_frame", "intervals_in")),
    ):
        for name in names:
            yield module, name, getattr(sql, name)
    yield replacement, "replace_rows", _replaced
    for module in (delta_kernel, replacement, target_ledger):
        yield module, "lock_table", _locked
    yield cluster_survey.take_survey, "__defaults__", (VirtualTime.time, None)
    clocks = {"now": VirtualTime.monotonic, "pause": VirtualTime.sleep}
    yield UnknownIds.__init__, "__kwdefaults__", clocks
    yield from memories.changes()
    yield from group_model.changes(lambda: STAGE.groups, VirtualTime)


@contextmanager
def simulated() -> Iterator[Stage]:
    """While it is open, the product runs on the models."""
    before: list[tuple[Any, str, Any]] = []
    logger = logging.getLogger("rangeland")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    thresholds = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(GARBAGE)
    try:
        for holder, name, value in list(_changes()):
            before.append((holder, name, vars(holder).get(name) or getattr(holder, name)))
            setattr(holder, name, value)
        yield STAGE
    finally:
        for holder, name, value in reversed(before):
            setattr(holder, name, value)
        logger.setLevel(level)
        gc.set_threshold(*thresholds)
        gc.unfreeze()
