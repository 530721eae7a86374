"""The ledger: a plain Delta table of plans and outcomes, in a folder of the target table.

The plans of all jobs of a table are entered one after the other, under one transaction id. So two
planners can never hold overlapping ranges: the second one plans again, knowing what the first has
entered. An outcome is prepared once per plan; the first writer wins. A plan that reads nothing is
entered together with its outcome, in one commit, which ends earlier plans of its application.
Drivers that share a plan first append parts of it, each after reading all earlier parts.

No Spark job runs here. A row is one small Parquet file whose statistics show which event it is, and
only the files that are needed are opened (``ledger_view`` reads them). ``compact`` moves older rows
into larger files, and users may run ``OPTIMIZE``: files with many rows are opened and searched.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from rangeland.delta.ledger.compaction import COMPACTIONS, compact_files, is_due
from rangeland.delta.ledger.event_codec import SCHEMA, key_of, missing_columns_sql, to_row
from rangeland.delta.ledger.events import (
    EventKey,
    LedgerEvent,
    LossEvent,
    OutcomeEvent,
    PartEvent,
    PlanEvent,
)
from rangeland.delta.ledger.ledger_files import LedgerFiles
from rangeland.delta.ledger.ledger_view import LedgerView
from rangeland.delta.stores.table_path import TablePath
from rangeland.delta.table_schema.arrow_schema import names_in, schema_json
from rangeland.delta.transaction_log.delta_kernel import DeltaKernel
from rangeland.delta.transaction_log.table_snapshot import CommitRequest, Committed, Snapshot
from rangeland.errors import Bug, Conflict, RangelandError, Unreachable
from rangeland.grouping import group_by
from rangeland.model import DataFile
from rangeland.planning.plan import PlanId

FOLDER = "_rangeland/ledger"
PLANS = "rangeland/plans"
LOSSES = "rangeland/losses"
MAX_LOST_RACES = 50
"""How often other drivers may be first to write losses before this one gives up."""
logger = logging.getLogger(__name__)

_CONFIGURATION = {
    "delta.appendOnly": "true",
    "delta.checkpointInterval": "20",
    "delta.dataSkippingStatsColumns": "event,application,job,sequence,entered,attempt,plan",
}


def _outcomes_of(application: str) -> str:
    """The transaction id of an application's outcomes. Its versions are the sequences of the
    outcomes."""
    return f"{application}/outcome"


def _transaction_of(outcome: OutcomeEvent) -> tuple[str, int]:
    """The transaction that only the first writer of this attempt can make."""
    name = _outcomes_of(outcome.application)
    if outcome.attempt:
        return f"{name}/{outcome.sequence}", outcome.attempt
    return name, outcome.sequence


def _empty_attempt_after(outcome: OutcomeEvent, now_ms: int) -> OutcomeEvent:
    """A further attempt that lands nothing: see ``OutcomeEvent.was_ended``."""
    return OutcomeEvent(
        application=outcome.application,
        job=outcome.job,
        sequence=outcome.sequence,
        plan_hash=outcome.plan_hash,
        ranges=(),
        files=(),
        written_at_ms=now_ms,
        attempt=outcome.attempt + 1,
        table_id=outcome.table_id,
    )


def plan_ended_error(plan_id: PlanId, when: str) -> RangelandError:
    """The error of a driver whose plan an adoption has ended."""
    return Conflict(
        f"the plan {plan_id} was ended {when}",
        why="`rangeland adopt` has accepted the table as it was then",
        do="run again: a new plan lands these offsets",
    ).with_answers(retry="yes", acts="nobody")


class _Version(NamedTuple):
    snapshot: Snapshot
    view: LedgerView


class Ledger:
    """The ledger of the table at ``table_path``, for writing to it. ``view`` shows its events as of
    the last ``refresh`` or the first read, plus everything that this object has written since."""

    def __init__(self, delta: DeltaKernel, table_path: str) -> None:
        self._delta = delta
        self.path = str(TablePath.parse(delta.resolve(table_path)).child(FOLDER))
        self._files = LedgerFiles(self.path, delta.storage(self.path))
        self._current: _Version | None = None
        self._stale: _Version | None = None  # still valid if nothing has been written since

    def open_or_create(self) -> Ledger:
        """Creates the ledger if there is none. Concurrent callers get the same one."""
        if self._current is None:
            snapshot = self._delta.create(self.path, schema_json(SCHEMA), (), _CONFIGURATION)
            self._current = self._version_of(snapshot)
        return self

    def exists(self) -> bool:
        if self._current is None and (snapshot := self._delta.load(self.path)) is not None:
            self._current = self._version_of(snapshot)
        return self._current is not None

    def refresh(self) -> None:
        """Makes the next read see what other drivers have written meanwhile."""
        self._stale = self._current or self._stale
        self._current = None

    @property
    def view(self) -> LedgerView:
        """The events of the ledger."""
        return self._seen_version().view

    @property
    def table_id(self) -> str:
        """Delta's own id of the ledger: one that is deleted and created again gets a new id."""
        return self._seen_version().snapshot.table_id

    @property
    def version(self) -> int:
        return self._seen_version().snapshot.version

    def entered(self) -> int:
        """The number of plans ever entered, by all jobs of this table."""
        return self._seen_version().snapshot.transaction_version(PLANS) or 0

    # --- writing ------------------------------------------------------------------------

    def enter(self, plan: PlanEvent, expected: int, unfinished: Sequence[PlanId] = ()) -> bool:
        """Enters the plan as number ``expected + 1``. False if another plan has that number: then
        refresh, compute the coverage and plan again. ``unfinished`` are the
        ``possibly_unfinished`` plans that the table lacks: later planners check them too."""
        row = self._row_of(plan, expected, unfinished)
        return row is not None and self._append((PLANS, row.entered), [row])

    def enter_with_outcome(
        self,
        plan: PlanEvent,
        outcome: OutcomeEvent,
        expected: int,
        unfinished: Sequence[PlanId] = (),
        gone: Sequence[OutcomeEvent] = (),
    ) -> bool:
        """Enters a plan as ``enter`` does, with its outcome. ``outcome``: that of a plan that reads
        nothing; both are entered in one commit. Such a plan ends the earlier plans of its
        application that have no outcome: none can be written for them any more. It also ends the
        plans of the outcomes ``gone``, which can no longer land: each gets a further attempt that
        lands nothing. Also returns False, and enters nothing, if the ledger no longer has the
        outcomes ``gone`` or if anything else was written since the ledger was read."""
        row = self._row_of(plan, expected, unfinished, gone)
        if row is None:
            return False
        ended = [p for p in self.view.without_outcome() if p.application == plan.application]
        ended += [one.plan_id for one in gone]
        row = replace(row, unfinished=tuple(p for p in row.unfinished if p not in ended))
        fence = {_outcomes_of(plan.application): plan.sequence}
        empty = [_empty_attempt_after(one, outcome.written_at_ms) for one in gone]
        fence |= dict(map(_transaction_of, empty))
        transaction = (PLANS, row.entered)
        return self._append(transaction, [row], [outcome], *([one] for one in empty), fence=fence)

    def _row_of(
        self,
        plan: PlanEvent,
        expected: int,
        unfinished: Sequence[PlanId],
        gone: Sequence[OutcomeEvent] = (),
    ) -> PlanEvent | None:
        """The plan as number ``expected + 1``, with what had landed without ``gone`` and what was
        unfinished. None if another plan has that number, or the ledger has other outcomes than
        ``gone``."""
        if self.entered() != expected:
            self.refresh()
            return None
        if any(self.view.outcome(one.plan_id) != one for one in gone):
            return None
        covered = self.view.coverage(gone)
        unfinished = tuple(dict.fromkeys([*unfinished, *self.view.without_outcome()]))
        return replace(plan, entered=expected + 1, covered=covered, unfinished=unfinished)

    def prepare_outcome(self, outcome: OutcomeEvent, losses: Sequence[LossEvent] = ()) -> bool:
        """Writes the outcome of a plan, with its losses in the same commit. False if the plan
        already has an outcome, which then counts. Outcomes of one application must be written in
        the order of their sequences; a later attempt replaces an outcome, and is also written only
        once."""
        if self._append(_transaction_of(outcome), [outcome], losses):
            return True
        plan_id = outcome.plan_id
        if self.view.outcome(plan_id) is None:
            if plan_id in self.view.possibly_unfinished():
                raise Bug(
                    f"the outcome of {plan_id} came too late",
                    why="a later sequence of the same application already has an outcome",
                )
            raise plan_ended_error(plan_id, "while it was being read")
        return False

    def append_part(self, part: PartEvent) -> bool:
        """Writes a part of a plan. Returns False if another part has that number: then read the
        parts again. So whoever writes a part knows all earlier ones."""
        return self._append((f"{part.application}/parts/{part.sequence}", part.number), [part])

    def record_losses(self, losses: Sequence[LossEvent]) -> None:
        """Writes losses that belong to no outcome, each of them once, however often it is seen:
        after a conflict the ledger is read again. All must have the same application and sequence.
        Raises Unreachable if other drivers keep writing losses."""
        for _ in range(MAX_LOST_RACES):
            recorded = group_by(self.view.losses(), lambda x: x.key)
            new = [x for x in losses if not any(map(x.is_same, recorded.get(x.key, ())))]
            number = (self._seen_version().snapshot.transaction_version(LOSSES) or 0) + 1
            if not new or self._append((LOSSES, number), new):
                return
        raise Unreachable(
            f"losses could not be recorded in the ledger {self.path} in {MAX_LOST_RACES} tries",
            why="other drivers keep recording losses of the same table",
            do="run again",
        )

    def missing_columns_sql(self) -> list[str]:
        """The columns that this ledger lacks because an earlier version created it, in SQL."""
        return missing_columns_sql(names_in(self._seen_version().snapshot.schema_json))

    def compact(self) -> bool:
        """Moves the rows of older files into one, if there are many files. Returns True if they
        were moved."""
        if not is_due({key.path for key in self.view.keys}):
            return False
        self.refresh()
        compacted = compact_files(self._delta, self._seen_version().snapshot, self._files)
        if compacted is None:
            return False
        self.refresh()
        if any(key.path == compacted.path for key in self.view.keys):
            fields = {"ledger": self.path}
            logger.info("Moved %d rows of the ledger to one file", compacted.rows, extra=fields)
            return True
        self._files.remove(compacted)
        return False

    def _append(
        self,
        transaction: tuple[str, int],
        *groups: Sequence[LedgerEvent],
        fence: Mapping[str, int] | None = None,
    ) -> bool:
        """Writes events in one commit, each group, of one kind, to a file of its own. Returns False
        if another driver has made this transaction. ``fence``: further transactions, which nobody
        can make after this commit; if given, the result is also False if anything was written since
        the ledger was read."""
        seen = self._seen_version()
        written_files = [(group[0], self._files.write(group)) for group in groups if group]
        files: list[DataFile] = [file for _, file in written_files]
        name, number = transaction
        request = CommitRequest(name, number, files)
        if fence is not None:
            version = seen.snapshot.version
            request = replace(request, more_transactions=fence, expected_version=version)
        try:
            done = self._delta.commit(seen.snapshot, request)
        except Conflict:
            if fence is None:
                raise
            done = None
        if isinstance(done, Committed):
            added = [key_of(to_row(first), file.path) for first, file in written_files]
            self._advance(seen, done, added)
            return True
        self.refresh()
        if any(key.path == files[0].path for key in self.view.keys):
            return True  # the conflict was with our own commit, whose response was lost
        snapshots = (seen.snapshot, self._seen_version().snapshot)
        if len({each.transaction_version(COMPACTIONS) for each in snapshots}) == 1:
            for file in files:  # unless a compaction has moved their rows: others still read them
                self._files.remove(file)
        fields = {"ledger": self.path, "application": name, "sequence": number}
        logger.info("Found this ledger event written by another driver", extra=fields)
        return False

    def _advance(self, seen: _Version, done: Committed, added: Sequence[EventKey]) -> None:
        """Updates the view without listing the ledger again, provided that only our own commit is
        new."""
        if done.snapshot is None or done.version != seen.snapshot.version + 1:
            self.refresh()
            return
        view = LedgerView([*seen.view.keys, *added], self._files)
        self._current = _Version(done.snapshot, view)

    # --- versions -----------------------------------------------------------------------

    def _seen_version(self) -> _Version:
        if self._current is None:
            snapshot = self._delta.load(self.path)
            known_id = self._stale and self._stale.snapshot.table_id
            if snapshot is None or known_id not in (None, snapshot.table_id):
                raise self._gone_error()
            self._current = self._version_of(snapshot)
        return self._current

    def _gone_error(self) -> RangelandError:
        if self._stale is None:
            return Bug(f"could not read the ledger {self.path}", why="it was never created")
        return Conflict(
            f"the ledger {self.path} is gone",
            why="it was there when this command began, and has since been removed or replaced",
            do="restore the folder _rangeland, or, if the table is as it should be, run "
            "`rangeland adopt JOB.yaml`, which counts its present rows as landed",
        )

    def _version_of(self, snapshot: Snapshot) -> _Version:
        if self._stale and self._stale.snapshot.version == snapshot.version:
            return self._stale
        keys = [key for file in snapshot.files() for key in self._files.keys_of(file)]
        return _Version(snapshot, LedgerView(keys, self._files))
