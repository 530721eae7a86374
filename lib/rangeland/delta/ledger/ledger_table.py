"""The ledger: a plain Delta table of plans and outcomes, in a folder of the target table.

The plans of all jobs of a table are entered one after the other, with one transaction id: two
planners can never hold overlapping ranges, and the second one plans again, knowing what the first
has entered. Outcomes are prepared once per plan; the first writer wins. Drivers that share a plan
append parts of it first, each after reading all earlier parts.

No Spark job runs here. A row is one small Parquet file whose statistics show which event it is, and
only the files that are needed are opened. ``compact`` moves older rows into larger files, and users
may run ``OPTIMIZE``: files with many rows are opened and searched.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

from rangeland.delta.ledger.compaction import is_due, recorded_rows, to_compact
from rangeland.delta.ledger.event_keys import EventKey, LedgerView, in_order, key_of
from rangeland.delta.ledger.event_rows import (
    SCHEMA,
    from_row,
    is_complete,
    missing_columns_sql,
    to_row,
)
from rangeland.delta.ledger.events import (
    EventKind,
    EventRange,
    LedgerEvent,
    LossEvent,
    OutcomeEvent,
    PartEvent,
    PlanEvent,
    Spans,
    prepared_plans,
)
from rangeland.delta.ledger.landed_offsets import with_ranges, without_still_to_come
from rangeland.delta.ledger.ledger_files import LedgerFiles
from rangeland.delta.stores.table_path import TablePath
from rangeland.delta.table_schema.arrow_schema import names_in, schema_json
from rangeland.delta.transaction_log.delta_kernel import DeltaKernel
from rangeland.delta.transaction_log.table_snapshot import CommitRequest, Committed, Snapshot
from rangeland.errors import Bug, Conflict, RangelandError
from rangeland.model import DataFile
from rangeland.planning.plan import PlanId

FOLDER = "_rangeland/ledger"
PLANS = "rangeland/plans"
LOSSES = "rangeland/losses"
COMPACTIONS = "rangeland/compactions"
logger = logging.getLogger(__name__)

E = TypeVar("E", bound=LedgerEvent)

_CONFIGURATION = {
    "delta.appendOnly": "true",
    "delta.checkpointInterval": "20",
    "delta.dataSkippingStatsColumns": "event,application,job,sequence,entered,attempt,plan",
}


class Ledger:
    """The ledger of the table at ``table_path``. Reads return the version that the last ``refresh``
    or the first read saw, with everything that this object has written since."""

    def __init__(self, delta: DeltaKernel, table_path: str) -> None:
        self._delta = delta
        self.path = str(TablePath.parse(delta.resolve(table_path)).child(FOLDER))
        self._files = LedgerFiles(self.path, delta.storage(self.path))
        self._view: LedgerView | None = None
        self._stale: LedgerView | None = None  # still valid if nothing has been written since
        self._newest: tuple[EventKey, PlanEvent] | None = None

    def open_or_create(self) -> Ledger:
        """Creates the ledger if there is none. Concurrent callers get the same one."""
        if self._view is None:
            snapshot = self._delta.create(self.path, schema_json(SCHEMA), (), _CONFIGURATION)
            self._view = self._view_of(snapshot)
        return self

    def exists(self) -> bool:
        if self._view is None and (snapshot := self._delta.load(self.path)) is not None:
            self._view = self._view_of(snapshot)
        return self._view is not None

    def refresh(self) -> None:
        """Makes the next read see what others have written in the meantime."""
        self._stale, self._view = self._view or self._stale, None

    # --- reading ------------------------------------------------------------------------

    @property
    def table_id(self) -> str:
        """Delta's own id of the ledger: a ledger that is removed and created again gets a new
        one."""
        return self._seen().snapshot.table_id

    @property
    def version(self) -> int:
        return self._seen().snapshot.version

    def entered(self) -> int:
        """The number of plans that were ever entered, by all jobs of this table."""
        return self._seen().snapshot.transaction_version(PLANS) or 0

    def events(self) -> tuple[EventKey, ...]:
        """All events, in the order of plans entered, outcomes last."""
        return self._seen().keys

    def plan(self, plan_id: PlanId) -> PlanEvent | None:
        key = self._key(EventKind.PLAN, plan_id)
        return None if key is None else self._at(key, PlanEvent)

    def outcome(self, plan_id: PlanId) -> OutcomeEvent | None:
        key = self._key(EventKind.OUTCOME, plan_id)
        return None if key is None else self._at(key, OutcomeEvent)

    def parts(self, plan_id: PlanId) -> list[PartEvent]:
        """The parts of a shared plan that drivers have written, by number."""
        keys = [k for k in self.events() if k.event == EventKind.PART and k.plan_id == plan_id]
        events = [self._event(key) for key in sorted(keys, key=lambda key: key.attempt)]
        parts = [event for event in events if isinstance(event, PartEvent)]
        if [part.number for part in parts] != list(range(1, len(keys) + 1)):
            raise self._files.contradiction_error(f"parts of {plan_id} are missing")
        return parts

    def plans(self, application: str | None = None) -> Iterator[PlanEvent]:
        """All plans, or those of one application, newest first, each read on demand."""
        return (
            self._at(key, PlanEvent)
            for key in reversed(self.events())
            if key.event == EventKind.PLAN and application in (None, key.application)
        )

    def outcomes(self, application: str) -> Iterator[OutcomeEvent]:
        """All outcomes of one application, newest first, each read on demand."""
        keys = [
            key
            for key in self.events()
            if key.event == EventKind.OUTCOME and key.application == application
        ]
        keys.sort(key=lambda key: key.sequence, reverse=True)
        return (self._at(key, OutcomeEvent) for key in keys)

    def newest(self) -> PlanEvent | None:
        """The plan that was entered last, of any job."""
        plans = [key for key in self.events() if key.event == EventKind.PLAN]
        if not plans:
            return None
        if self._newest is None or self._newest[0] != plans[-1]:
            self._newest = (plans[-1], self._at(plans[-1], PlanEvent))
        return self._newest[1]

    def last_sequence(self, application: str) -> int:
        """The sequence of the newest plan of an application, 0 if there is none. Opens no file."""
        sequences = (
            key.sequence
            for key in self.events()
            if key.event == EventKind.PLAN and key.application == application
        )
        return max(sequences, default=0)

    def plans_of(self, job: str) -> Iterator[PlanEvent]:
        """The entered plans of a job, of all kinds, the newest first."""
        for key in reversed(self.events()):
            if key.event == EventKind.PLAN and key.job == job:
                yield self._at(key, PlanEvent)

    def prepared_plans(self) -> list[tuple[PlanEvent, OutcomeEvent]]:
        """All plans that have an outcome, in the order they were entered, each with its last
        outcome. Reads the whole ledger at once."""
        kinds = (EventKind.PLAN, EventKind.OUTCOME)
        paths = (key.path for key in self.events() if key.event in kinds)
        return prepared_plans(from_row(row) for row in self._files.read_all(paths, kinds))

    def losses(self, plan_id: PlanId | None = None) -> list[LossEvent]:
        """All losses, or those of one plan, in the order they were written. Only the last attempt
        at an outcome counts."""
        keys = [k for k in self.events() if k.event == EventKind.LOSS]
        keys = [k for k in keys if plan_id in (None, k.plan_id)]
        rows = self._files.read_all((key.path for key in keys), (EventKind.LOSS,))
        events = [from_row(row) for row in rows]
        losses = [x for x in events if isinstance(x, LossEvent) and self._counts(x)]
        losses = [x for x in losses if plan_id in (None, x.plan_id)]
        return sorted(losses, key=lambda x: (x.written_at_ms, x.loss.range))

    def _counts(self, loss: LossEvent) -> bool:
        if not loss.plan_hash:
            return True
        outcome = self._key(EventKind.OUTCOME, loss.plan_id)
        return outcome is not None and outcome.attempt == loss.attempt

    def has_losses(self, plan_id: PlanId) -> bool:
        """Opens no file."""
        return self._key(EventKind.LOSS, plan_id) is not None

    def without_outcome(self) -> list[PlanId]:
        """The plans without an outcome, oldest first: they are still running, or their run died.
        Opens no file."""
        return [key.plan_id for key in self._seen().without_outcome]

    def possibly_unfinished(self) -> tuple[PlanId, ...]:
        """All plans that may not be in the table yet: the newest one, and those not known to be in
        the table when it was entered."""
        newest = self.newest()
        if newest is None:
            return ()
        return (*newest.unfinished, newest.plan_id)

    def coverage(self) -> Spans:
        """The offsets that have landed. Reads the newest plan, and the outcomes of the plans that
        were unfinished when it was entered."""
        newest = self.newest()
        if newest is None:
            return {}
        landed = newest.covered
        for plan_id in self.possibly_unfinished():
            outcome = self.outcome(plan_id)
            if outcome is not None:
                landed = with_ranges(landed, self._landed_by(outcome))
            elif self._key(EventKind.PLAN, plan_id) is None:
                raise self._files.contradiction_error(f"plan {plan_id} is missing")
        return landed

    def _landed_by(self, outcome: OutcomeEvent) -> Sequence[EventRange]:
        if not self.has_losses(outcome.plan_id):
            return outcome.ranges
        losses = [event.loss for event in self.losses(outcome.plan_id) if event.plan_hash]
        return without_still_to_come(outcome.ranges, losses)

    # --- writing ------------------------------------------------------------------------

    def enter(self, plan: PlanEvent, expected: int, unfinished: Sequence[PlanId] = ()) -> bool:
        """Enters the plan as number ``expected + 1``. False if another plan has that number: then
        refresh, compute the coverage and plan again. ``unfinished`` are the
        ``possibly_unfinished`` plans that the table lacks: later planners check them too."""
        if self.entered() != expected:
            self.refresh()
            return False
        covered = self.coverage()
        unfinished = tuple(dict.fromkeys([*unfinished, *self.without_outcome()]))
        row = replace(plan, entered=expected + 1, covered=covered, unfinished=unfinished)
        return self._append(row, (PLANS, expected + 1))

    def prepare(self, outcome: OutcomeEvent, losses: Sequence[LossEvent] = ()) -> bool:
        """Writes the outcome of a plan, with its losses in the same commit. False if the plan
        already has an outcome, which then counts. Outcomes of one application must be written in
        the order of their sequences; a later attempt replaces an outcome, and is also written only
        once."""
        name = f"{outcome.application}/outcome"
        transaction = (name, outcome.sequence)
        if outcome.attempt:
            transaction = (f"{name}/{outcome.sequence}", outcome.attempt)
        if self._append(outcome, transaction, losses):
            return True
        if self.outcome(outcome.plan_id) is None:
            raise Bug(
                f"the outcome of {outcome.plan_id} came too late",
                why="a later sequence of the same application already has an outcome",
            )
        return False

    def append_part(self, part: PartEvent) -> bool:
        """Writes a part of a plan. False if another part has that number: then read the parts
        again. So each part is written with knowledge of all earlier ones."""
        return self._append(part, (f"{part.application}/parts/{part.sequence}", part.number))

    def record_losses(self, losses: Sequence[LossEvent]) -> None:
        """Writes losses that belong to no outcome, each once, however often it is seen: after a
        conflict the ledger is read again. All have one application and sequence."""
        while True:
            recorded = self.losses()
            new = [x for x in losses if not any(x.is_same(other) for other in recorded)]
            number = (self._seen().snapshot.transaction_version(LOSSES) or 0) + 1
            if not new or self._append(new[0], (LOSSES, number), new[1:]):
                return

    def missing_columns_sql(self) -> list[str]:
        """The columns that this ledger lacks because an earlier version created it, in SQL."""
        return missing_columns_sql(names_in(self._seen().snapshot.schema_json))

    def _append(
        self, event: LedgerEvent, transaction: tuple[str, int], losses: Sequence[LossEvent] = ()
    ) -> bool:
        view = self._seen()
        groups: list[list[LedgerEvent]] = [[event], [*losses]]
        if isinstance(event, LossEvent):  # a file has the events of one kind
            groups = [[event, *losses]]
        written_files = [(group[0], self._files.write(group)) for group in groups if group]
        files: list[DataFile] = [file for _, file in written_files]
        name, number = transaction
        done = self._delta.commit(view.snapshot, CommitRequest(name, number, files))
        if isinstance(done, Committed):
            added = [key_of(to_row(first), file.path) for first, file in written_files]
            self._advance(view, done, added)
            return True
        self.refresh()
        if any(key.path == files[0].path for key in self.events()):
            return True  # the conflict was with our own commit, whose response was lost
        snapshots = (view.snapshot, self._seen().snapshot)
        if len({each.transaction_version(COMPACTIONS) for each in snapshots}) == 1:
            for file in files:  # unless a compaction has moved their rows: others still read them
                self._files.remove(file)
        fields = {"ledger": self.path, "application": name, "sequence": number}
        logger.info("Found this ledger event written by another driver", extra=fields)
        return False

    def _advance(self, view: LedgerView, done: Committed, added: Sequence[EventKey]) -> None:
        """Updates the view without listing the ledger again, if only our commit is new."""
        if done.snapshot is None or done.version != view.snapshot.version + 1:
            self.refresh()
            return
        self._view = LedgerView(done.snapshot, in_order([*view.keys, *added]))

    # --- compaction ---------------------------------------------------------------------

    def compact(self) -> bool:
        """Moves the rows of older files into one, if there are many files. Nothing can get lost:
        rows move in one commit, and only if no other commit came in between. True if they were
        moved."""
        if not is_due({key.path for key in self.events()}):
            return False
        self.refresh()
        snapshot = self._seen().snapshot
        old = to_compact(list(snapshot.files()))
        if not old or not is_complete(snapshot.schema_json):
            return False
        compacted = self._files.rewrite([file.path for file in old])
        if compacted.rows != sum(map(recorded_rows, old)):
            why = f"{len(old)} of its files have {compacted.rows} rows"
            raise self._files.contradiction_error(why)
        number = (snapshot.transaction_version(COMPACTIONS) or 0) + 1
        request = CommitRequest(
            COMPACTIONS,
            number,
            [compacted],
            removed=old,
            moves_rows=True,
            expected_version=snapshot.version,
        )
        try:
            self._delta.commit(snapshot, request)
        except Conflict:
            logger.info("Did not compact the ledger: another driver came first")
        self.refresh()
        if any(file.path == compacted.path for file in self._seen().snapshot.files()):
            logger.info("Compacted %d files of the ledger", len(old), extra={"ledger": self.path})
            return True
        self._files.remove(compacted)
        return False

    # --- the view -----------------------------------------------------------------------

    def _seen(self) -> LedgerView:
        if self._view is None:
            snapshot = self._delta.load(self.path)
            known_id = self._stale and self._stale.snapshot.table_id
            if snapshot is None or known_id not in (None, snapshot.table_id):
                raise self._gone_error()
            self._view = self._view_of(snapshot)
        return self._view

    def _gone_error(self) -> RangelandError:
        if self._stale is None:
            return Bug(f"could not read the ledger {self.path}", why="it was never created")
        return Conflict(
            f"the ledger {self.path} is gone",
            why="it was there when this command began, and has since been removed or replaced",
            do="restore the folder _rangeland, or, if the table is right, run `rangeland adopt "
            "JOB.yaml`, which takes the rows that it has now as landed",
        )

    def _view_of(self, snapshot: Snapshot) -> LedgerView:
        if self._stale and self._stale.snapshot.version == snapshot.version:
            return self._stale
        keys = [key for file in snapshot.files() for key in self._files.keys_of(file)]
        return LedgerView(snapshot, in_order(keys))

    def _key(self, event: str, plan_id: PlanId) -> EventKey | None:
        return self._seen().last_attempts.get((event, plan_id))

    def _at(self, key: EventKey, kind: type[E]) -> E:
        event = self._event(key)
        if not isinstance(event, kind):
            what = "a plan" if kind is PlanEvent else "an outcome"
            raise self._files.contradiction_error(f"{key.path} should have {what}")
        return event

    def _event(self, key: EventKey) -> LedgerEvent:
        for row in self._files.rows_of(key):
            if (row["attempt"] or 0) == key.attempt:
                return from_row(row)
        raise self._files.contradiction_error(
            f"{key.path} does not have {key.event} {key.sequence}"
        )
