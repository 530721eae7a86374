"""The ledger beside a job's table, as it was last read."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from rangeland.delta.ledger.ledger_table import Ledger
from rangeland.delta.ledger.ledger_view import LedgerView
from rangeland.delta.stores.local_table_lock import lock_table
from rangeland.errors import Bug, Conflict, RangelandError, Unreachable
from rangeland.landing.target.target_table import TargetTable
from rangeland.planning.plan import PlanId
from rangeland.spark.catalog_names import LEDGER_SUFFIX, quoted_path
from rangeland.spark.spark_errors import first_line

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

_MAX_READS = 10
"""How often ledger and table are read at most: a read takes less time than a landing, so other
drivers can hardly write during each one."""


class TargetLedger:
    """The ledger of a table. ``opened`` is None if there is no ledger yet, ``entered`` is the
    number of its newest plan."""

    def __init__(self, spark: SparkSession, table: TargetTable) -> None:
        self._spark = spark
        self._table = table
        self._location = table.location
        self.opened: Ledger | None = None
        self.entered = 0

    def refresh(self) -> None:
        """Reads ledger and table again, the ledger first, so that the table's state is never older
        than the ledger's. If an outcome is prepared and committed between the two reads, or a
        ledger is created and its first plan landed, both are read again."""
        known: set[PlanId] = set()
        while True:
            self.opened = self.load_current()
            self.entered = 0 if self.opened is None else self.opened.entered()
            self._table.refresh()
            if self.opened is None and self._table.version is not None and self.load_current():
                continue
            straddled = self._landed_without_outcome()
            if straddled <= known:
                return
            known |= straddled

    def refresh_as_one(self) -> None:
        """Like ``refresh``, but repeated until no driver has written to the ledger while the table
        was being read: the ledger then has the outcomes of everything that is in the table, and
        none of later landings. Raises Unreachable if other drivers keep writing."""
        for _ in range(_MAX_READS):
            if self.opened is None:
                return
            version = self.opened.version
            self.opened.refresh()
            if self.opened.version == version:
                return
            self.refresh()
        raise Unreachable(
            f"the ledger of {self._table.name} was written to during each of {_MAX_READS} "
            "attempts to read it together with the table",
            why="other drivers are landing in the table",
            do="try again; nothing was changed",
        )

    def _landed_without_outcome(self) -> set[PlanId]:
        """Plans that are in the table and had no outcome in the ledger when the ledger was read."""
        landed_last = self._table.transaction_version
        plan_ids = self.view.without_outcome()
        return {p for p in plan_ids if landed_last(p.application) >= p.sequence}

    def load_current(self) -> Ledger | None:
        """The ledger as it is now; ``opened`` is not changed."""
        if self._location.path is None:
            return None
        ledger = Ledger(self._location.delta, self._location.path)
        return ledger if ledger.exists() else None

    @property
    def view(self) -> LedgerView:
        """The events of the ledger; none if there is no ledger yet."""
        return LedgerView() if self.opened is None else self.opened.view

    def require(self) -> Ledger:
        """The ledger; raises Bug if there is none."""
        if self.opened is None:
            raise Bug(f"the ledger of {self._table.name} is not open")
        return self.opened

    def open_or_create(self, path: str) -> None:
        self.opened = self.opened or Ledger(self._location.delta, path).open_or_create()

    def compact(self) -> str:
        """Compacts the ledger (``Ledger.compact``). If that fails, this is not an error, since
        everything has landed by then: returns a warning, otherwise an empty text."""
        try:
            self.require().compact()
        except RangelandError as error:
            logger.info("Compacting the ledger failed: %s", error)
            return f"the ledger was not compacted: {error}"
        return ""

    def register(self) -> None:
        """Registers the ledger of a catalog table under a separate name."""
        self._location.register(LEDGER_SUFFIX, self.require().path)

    def add_columns_if_lacking(self) -> None:
        """Adds the columns that the ledger lacks because an earlier version created it."""
        ledger = self.require()
        if ledger.missing_columns_sql():
            with lock_table(ledger.path):
                ledger.refresh()  # another driver may have added them before the lock was free
                self._add_columns(ledger)
            ledger.refresh()

    def _add_columns(self, ledger: Ledger) -> None:
        lacking = ledger.missing_columns_sql()
        if not lacking:
            return
        try:
            name = f"delta.{quoted_path(ledger.path)}"
            self._spark.sql(f"ALTER TABLE {name} ADD COLUMNS ({', '.join(lacking)})")
        except Exception as error:  # Spark raises many classes of Python and Java errors here
            ledger.refresh()
            if not ledger.missing_columns_sql():
                return  # a driver on another host, which has a separate lock, was first
            raise Conflict(
                f"the new columns could not be added to the ledger {ledger.path}",
                why=first_line(error),
                do="find out what else alters that table, then run again",
                columns=[column.split("`")[1] for column in lacking],
            ) from error
