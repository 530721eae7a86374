"""Prepares the outcomes of plans for their commit: reads, proves and checks them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from rangeland.delta.ledger.events import OutcomeEvent
from rangeland.delta.transaction_log.table_commit import NotCommitted
from rangeland.errors import RangelandError, RangeLost, Unreachable
from rangeland.landing.execution.commit_failures import read_again_warning
from rangeland.landing.execution.constraint_check import ConstraintCheck
from rangeland.landing.execution.final_log_check import LogsChanged
from rangeland.landing.execution.plan_ending import give_up
from rangeland.landing.execution.shared_reader_interface import PlanReceipts, SharedReading
from rangeland.landing.execution.spark_plan_reader import SparkPlanReader
from rangeland.landing.landing_context import LandingContext
from rangeland.landing.special_plans.replacement import Replacement, check_all_read
from rangeland.landing.special_plans.table_adoption import check_can_be_read
from rangeland.landing.target.target_writer import PreparedOutcome
from rangeland.loss import DecidedLoss, LossKind
from rangeland.planning.coverage import coverage_of, uncovered_parts
from rangeland.planning.file_proof import prove_files
from rangeland.planning.plan import Plan
from rangeland.planning.proof import prove
from rangeland.planning.slice_receipt import RangeResult, Receipt, WrittenFile


class OutcomePreparer:
    """Prepares the outcomes of plans for one job's table."""

    def __init__(
        self,
        context: LandingContext,
        reader: SparkPlanReader,
        replacement: Replacement,
        constraints: ConstraintCheck,
    ) -> None:
        self._context = context
        self._reader = reader
        self._replacement = replacement
        self._constraints = constraints

    def read_and_prepare(
        self, plan: Plan, *, is_new: bool
    ) -> tuple[OutcomeEvent, SharedReading | None]:
        """Reads a plan and prepares its outcome, together with other drivers if there are any. If
        its logs change, reads it alone: parts handed in before the change do not count."""
        check_can_be_read(plan)
        match self._reader.read_shared(plan) if plan.slices else None:
            case SharedReading(OutcomeEvent() as theirs) as shared:
                return theirs, shared
            case SharedReading(PlanReceipts() as reading) as shared:
                return self._read(plan, lambda: reading, is_shared=True), shared
            case LogsChanged() as changed:
                read = partial(self._reader.read_after_change, plan, changed)
            case None:
                read = partial(self._reader.read, plan, is_new=is_new)
        return self._read(plan, read), None

    def read_again(
        self, plan: Plan, earlier_outcome: OutcomeEvent, failure: NotCommitted
    ) -> OutcomeEvent:
        """Reads a plan again because its outcome could not be committed: its files are gone, or
        another commit has changed the types of the table's columns. Call it with a
        refreshed table. Raises TableRefused if this job's rows do not fit that either."""
        self._context.warn(read_again_warning(failure))
        return self._read(plan, partial(self._reader.read, plan, is_new=False), earlier_outcome)

    def _read(
        self,
        plan: Plan,
        read: Callable[[], PlanReceipts],
        earlier_outcome: OutcomeEvent | None = None,
        *,
        is_shared: bool = False,
    ) -> OutcomeEvent:
        """Reads all slices, proves the counts and prepares the outcome, or gives the plan up. Files
        get the columns of this job file, even if the plan was made from another version of it."""
        try:
            reading = read()
            results = self._prove(plan, reading, earlier_outcome)
            self._check_rows_can_land(plan, reading.files, is_new=earlier_outcome is None)
        except RangelandError as error:
            if not plan.kind.traits.is_given_up_for(error):
                raise
            superseded = give_up(self._context, plan, error, earlier_outcome)
            if superseded is None:
                raise
            return superseded.outcome
        prepared = self._write(plan, results, reading, earlier_outcome)
        if not (prepared.is_mine or is_shared) and earlier_outcome is None:
            self._context.warn(
                "another driver has read the same plan: its files are landed, and what this driver "
                "has read is not used"
            )
        return prepared.outcome

    def _prove(
        self, plan: Plan, reading: PlanReceipts, earlier_outcome: OutcomeEvent | None
    ) -> list[RangeResult]:
        """Proves what became of each range. Raises an error if counts or files do not add up, if a
        replacement would remove rows that the log has lost, or if ranges that already count as
        landed are missing."""
        results = prove(plan, reading.receipts)
        are_transformed = self._context.transform is not None
        prove_files(plan, reading.receipts, reading.files, are_transformed=are_transformed)
        if plan.replaces:
            check_all_read(plan, reading.receipts)
        if earlier_outcome is not None:
            check_covers_outcome(plan, earlier_outcome, results, reading.receipts)
        return results

    def _check_rows_can_land(
        self, plan: Plan, files: Sequence[WrittenFile], *, is_new: bool
    ) -> None:
        """Raises TableRefused for rows that the table's constraints do not allow, or, the first
        time that a plan is read, that lie outside the ranges to replace. If files of another driver
        are gone, constraints are not checked: the plan is read again before its commit."""
        if plan.replaces and is_new:
            self._replacement.check_rows_inside(plan, files)
        table = self._context.target.table
        data_files = [f.file for f in files]
        if not self._constraints.are_any or table.gone_prepared_files(data_files):
            return
        schema_json = table.schema.as_written(self._context.schema_to_merge())
        if (refusal := self._constraints.violation_error(data_files, schema_json)) is not None:
            raise refusal

    def _write(
        self,
        plan: Plan,
        results: Sequence[RangeResult],
        reading: PlanReceipts,
        earlier_outcome: OutcomeEvent | None,
    ) -> PreparedOutcome:
        self._context.progress.step("preparing the outcome")
        return self._context.target.writer.prepare_outcome(
            plan,
            results,
            reading.files,
            reading.receipts,
            reading.regrown,
            earlier_outcome=earlier_outcome,
            schema_json=self._context.schema_to_merge(),
        )


def check_covers_outcome(
    plan: Plan,
    earlier_outcome: OutcomeEvent,
    results: Sequence[RangeResult],
    receipts: Mapping[int, Receipt],
) -> None:
    """Raises RangeLost if a new attempt lacks ranges of the earlier one, which count as landed, and
    Unreachable if no broker serves them now. A plan that holds everything (a reread) may lack
    ranges for other reasons: their bytes are still in quarantine, so its outcome records the
    losses, and blocks no other plan."""
    coverage = coverage_of(one.range for one in results)
    lost = uncovered_parts([one.range for one in earlier_outcome.ranges], coverage)
    if not lost:
        return
    what = f"{lost[0]} was prepared, its files are gone, and it cannot be read again"
    held = [receipt.held for _, receipt in sorted(receipts.items()) if receipt.held is not None]
    if (out_of_reach := _first_unreachable(held)) is not None:
        raise Unreachable(
            what, why=out_of_reach.evidence, do="start the broker, then run again: it is read again"
        )
    if plan.kind.traits.holds_all:
        return
    raise RangeLost(
        what,
        why="the log has lost it since, or its bytes are damaged, and a policy holds it",
        do="let the policy skip it, and run again",
    )


def _first_unreachable(losses: Sequence[DecidedLoss]) -> DecidedLoss | None:
    return next((loss for loss in losses if loss.kind is LossKind.UNREACHABLE), None)
