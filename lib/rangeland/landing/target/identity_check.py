"""Whether a table and the ledger beside it belong together, and what has landed according to both.

Each names the other. The table has the ledger's id in its property ``rangeland.ledger``, and its
transactions record what has landed; every plan in the ledger has the table's id. If they disagree,
nothing may land until an operator has decided, or records could land twice or never.
``table_adoption`` records that decision.

A property survives checkpoints, ``OPTIMIZE`` and ``INSERT OVERWRITE``; ``CREATE OR REPLACE`` and
clones lose it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from rangeland.delta.ledger.events import PlanEvent
from rangeland.delta.parquet_files.file_statistics import may_hold
from rangeland.delta.table_schema.column_mapping import stored_column
from rangeland.errors import Conflict
from rangeland.landing.target.target_ledger import TargetLedger
from rangeland.landing.target.target_table import RETENTION_PROPERTY, TargetTable
from rangeland.model import DataFile
from rangeland.planning.plan import PlanId

LEDGER_PROPERTY = "rangeland.ledger"
_ADOPT = (
    "or, if the table is right, `rangeland adopt JOB.yaml`, which takes the rows that it "
    "has now as landed"
)


class IdentityCheck:
    """Checks a table and the ledger beside it against each other."""

    def __init__(self, application: str, table: TargetTable, ledger: TargetLedger) -> None:
        self._application = application
        self._table = table
        self._ledger = ledger
        self._sequences: dict[tuple[PlanId, int | None], int] = {}

    # --- what has landed ----------------------------------------------------------------

    def landed_sequence(self, application: str) -> int:
        """The last sequence of an application that is in the table, 0 for none.

        The table's transaction shows it for as long as it exists: a Delta checkpoint drops
        transactions older than ``delta.setTransactionRetentionDuration``. After that the ledger and
        the table's history decide. Raises Conflict if they do not show it."""
        landed_last = self._table.transaction_version(application)
        last = self._ledger.view.last_sequence(application)
        if landed_last >= last or 0 < landed_last == last - 1:
            return landed_last
        if landed_last:
            raise self._contradiction_error(application, landed_last, last)
        plan_id = PlanId(application, last)
        key = (plan_id, self._table.version)
        if key not in self._sequences:
            self._sequences[key] = self._without_transaction(plan_id)
        return self._sequences[key]

    def _without_transaction(self, plan_id: PlanId) -> int:
        last, ledger = plan_id.sequence, self._ledger.view
        plan, outcome = ledger.plan(plan_id), ledger.outcome(plan_id)
        if plan is None or outcome is None or self._table.snapshot is None:
            return last - 1  # nothing is committed before its outcome is in the ledger
        landed = self._has_landed(plan)
        if landed is None:
            raise Conflict(
                f"it is unknown whether {plan_id} has landed in {self._table.name}",
                why="the table's transaction of that name is gone, and so is the part of its "
                f"history that would show it; its property {RETENTION_PROPERTY} may be the cause",
                do="check with `rangeland verify JOB.yaml` whether its rows are there, then run "
                "`rangeland adopt JOB.yaml`, and `rangeland backfill JOB.yaml --missing` for "
                "those that are not",
            )
        return last if landed else last - 1

    def _has_landed(self, plan: PlanEvent) -> bool | None:
        """Whether a plan with an outcome is in the table, whose transaction of it is gone; None if
        unknown. Asks for the cheapest evidence first. Commits since the table was read do not
        count."""
        if plan.plan_id not in self._ledger.view.possibly_unfinished():
            return True  # a later plan was entered by a driver that saw this one in the table
        made_at, version = plan.table_version or 0, self._table.version or 0
        log = self._table.commits(made_at)
        commits = [c for c in log if made_at < c.version <= version]
        if any(c.transactions.get(plan.application) == plan.sequence for c in commits):
            return True
        # The log may go back to before the plan was made. Or the plan may have been made for a
        # version that is in the log and newer than the one read.
        first = commits[0].version if commits else version + 1
        if first == made_at + 1 or any(c.version >= made_at > version for c in log):
            return False
        outcome = self._ledger.view.outcome(plan.plan_id)
        return True if outcome is not None and self._has_one_of(outcome.data_files) else None

    def _contradiction_error(self, application: str, landed_last: int, last: int) -> Conflict:
        return Conflict(
            f"the table {self._table.name} has landed {landed_last} of {application}, "
            f"its ledger {last}",
            why="the table's folder and _rangeland are from different times, as after one of them "
            "was restored from a backup",
            do=f"restore both as they were at the same time, {_ADOPT}",
        )

    def unknown_topics(self, topics: Collection[str], *, now: bool = False) -> list[str]:
        """The topics without a landing in the ledger, as of the last ``refresh`` or ``now``."""
        ledger = self._ledger.load_current() if now else self._ledger.opened
        coverage = {} if ledger is None else ledger.view.coverage()
        return sorted(set(topics) - {partition.topic for partition in coverage})

    def unknown_topics_in_table(self, topics: Collection[str]) -> list[str]:
        """The topics that the ledger does not know and of which the table may have rows, going by
        the statistics of its files."""
        new = self.unknown_topics(topics)
        if not new or self._table.snapshot is None:
            return []
        files = list(self._table.snapshot.files())
        column = stored_column(self._table.snapshot.schema_json, self._table.log_columns.topic)
        return [topic for topic in new if any(may_hold(f, column, topic) for f in files)]

    # --- whether they belong together ----------------------------------------------------

    def check_table_and_ledger_agree(self) -> None:
        """Raises Conflict if table and ledger do not belong together."""
        if (error := self.disagreement_error()) is not None:
            raise error

    def disagreement_error(self) -> Conflict | None:
        """The error if table and ledger do not belong together. Cheap if all is well."""
        if self._ledger.opened is None:
            return self._without_ledger_error()
        newest = self._ledger.opened.view.newest()
        if self._table.snapshot is None:
            return None if newest is None else self._without_table_error(newest)
        claimed = self._table.snapshot.property(LEDGER_PROPERTY)
        if claimed not in (None, self._ledger.opened.table_id) and self._has_files():
            return self._another_ledger_error()
        if newest is None or self._is_table_of(newest):
            return None
        return Conflict(
            f"the table {self._table.name} is not the one that its ledger belongs to",
            why=f"the ledger's newest plan, {newest.application} {newest.sequence}, was made for "
            "another table at that path: it was created again or replaced since, and what the "
            "ledger calls landed may not be in it",
            do="restore the former table; or move its folder _rangeland away, to land "
            f"everything again; {_ADOPT}",
            table_id=self._table.snapshot.table_id,
            ledger_table_id=newest.table_id,
        )

    def _has_files(self) -> bool:
        return (
            self._table.snapshot is not None
            and next(self._table.snapshot.files(), None) is not None
        )

    def _has_one_of(self, files: Iterable[DataFile]) -> bool:
        """Whether the table has at least one of these files."""
        paths = {file.path for file in files}
        if not paths or self._table.snapshot is None:
            return False
        return any(file.path in paths for file in self._table.snapshot.files())

    def _without_ledger_error(self) -> Conflict | None:
        if self._table.snapshot is None:
            return None
        application = self._application
        sequence = self._table.transaction_version(application)
        claimed = self._table.snapshot.property(LEDGER_PROPERTY)
        if not sequence and (claimed is None or not self._has_files()):
            return None  # CREATE TABLE ... LIKE copies properties, but no rows
        why = f"{application} has landed {sequence} in it" if sequence else "records were landed"
        return Conflict(
            f"the table {self._table.name} has no ledger",
            why=f"{why}, so the folder _rangeland was deleted, or this is a copy or clone of "
            "another table; what has landed is unknown",
            do=f"copy the folder _rangeland from where the table came from, {_ADOPT}",
        )

    def _without_table_error(self, newest: PlanEvent) -> Conflict:
        return Conflict(
            f"the table {self._table.name} is gone, and its ledger is still there",
            why=f"the ledger's newest plan is {newest.application} {newest.sequence}; a new table "
            "would lack what it calls landed",
            do="restore the table; or move the folder _rangeland away, to land everything "
            "again; or `rangeland adopt JOB.yaml`, to go on with an empty table",
        )

    def _another_ledger_error(self) -> Conflict:
        return Conflict(
            f"the ledger beside the table {self._table.name} is not the one that the table names",
            why="the folder _rangeland was created again, or comes from another table",
            do=f"restore the former folder, {_ADOPT}",
        )

    def _is_table_of(self, newest: PlanEvent) -> bool:
        """Whether this is the ledger's table, by its id. Ledgers of version 0.1.0 have no ids: for
        them, the table must have something that was landed."""
        if self._table.snapshot is None:
            return False
        if newest.table_id is not None:
            return newest.table_id == self._table.snapshot.table_id
        ledger = self._ledger.view
        recent = ledger.possibly_unfinished()
        settled = [
            outcome for _, outcome in ledger.prepared_plans() if outcome.plan_id not in recent
        ]
        if not settled or any(self._table.transaction_version(o.application) for o in settled[-5:]):
            return True
        return self._has_one_of(file for outcome in settled for file in outcome.data_files)
