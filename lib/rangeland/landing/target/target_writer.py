"""Enters plans in the ledger, writes their parts and outcomes, and lands outcomes in the table.

If two drivers write the same thing, the first one counts, and the other gets what the first one
wrote. This module neither reads a log nor decides ranges.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import pyarrow as pa

from rangeland.clock import wall_ms
from rangeland.delta.ledger.events import (
    LogFingerprint,
    LossEvent,
    OutcomeEvent,
    PartEvent,
    PlanEvent,
)
from rangeland.delta.ledger.ledger_table import plan_ended_error
from rangeland.delta.table_metadata import AddedFile
from rangeland.delta.transaction_log import table_commit
from rangeland.delta.transaction_log.table_snapshot import CommitRequest
from rangeland.errors import Bug, Conflict
from rangeland.grouping import sum_by_key
from rangeland.job import Job
from rangeland.landing.target.identity_check import LEDGER_PROPERTY
from rangeland.landing.target.job_history import EnteredPlan
from rangeland.landing.target.loss_records import (
    losses_of,
    losses_of_given_up,
    regrown_losses,
    seen_losses,
)
from rangeland.landing.target.target_ledger import TargetLedger
from rangeland.landing.target.target_table import TargetTable
from rangeland.logging_setup import partition_fields
from rangeland.loss import DecidedLoss, Loss
from rangeland.model import Counts, Partition
from rangeland.planning.log_identity import Fingerprints
from rangeland.planning.plan import Plan, PlanId, contradiction
from rangeland.planning.slice_receipt import RangeResult, Receipt, TaskResult, WrittenFile

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PreparedOutcome:
    """The outcome that the ledger has for a plan. ``is_mine``: this driver prepared it; otherwise
    another driver was first."""

    outcome: OutcomeEvent
    is_mine: bool


class TargetWriter:
    """Writes to the ledger and the table of one job."""

    def __init__(self, job: Job, table: TargetTable, ledger: TargetLedger) -> None:
        self._job = job
        self._table = table
        self._location = table.location
        self._ledger = ledger

    def open_or_create(self, row_schema: pa.Schema) -> None:
        """Creates table and ledger if they do not exist. This is not a refresh: if a plan was
        entered since the last one, ``enter`` still returns False."""
        path = self._location.locate_or_create(row_schema)
        if self._table.snapshot is None:
            self._location.check_folder_is_free()
        # Both mostly wait for the JVM and the store, so do them at the same time.
        with ThreadPoolExecutor(2) as pool:
            table = pool.submit(self._table.open_or_create, path, row_schema)
            ledger = pool.submit(self._ledger.open_or_create, path)
            table.result()
            ledger.result()
        self._ledger.register()

    def enter(self, plan: Plan, unfinished: Sequence[EnteredPlan]) -> bool:
        """Enters a plan that is based on the last ``refresh``. Returns False if another plan came
        first: then refresh and try again. Raises Bug for a plan that contradicts itself, since no
        reading of it could be proved."""
        if (why := contradiction(plan)) is not None:
            raise Bug(f"the plan {plan.id} contradicts itself", why=why)
        ledger = self._ledger.require()
        event = self._event_of(plan)
        is_entered = ledger.enter(event, self._ledger.entered, _ids_of(unfinished))
        _log_entry(plan, is_entered=is_entered)
        return is_entered

    def enter_adoption(
        self,
        plan: Plan,
        unfinished: Sequence[EnteredPlan],
        gone: Sequence[OutcomeEvent] = (),
    ) -> OutcomeEvent | None:
        """Enters a plan that reads nothing, with the outcome by which all of its offsets count as
        landed, in one commit: without it, nobody could finish the plan. The same commit ends the
        plans of the outcomes ``gone``, which can no longer land. None if another driver came
        first."""
        ranges = tuple(RangeResult(r, Counts(landed=r.width)) for r in plan.ranges)
        outcome = replace(self._empty_outcome(plan, 0), ranges=ranges)
        ledger = self._ledger.require()
        event = self._event_of(plan)
        entered = self._ledger.entered
        names = _ids_of(unfinished)
        is_entered = ledger.enter_with_outcome(event, outcome, entered, names, gone)
        _log_entry(plan, is_entered=is_entered)
        return outcome if is_entered else None

    def _event_of(self, plan: Plan) -> PlanEvent:
        """The plan as an event, after making sure that the ledger has columns for it."""
        event = PlanEvent(
            application=plan.application,
            job=plan.job,
            sequence=plan.sequence,
            plan_hash=plan.hash,
            ranges=plan.ranges,
            document=json.dumps(plan.to_json()),
            written_at_ms=wall_ms(),
            table_version=self._table.version,
            table_id=self._table.table_id,
        )
        self._ledger.add_columns_if_lacking()
        return event

    def prepare_outcome(
        self,
        plan: Plan,
        results: Iterable[RangeResult],
        files: Iterable[WrittenFile],
        receipts: Mapping[int, Receipt],
        regrown: Mapping[DecidedLoss, int] | None = None,
        *,
        earlier_outcome: OutcomeEvent | None = None,
        schema_json: str | None = None,
    ) -> PreparedOutcome:
        """Writes the outcome of a plan, with its losses. ``earlier_outcome``: the one whose files
        are gone, which this one replaces as a new attempt. ``schema_json``: the schema of its
        files, if it is not the plan's."""
        attempt = 0
        now_ms = wall_ms()
        leaders = {s.partition: str(s.leader) for s in plan.slices if s.leader}
        if earlier_outcome is not None:
            attempt = earlier_outcome.attempt + 1
            leaders = {e.range.partition: e.address for e in earlier_outcome.ranges}
        losses = losses_of(plan, receipts, now_ms, attempt)
        losses += regrown_losses(plan, regrown or {}, now_ms)
        schema_ids = sum_by_key(pair for r in receipts.values() for pair in r.schema_ids)
        schema_json = plan.schema_json if schema_json is None else schema_json
        outcome = replace(
            self._empty_outcome(plan, attempt),
            ranges=tuple(_with_leader(result, leaders) for result in results),
            files=tuple(files),
            quarantine_files=tuple(f for r in receipts.values() for f in r.quarantine_files),
            schema_ids=tuple(sorted(schema_ids.items())),
            schema_json=self._table.schema.as_written(schema_json),
        )
        return self._record(plan, outcome, losses)

    def _record(self, plan: Plan, mine: OutcomeEvent, losses: list[LossEvent]) -> PreparedOutcome:
        """Writes an outcome with its losses, or returns one that another driver wrote first."""
        ledger = self._ledger.require()
        if ledger.prepare_outcome(mine, self._with_columns(losses)):
            _log_prepared(plan, mine, losses)
            return PreparedOutcome(mine, is_mine=True)
        ledger.refresh()
        theirs = ledger.view.outcome(plan.id)
        if theirs is None:
            raise Bug(f"the outcome of {plan.id} exists but cannot be read")
        check_same_plan(plan, theirs)
        check_outcome_is_not_ended(plan, theirs)
        return PreparedOutcome(theirs, is_mine=False)

    def parts_so_far(self, plan: Plan) -> tuple[list[PartEvent], OutcomeEvent | None]:
        """The parts of a plan that drivers have read so far, and its outcome if it has one."""
        ledger = self._ledger.require()
        ledger.refresh()
        outcome = ledger.view.outcome(plan.id)
        parts = [] if outcome is not None else ledger.view.parts(plan.id)
        return parts, outcome

    def append_part(
        self,
        plan: Plan,
        member: str,
        number: int,
        results: Iterable[TaskResult],
        files: Iterable[WrittenFile],
        fingerprints: Fingerprints,
    ) -> bool:
        """Writes a part of a plan. Returns False if another part has that number.
        ``fingerprints``: those of the plan's logs from before the part was read."""
        receipts = tuple(receipt for result in results for receipt in result.receipts)
        partitions = {receipt.partition for receipt in receipts}
        return self._ledger.require().append_part(
            PartEvent(
                application=plan.application,
                job=plan.job,
                sequence=plan.sequence,
                plan_hash=plan.hash,
                number=number,
                member=member,
                receipts=receipts,
                files=tuple(files),
                written_at_ms=wall_ms(),
                fingerprints=tuple(
                    LogFingerprint(*pair) for pair in fingerprints.items() if pair[0] in partitions
                ),
            )
        )

    def give_up(self, plan: Plan, losses: Iterable[Loss], attempt: int = 0) -> OutcomeEvent:
        """Writes an outcome that lands nothing, with the losses that caused it. Returns the outcome
        that counts, which may be another driver's."""
        events = losses_of_given_up(plan, losses, wall_ms(), attempt)
        return self._record(plan, self._empty_outcome(plan, attempt), events).outcome

    def record_losses(
        self, sequence: int, seen: Iterable[DecidedLoss], seen_at_ms: int | None = None
    ) -> None:
        """Records losses that belong to no outcome, each once; without ``seen_at_ms``, as seen now.
        Does nothing if there is no ledger, since a run that is refused writes nothing."""
        if (ledger := self._ledger.opened) is None:
            return
        now_ms = wall_ms()
        job = self._job
        if events := seen_losses(
            application=job.application,
            job=job.name,
            sequence=sequence,
            seen=seen,
            seen_at_ms=seen_at_ms or now_ms,
            now_ms=now_ms,
        ):
            ledger.refresh()
            ledger.record_losses(self._with_columns(events))
            _log_losses(events)

    def _with_columns(self, losses: list[LossEvent]) -> list[LossEvent]:
        """Returns the losses, after making sure that the ledger has columns for them."""
        if losses:
            self._ledger.add_columns_if_lacking()
        return losses

    def commit_outcome(
        self,
        outcome: OutcomeEvent,
        gone: Sequence[AddedFile] = (),
        expected_version: int | None = None,
    ) -> table_commit.CommittedOutcome | table_commit.NotCommitted | table_commit.TableMoved:
        """Commits all files of an outcome at once; does nothing if it has already landed. Its rows
        must have been checked against the table's constraints. ``gone`` are files that the table
        names but its store has lost: the commit removes them, and until then the table cannot be
        read. ``expected_version``: the version that the commit must directly follow, if the commit
        depends on it."""
        table = self._table.snapshot or self._location.uri
        request = CommitRequest(
            outcome.application,
            outcome.sequence,
            outcome.data_files,
            removed=gone,
            properties={LEDGER_PROPERTY: self._ledger.require().table_id},
            schema_json=outcome.schema_json,
            checked=self._table.schema.constraints(),
            expected_version=expected_version,
        )
        return table_commit.commit_once(self._location.delta, table, request)

    def set_ledger_property(self) -> None:
        """Sets the property that names the ledger in the table, in a separate commit:
        ``commit_outcome`` does this together with the rows, but Spark's commits cannot."""
        snapshot = self._table.snapshot
        ledger_id = self._ledger.require().table_id
        if snapshot is None or snapshot.property(LEDGER_PROPERTY) == ledger_id:
            return
        request = CommitRequest(
            f"{LEDGER_PROPERTY}/{ledger_id}",
            1,
            properties={LEDGER_PROPERTY: ledger_id},
            checked=self._table.schema.constraints(),
        )
        table_commit.commit_once(self._location.delta, snapshot, request)
        self._table.refresh()

    def _empty_outcome(self, plan: Plan, attempt: int) -> OutcomeEvent:
        """An outcome of a plan that lands nothing."""
        return OutcomeEvent(
            application=plan.application,
            job=plan.job,
            sequence=plan.sequence,
            plan_hash=plan.hash,
            ranges=(),
            files=(),
            written_at_ms=wall_ms(),
            attempt=attempt,
            table_id=self._table.table_id,
        )


def _ids_of(unfinished: Iterable[EnteredPlan]) -> list[PlanId]:
    return [entered.plan.id for entered in unfinished]


def _log_entry(plan: Plan, *, is_entered: bool) -> None:
    text = "Entered plan %s" if is_entered else "Did not enter plan %s: another came first"
    logger.info(text, plan.id)


def _with_leader(result: RangeResult, leaders: Mapping[Partition, str]) -> RangeResult:
    """The result with its partition's leader, where the receipts do not show which broker served
    it."""
    leader = leaders.get(result.range.partition, "")
    return replace(result, address=result.address or leader)


def _log_prepared(plan: Plan, outcome: OutcomeEvent, losses: Sequence[LossEvent]) -> None:
    logger.info(
        "Prepared outcome %s, attempt %d: %d files", plan.id, outcome.attempt, len(outcome.files)
    )
    _log_losses(losses)


def _log_losses(losses: Iterable[LossEvent]) -> None:
    for loss in (event.loss for event in losses):
        fields = partition_fields(loss.partition, loss.from_offset)
        logger.warning(
            "Recorded that %s, policy %s: %s", loss, loss.action, loss.evidence, extra=fields
        )


def check_outcome_is_not_ended(plan: Plan, outcome: OutcomeEvent) -> None:
    """Raises Conflict if an adoption has ended the plan since it was prepared: its rows are not
    in the table."""
    if outcome.was_ended(plan.kind):
        raise plan_ended_error(plan.id, "after it was prepared, as its files were gone")


def check_same_plan(plan: Plan, outcome: OutcomeEvent) -> None:
    """Raises Conflict if the ledger's outcome for that sequence belongs to another plan, which
    landed other records."""
    if outcome.plan_hash != plan.hash:
        raise Conflict(
            f"the ledger's outcome for {plan.id} belongs to another plan",
            why=f"that plan is {outcome.plan_hash[:12]}, this one {plan.hash[:12]}; the table's "
            "transactions or the ledger's rows were lost in between",
            do="read the newest rows of the ledger, then accept the table as it is with `rangeland "
            "adopt JOB.yaml`",
        )
