"""Reports landings as OpenLineage events. Every way to land comes through here.

Nothing that goes wrong here, be it in making an event or in sending it, ends a landing, or delays
it for long: it becomes a warning.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from threading import Lock
from typing import TYPE_CHECKING, Any, Self, TypeVar

from rangeland.delta.stores.table_path import TablePath
from rangeland.errors import RangelandError, is_caused_by_interrupt
from rangeland.job import Job
from rangeland.landing.landing_context import LandingContext
from rangeland.monitoring.lineage_client import WAIT_S, LineageDestination, open_destinations
from rangeland.progress_events import Progress
from rangeland.results import RunResult, add_warning
from rangeland.spark.spark_errors import as_own_error

if TYPE_CHECKING:
    from openlineage.client.event_v2 import RunEvent
    from openlineage.client.generated.parent_run import ParentRunFacet

    from rangeland.monitoring.lineage_events import LandedTable, LandingEvents

T = TypeVar("T")
ABORT_S = 2.0
"""How long an interrupted command waits for its events."""

logger = logging.getLogger(__name__)


def report_landing(
    job: Job,
    progress: Progress,
    land: Callable[[LandingLineage], T],
    reporter: LineageReporter | None = None,
) -> T:
    """Calls ``land``, and returns its result once the events are sent. A warning about them goes to
    ``progress`` and to the result. ``reporter``: that of a command with many landings, which sends
    the events instead, and warns."""
    if reporter is not None:
        return reporter.report(job, land)
    with LineageReporter(progress.warn) as own_reporter:
        result = own_reporter.report(job, land)
    return add_warning(result, own_reporter.warning)


class LineageReporter:
    """Reports the landings of one command, which may be many side by side, and sends their events
    until it is left. Does nothing if no events are wanted. ``warn`` is called once at most, at the
    end, with the text that is then in ``warning``."""

    def __init__(self, warn: Callable[[str], None]) -> None:
        self.warning = ""
        self._warn = warn
        self._warnings: list[str] = []
        self._destinations: list[LineageDestination] = []
        self._parent: ParentRunFacet | None = None
        self._running: set[LandingLineage] = set()
        self._lock = Lock()

    def __enter__(self) -> Self:
        self._destinations, self._warnings = open_destinations()
        if self._destinations:
            self._parent = self.made(self._find_parent)
        return self

    def _find_parent(self) -> ParentRunFacet | None:
        from rangeland.monitoring.lineage_events import parent_facet

        try:
            return parent_facet(os.environ)
        except ValueError:
            self._warnings.append(
                "the OpenLineage events name no parent: OPENLINEAGE_PARENT_ID or "
                "OPENLINEAGE_ROOT_PARENT_ID is not NAMESPACE/JOB/RUN_ID"
            )
            return None

    def __exit__(self, _: object, error: BaseException | None, *__: object) -> None:
        for landing in list(self._running):  # of threads that an interruption leaves behind
            landing.abort()
        is_interrupted = error is not None and is_caused_by_interrupt(error)
        deadline_s = time.monotonic() + (ABORT_S if is_interrupted else WAIT_S)
        try:
            failures = self._close_destinations(deadline_s)
        except KeyboardInterrupt:
            if error is not None:
                raise
            # What has landed is to be told all the same: only the wait ends.
            failures = self._close_destinations(time.monotonic())
        texts = (text for text in (*self._warnings, *failures) if text)
        self.warning = ". ".join(dict.fromkeys(texts))
        if self.warning:
            self._warn(self.warning)

    def _close_destinations(self, deadline_s: float) -> list[str]:
        """Waits until this moment at most. Returns a warning, or an empty text, for each."""
        return [destination.close(deadline_s) for destination in self._destinations]

    def report(self, job: Job, land: Callable[[LandingLineage], T]) -> T:
        """Calls ``land``, reports how it began and how it ended, and returns its result."""
        landing = self._start(job)
        try:
            result = land(landing)
        except BaseException as error:
            landing.fail(error)
            raise
        if isinstance(result, RunResult):
            landing.complete(result)
        return result

    def report_failure(self, job: Job | str, error: RangelandError) -> None:
        """Reports a job that failed before its table was looked at. Of some, only the name is
        known."""
        self._start(job).fail(error)

    def _start(self, job: Job | str) -> LandingLineage:
        events = self.made(lambda: self._events_of(job)) if self._destinations else None
        landing = LandingLineage(self, events)
        with self._lock:
            self._running.add(landing)
        landing.start()
        return landing

    def _events_of(self, job: Job | str) -> LandingEvents:
        from rangeland.monitoring.lineage_events import LineageJob, landing_events, lineage_job

        known = LineageJob(job) if isinstance(job, str) else lineage_job(job)
        return landing_events(known, self._parent, os.environ)

    def claim_end(self, landing: LandingLineage) -> bool:
        """Whether the end of this landing is to be reported: the first time, but not again."""
        with self._lock:
            is_running = landing in self._running
            self._running.discard(landing)
        return is_running

    def send(self, make: Callable[[datetime], RunEvent]) -> None:
        """Sends the event that ``make`` returns for the present."""
        at = datetime.now(UTC)
        for destination in self._destinations:
            # Each gets its own, because the client adds facets to it, in another thread.
            if (event := self.made(lambda: make(at))) is not None:
                destination.send(event)

    def made(self, make: Callable[[], T]) -> T | None:
        """What ``make`` returns; None, and a warning, if it fails."""
        try:
            return make()
        except Exception as error:  # Whatever it is, the landing goes on.
            self._warnings.append(
                f"an OpenLineage event could not be made ({type(error).__name__})"
            )
            logger.info("Failed to make an OpenLineage event", exc_info=error)
            return None


class LandingLineage:
    """One landing while it is reported. Its table is known after ``note_opened``."""

    def __init__(self, reporter: LineageReporter, events: LandingEvents | None) -> None:
        self._reporter = reporter
        self._events = events
        self._context: LandingContext | None = None
        self._table: LandedTable | None = None
        self._spark_version = ""

    def start(self) -> None:
        if (events := self._events) is not None:
            self._reporter.send(events.start)

    def note_opened(self, context: LandingContext) -> LandingContext:
        """Takes note of the table, and returns the context."""
        if self._events is not None:
            self._context = context
            self._table = self._reporter.made(lambda: _table_of(context))
            self._spark_version = self._reporter.made(lambda: str(context.spark.version)) or ""
        return context

    def complete(self, result: RunResult) -> None:
        """Reports what has landed. What happens after that is not reported."""
        if not self._reporter.claim_end(self) or (events := self._events) is None:
            return
        context = self._context
        if self._table is None and context is not None:  # It has been created in a catalog.
            self._table = self._reporter.made(lambda: _table_of(context))
        table = self._table
        if table is not None and context is not None:
            version = result.table_version
            columns = self._reporter.made(lambda: _schema_of(context, version)) or ""
            table = replace(table, schema_json=columns)
        self._reporter.send(lambda at: events.complete(at, result, table, self._spark_version))

    def fail(self, error: BaseException) -> None:
        """Reports an error, or an interruption."""
        if not self._reporter.claim_end(self) or (events := self._events) is None:
            return
        if isinstance(error, Exception) and not is_caused_by_interrupt(error):
            own = as_own_error(error)
            known = (self._table, self._spark_version)
            self._reporter.send(lambda at: events.fail(at, own, *known))
        else:
            self._reporter.send(events.abort)

    def abort(self) -> None:
        self.fail(KeyboardInterrupt())


def _table_of(context: LandingContext) -> LandedTable | None:
    """The table of a command; None for a table in a catalog that does not exist yet."""
    from rangeland.monitoring.lineage_events import LandedTable, catalog_symlink, table_name

    location = context.target.table.location
    if location.path is None:
        return None
    path = TablePath.parse(location.path)
    symlink = None
    if context.job.sink.is_catalog_name:
        # Only then: without a name in a catalog, there may be no session yet, and none is needed.
        symlink = catalog_symlink(location.name, path, _catalog_conf(context.spark))
    return LandedTable(table_name(path), symlink)


def _catalog_conf(spark: Any) -> dict[str, str]:
    """What ``catalog_symlink`` needs to know of a session."""
    from rangeland.monitoring.lineage_events import CATALOG_SETTINGS, CURRENT_CATALOG, METASTORE

    conf = {name: str(spark.conf.get(name)) for name in CATALOG_SETTINGS}
    conf[METASTORE] = spark.sparkContext._jsc.hadoopConfiguration().get(METASTORE) or ""
    conf[CURRENT_CATALOG] = str(spark.catalog.currentCatalog())
    return conf


def _schema_of(context: LandingContext, version: int | None) -> str:
    """The table's columns, as Delta's JSON, in this version or a later one; empty if there is no
    table."""
    table = context.target.table
    snapshot = table.snapshot
    if version is not None and (snapshot is None or snapshot.version < version):
        snapshot = table.location.load()
    return "" if snapshot is None else snapshot.schema_json
