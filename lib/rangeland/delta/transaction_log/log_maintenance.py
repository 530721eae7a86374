"""Maintains a table's log after a commit: checkpoint, checksum, compaction.

A commit is valid whether or not its maintenance succeeds, so nothing waits for it: it runs in a
separate thread, after the maintenance of the previous commit. ``wait_for_maintenance`` returns the
failures. Nothing here knows about Java.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

Work = Callable[[], list[str]]
"""Does the maintenance after one commit; returns a warning for each part that failed."""

logger = logging.getLogger(__name__)


class LogMaintenance:
    """The maintenance threads that are running, by table."""

    def __init__(self) -> None:
        self._running: dict[str, threading.Thread] = {}
        self._failed: list[str] = []

    def start(self, table: str, work: Work) -> None:
        """Starts the maintenance after a commit; each table has at most one running at a time."""
        previous = self._running.get(table)

        def act() -> None:
            if previous is not None:
                previous.join()
            for sentence in work():
                logger.info("Maintenance failed: %s", sentence, extra={"table": table})
                self._failed.append(sentence)

        # Not a daemon: the process must not exit before the maintenance is done.
        thread = threading.Thread(target=act, name=f"rangeland-maintenance {table}")
        self._running[table] = thread
        thread.start()

    def wait_for(self, table: str) -> None:
        """Returns once no maintenance of this table is running."""
        thread = self._running.pop(table, None)
        if thread is not None:
            thread.join()

    def wait_for_maintenance(self) -> tuple[str, ...]:
        """Waits for all maintenance; returns the failures since the last call."""
        for table in list(self._running):
            self.wait_for(table)
        failed = self._failed
        self._failed = []
        return tuple(failed)
