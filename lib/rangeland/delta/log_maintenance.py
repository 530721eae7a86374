"""What a table wants after a commit: checkpoint, checksum, compaction of its log.

A commit stands whether its upkeep works or not, so nobody waits for it: it runs in a thread
of its own, after that of the commit before. What failed is said when everything is settled.
Nothing here knows Java.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

Work = Callable[[], list[str]]
"""Does the upkeep of one commit; gives a sentence for each part that failed."""

_logger = logging.getLogger(__name__)


class LogMaintenance:
    """The upkeep that is under way, by table."""

    def __init__(self) -> None:
        self._running: dict[str, threading.Thread] = {}
        self._failed: list[str] = []

    def start(self, table: str, work: Work) -> None:
        """Begins the upkeep of a commit; of one table there is one at a time."""
        before = self._running.get(table)

        def act() -> None:
            if before is not None:
                before.join()
            for sentence in work():
                _logger.info(sentence, extra={"table": table})
                self._failed.append(sentence)

        # Not a daemon: a process that ends well ends with its tables looked after.
        thread = threading.Thread(target=act, name=f"rangeland-upkeep {table}")
        self._running[table] = thread
        thread.start()

    def wait_for(self, table: str) -> None:
        """Returns once no upkeep of this table is under way."""
        thread = self._running.pop(table, None)
        if thread is not None:
            thread.join()

    def settle(self) -> tuple[str, ...]:
        """Waits for all of it; what failed since the last time."""
        for table in list(self._running):
            self.wait_for(table)
        failed, self._failed = self._failed, []
        return tuple(failed)
