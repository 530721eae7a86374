"""The table a job lands in, with the ledger and quarantine beside it, as one target to write to.

Plans are entered here, and their parts and outcomes written and landed, through ``delta``. Of two
drivers that write the same, the first one counts, and the other gets what that one wrote. Nothing
here reads a log or decides ranges; ``job_history`` reads the table and the ledger.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pyarrow as pa

from rangeland.delta import table_commit
from rangeland.delta.ledger.events import (
    FileEntry,
    LossEvent,
    OutcomeEvent,
    PartEvent,
    PlanEvent,
    RangeEntry,
)
from rangeland.delta.ledger.ledger_table import Ledger
from rangeland.delta.table_lock import locked
from rangeland.delta.table_metadata import AddedFile
from rangeland.errors import Bug, Conflict
from rangeland.landing.identity_check import LEDGER_PROPERTY, VouchedLedger
from rangeland.landing.job_history import UnfinishedPlan
from rangeland.landing.loss_records import given_up, losses_of, seen_losses
from rangeland.logs import partition_fields
from rangeland.model import DataFile, Partition, Receipt, TaskResult
from rangeland.planning.plan import Plan
from rangeland.planning.policy import Loss
from rangeland.planning.proof import RangeOutcome
from rangeland.spark.catalog_names import LEDGER_SUFFIX, quoted_path

logger = logging.getLogger(__name__)


class LandingTarget(VouchedLedger):
    """See the module docstring."""

    def open_or_create(self, rows: pa.Schema) -> None:
        """Creates table and ledger if they do not exist. Not a refresh: a plan that was entered
        since the last one still makes ``enter`` return False."""
        if self.path is None:
            self._create_in_catalog(rows)
        path = self.path
        if path is None:
            raise Bug(f"the table {self.name} was created and has no location")
        if self._snapshot is None:
            self.refuse_strangers()
        # Both mostly wait for the JVM and the store, so do them at the same time.
        with ThreadPoolExecutor(2) as both:
            table = both.submit(self._table, path, rows)
            ledger = both.submit(self._opened_ledger, path)
            self._snapshot = table.result()
            self._ledger = ledger.result()
        self._name(LEDGER_SUFFIX, self._ledger.path)

    def _opened_ledger(self, path: str) -> Ledger:
        return self._ledger or Ledger(self.kernel, path).open_or_create()

    def enter(self, plan: Plan, unfinished: Sequence[UnfinishedPlan]) -> bool:
        """Enters a plan based on the last ``refresh``. False if another plan came first: then
        refresh and try again."""
        ledger = self._open_ledger()
        entry = PlanEvent(
            application=plan.application,
            job=plan.job,
            sequence=plan.sequence,
            plan_hash=plan.hash,
            ranges=tuple(RangeEntry(r) for r in plan.ranges),
            document=json.dumps(plan.to_json()),
            written_at_ms=_now_ms(),
            table_version=self.version,
            table_id=self.table_id,
        )
        self._add_columns_if_lacking()
        left = [(u.plan.application, u.plan.sequence) for u in unfinished]
        is_entered = ledger.enter(entry, self._entered, left)
        result = "Entered plan" if is_entered else "Found another plan entered before plan"
        logger.info("%s %s %d", result, plan.application, plan.sequence)
        return is_entered

    def prepare(
        self,
        plan: Plan,
        outcomes: Iterable[RangeOutcome],
        files: Iterable[FileEntry],
        receipts: Mapping[int, Receipt],
    ) -> tuple[OutcomeEvent, bool]:
        """Writes the outcome of a plan, with its losses. Returns the outcome that counts, and
        whether it is this one."""
        ledger = self._open_ledger()
        losses = self._with_columns(losses_of(plan, receipts, _now_ms()))
        leaders = {s.partition: str(s.leader) for s in plan.slices if s.leader}
        mine = self._outcome(plan, outcomes, files, receipts, leaders)
        if ledger.prepare(mine, losses):
            _log_prepared(mine, losses)
            return mine, True
        ledger.refresh()
        theirs = ledger.outcome(plan.application, plan.sequence)
        if theirs is None:
            raise Bug(
                f"the outcome of {plan.application} {plan.sequence} exists and cannot be read"
            )
        refuse_other_plan(plan, theirs)
        return theirs, False

    def handed_in(self, plan: Plan) -> tuple[list[PartEvent], OutcomeEvent | None]:
        """What drivers have read of a plan by now, and its outcome if it has one."""
        ledger = self._open_ledger()
        ledger.refresh()
        outcome = ledger.outcome(plan.application, plan.sequence)
        parts = [] if outcome is not None else ledger.parts(plan.application, plan.sequence)
        return parts, outcome

    def append_part(
        self,
        plan: Plan,
        member: str,
        number: int,
        units: Iterable[TaskResult],
        files: Iterable[FileEntry],
    ) -> bool:
        """Writes a part of a plan, False if another part has that number."""
        return self._open_ledger().append_part(
            PartEvent(
                application=plan.application,
                job=plan.job,
                sequence=plan.sequence,
                plan_hash=plan.hash,
                number=number,
                member=member,
                receipts=tuple(receipt for unit in units for receipt in unit.receipts),
                files=tuple(files),
                written_at_ms=_now_ms(),
            )
        )

    def replace_outcome(
        self,
        old: OutcomeEvent,
        plan: Plan,
        outcomes: Iterable[RangeOutcome],
        files: Iterable[FileEntry],
        receipts: Mapping[int, Receipt],
    ) -> OutcomeEvent:
        """Writes a new attempt for an outcome whose files are gone; returns the one that counts."""
        ledger = self._open_ledger()
        leaders = {entry.range.partition: entry.leader for entry in old.ranges}
        losses = self._with_columns(losses_of(plan, receipts, _now_ms(), old.attempt + 1))
        mine = self._outcome(plan, outcomes, files, receipts, leaders)
        mine = replace(mine, attempt=old.attempt + 1)
        if ledger.prepare(mine, losses):
            _log_prepared(mine, losses)
            return mine
        ledger.refresh()
        theirs = ledger.outcome(old.application, old.sequence)
        return theirs if theirs is not None else mine

    def give_up(self, plan: Plan, losses: Iterable[Loss], attempt: int = 0) -> OutcomeEvent:
        """Writes an outcome that lands nothing, with the losses that caused it. Returns the one
        that counts, which may be another driver's."""
        ledger = self._open_ledger()
        entries = self._with_columns(given_up(plan, losses, _now_ms(), attempt))
        mine = replace(self._outcome(plan, (), (), {}, {}), attempt=attempt)
        if ledger.prepare(mine, entries):
            _log_prepared(mine, entries)
            return mine
        ledger.refresh()
        theirs = ledger.outcome(plan.application, plan.sequence)
        return theirs if theirs is not None else mine

    def note(self, sequence: int, seen: Iterable[Loss], seen_at_ms: int | None = None) -> None:
        """Records losses that belong to no outcome, each once, as seen now unless ``seen_at_ms`` is
        given. Does nothing if there is no ledger: a run that is refused writes nothing."""
        if self._ledger is None:
            return
        name, now_ms = (self._job.application, self._job.job, sequence), _now_ms()
        if entries := seen_losses(*name, seen, seen_at_ms or now_ms, now_ms):
            self._ledger.refresh()
            self._ledger.record_losses(self._with_columns(entries))
            _log_losses(entries)

    def _with_columns(self, losses: list[LossEvent]) -> list[LossEvent]:
        """The same losses, after making sure that the ledger has columns for them."""
        if losses:
            self._add_columns_if_lacking()
        return losses

    def _add_columns_if_lacking(self) -> None:
        """Ledgers of earlier versions lack the newest columns."""
        ledger = self._open_ledger()
        if ledger.columns_to_add():
            with locked(ledger.path):
                ledger.refresh()  # another driver may have added them before the lock was free
                self._add_columns(ledger)
            ledger.refresh()

    def _add_columns(self, ledger: Ledger) -> None:
        lacking = ledger.columns_to_add()
        if not lacking:
            return
        try:
            name = f"delta.{quoted_path(ledger.path)}"
            self._spark.sql(f"ALTER TABLE {name} ADD COLUMNS ({', '.join(lacking)})")
        except Exception as error:  # Spark raises many classes of Python and Java errors here
            ledger.refresh()
            if not ledger.columns_to_add():
                return  # a driver on another host, which has another lock, was first
            raise Conflict(
                f"the ledger {ledger.path} could not be given its new columns",
                why=(str(error).strip().splitlines() or [type(error).__name__])[0][:300],
                do="find out what else alters that table, then run again",
                columns=[column.split("`")[1] for column in lacking],
            ) from error

    def land(
        self, outcome: OutcomeEvent, since: int | None, dead: Sequence[AddedFile] = ()
    ) -> table_commit.CommittedOutcome | table_commit.FilesMissing:
        """Commits all files of an outcome at once; does nothing if it has landed already. ``dead``
        are files that the table names and its store has lost: the commit removes them."""
        table = self._snapshot or self.path
        if table is None:
            raise Bug(f"an outcome is to be landed in {self.name}, which does not exist")
        files: list[DataFile] = [entry.file for entry in outcome.files]
        where = (self.kernel, table, outcome.application, outcome.sequence)
        properties = {LEDGER_PROPERTY: self._open_ledger().table_id}
        return table_commit.land(*where, files, since or 0, dead, properties)

    def _outcome(
        self,
        plan: Plan,
        outcomes: Iterable[RangeOutcome],
        files: Iterable[FileEntry],
        receipts: Mapping[int, Receipt],
        leaders: Mapping[Partition, str | None],
    ) -> OutcomeEvent:
        """``leaders`` are used where the receipts do not say which broker served a range."""
        return OutcomeEvent(
            application=plan.application,
            job=plan.job,
            sequence=plan.sequence,
            plan_hash=plan.hash,
            ranges=tuple(
                RangeEntry(
                    o.range,
                    o.counts,
                    o.leader or leaders.get(o.range.partition),
                    o.gaps,
                    o.in_bytes,
                )
                for o in outcomes
            ),
            files=tuple(files),
            written_at_ms=_now_ms(),
            kept=tuple(file for receipt in receipts.values() for file in receipt.kept),
            table_id=self.table_id,
        )


def _log_prepared(outcome: OutcomeEvent, losses: Sequence[LossEvent]) -> None:
    name = (outcome.application, outcome.sequence, outcome.attempt)
    logger.info("Prepared outcome %s %d, attempt %d: %d files", *name, len(outcome.files))
    _log_losses(losses)


def _log_losses(losses: Iterable[LossEvent]) -> None:
    for loss in losses:
        where = partition_fields(loss.range.partition, loss.range.from_offset)
        what = (loss.range, loss.verdict, loss.action, loss.evidence)
        logger.warning("Recorded that %s is %s, policy %s: %s", *what, extra=where)


def refuse_other_plan(plan: Plan, outcome: OutcomeEvent) -> None:
    """Raises Conflict where the ledger's outcome of that sequence belongs to another plan: what it
    landed is not what this plan was to land."""
    if outcome.plan_hash != plan.hash:
        raise Conflict(
            f"the ledger has an outcome of {plan.application} {plan.sequence}, of another plan",
            why=f"that plan is {outcome.plan_hash[:12]}, this one {plan.hash[:12]}; the table's "
            "transactions or the ledger's rows were lost in between",
            do="read the newest rows of the ledger, then accept the table as it is with `rangeland "
            "adopt JOB.yaml`",
        )


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
