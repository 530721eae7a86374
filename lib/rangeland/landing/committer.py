"""Takes one plan to its end: read, prove, prepare, commit; from wherever it was left.

A plan may be new, or in the ledger with or without an outcome. Each step is recorded before the
next begins, so a plan that was interrupted goes on where it stopped. Which plan to finish is
decided elsewhere.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from rangeland.delta.ledger.events import EventFile, OutcomeEvent
from rangeland.delta.parquet_files.partition_values import NULL_FOLDER
from rangeland.delta.table_metadata import AddedFile, Function, TableLayout
from rangeland.delta.transaction_log.table_commit import (
    CommittedOutcome,
    FilesGone,
    FilesUnfit,
    NotCommitted,
    RowsRefused,
    gone_files,
    landed_at,
)
from rangeland.errors import (
    FOUND_BEFORE_PLANS,
    PLAN_STAYS,
    BadRecord,
    Conflict,
    RangelandError,
    RangeLost,
    StorageFailed,
    TableRefused,
    TransformFailed,
)
from rangeland.landing.constraint_check import ConstraintCheck
from rangeland.landing.final_log_check import LogChange
from rangeland.landing.job_history import EnteredPlan
from rangeland.landing.landing_context import LandingContext
from rangeland.landing.landing_target import check_same_plan
from rangeland.landing.loss_records import losses_in
from rangeland.landing.replacement import Replacement, check_all_read
from rangeland.landing.shared_reader import SharedOutcome
from rangeland.landing.spark_plan_reader import PlanReceipts, SparkPlanReader, check_covers_outcome
from rangeland.logging_setup import partition_fields
from rangeland.model import DataFile
from rangeland.planning.plan import Plan, PlanKind
from rangeland.planning.proof import RangeResult, prove
from rangeland.planning.slice_receipt import Receipt
from rangeland.planning.table_audit import ReplacedRange
from rangeland.wording import count_noun

logger = logging.getLogger(__name__)

_PERMANENT = (RangeLost, BadRecord, TableRefused, TransformFailed)
"""Errors that another attempt at the same plan would meet again."""


@dataclass(frozen=True, slots=True)
class CommittedPlan:
    """One plan that is in the table now. ``recovered``: another or an earlier driver entered it."""

    plan: Plan
    outcome: OutcomeEvent
    landed: CommittedOutcome
    recovered: bool
    is_shared: bool = False

    @property
    def is_ours(self) -> bool:
        """This driver has landed it, alone or with others."""
        return self.landed.is_new or self.is_shared


class PlanCommitter:
    """Finishes plans of one job's table. ``replaced`` counts what replacements have changed."""

    def __init__(self, context: LandingContext, reader: SparkPlanReader) -> None:
        self.target, self.progress, self._warn = context.target, context.progress, context.warn
        self.reader = reader
        self.replacement = Replacement(context.spark, self.target)
        self.constraints = ConstraintCheck(context.spark, self.target)
        self.replaced: ReplacedRange | None = None

    def finish_new(self, plan: Plan) -> CommittedPlan:
        """Reads a plan that this driver has just entered, and commits it. A plan that can never
        succeed is given up where its kind allows that."""
        return self._finish(EnteredPlan(plan, self.target.table.version, None), is_new=True)

    def finish_entered(self, entered: EnteredPlan) -> CommittedPlan:
        """Finishes a plan that another run has left, from where it stands. If it is given up, the
        error is a warning: this run has not asked for the plan, and goes on."""
        try:
            return self._finish(entered, is_new=False)
        except _PERMANENT as error:
            plan = entered.plan
            if not _may_be_given_up(plan, error):
                raise
            self.target.refresh()
            given_up = self.target.history.plan_with_outcome(plan)
            if given_up is None or given_up.outcome is None or given_up.outcome.ranges:
                raise
            stays = "rows in the table stay" if plan.replaces else "records stay in quarantine"
            self._warn(f"{plan.application} was given up, its {stays}: {error}")
            return self._finish(given_up, is_new=False)

    def _finish(self, entered: EnteredPlan, *, is_new: bool) -> CommittedPlan:
        plan, outcome = entered.plan, entered.outcome
        self.progress.planned(plan, recovered=not is_new)
        if not is_new:
            logger.info("Finishing plan %s, which another run entered", plan.id)
        shared: SharedOutcome | None = None
        try:
            if outcome is None:
                outcome, shared = self._outcome_of(plan, is_new=is_new)
            check_same_plan(plan, outcome)
            outcome, landed = self._commit(plan, outcome, entered.table_version)
        except FOUND_BEFORE_PLANS as error:
            raise error.with_answers(data=PLAN_STAYS) from error.__cause__
        _log_committed(plan, outcome, landed)
        nulls = [f for f in outcome.files if None in f.file.partition_values.values()]
        if landed.is_new and nulls:
            for text in without_time(nulls, self.target.schema.layout(self.reader.row_schema)):
                self._warn(text)
        recovered = not (is_new or (shared is not None and shared.with_others))
        return CommittedPlan(plan, outcome, landed, recovered, shared is not None)

    def _commit(
        self, plan: Plan, outcome: OutcomeEvent, since: int | None
    ) -> tuple[OutcomeEvent, CommittedOutcome]:
        """Commits the outcome, or one that is read again if it cannot be committed. Returns the
        outcome that the table has."""
        landed = self._try_commit(plan, outcome, since)
        if isinstance(landed, CommittedOutcome):
            return outcome, landed
        # Another driver may have landed the files while they were there.
        self.target.table.refresh_same_table()
        if (found := self._found_landed(plan, since)) is not None:
            return outcome, found
        outcome = self._read_again(plan, outcome, landed)
        landed = self._try_commit(plan, outcome, since)
        if isinstance(landed, CommittedOutcome):
            return outcome, landed
        raise _commit_error(plan, landed)

    def _try_commit(
        self, plan: Plan, outcome: OutcomeEvent, since: int | None
    ) -> CommittedOutcome | NotCommitted:
        """Commits an outcome as its kind of plan requires. Does nothing if it has landed."""
        if (landed := self._found_landed(plan, since)) is not None:
            return landed
        if outcome.quarantine_files or outcome.attempt:
            if outcome.quarantine_files:
                self.progress.step(
                    f"keeping {count_noun(len(outcome.quarantine_files), 'file')} in quarantine"
                )
            if (missing := self.target.quarantine.commit(outcome)) is not None:
                return missing
        if self.constraints.are_any and (gone := self.target.table.gone_prepared_files(outcome)):
            return FilesGone(gone)
        files = [one.file for one in outcome.files]
        if (refused := self.constraints.violation_error(files, outcome.schema_json)) is not None:
            return RowsRefused(refused)
        if plan.kind is PlanKind.REPLACE:
            return self._replace(plan, outcome, since)
        self.progress.step(f"committing {count_noun(len(outcome.files), 'file')}")
        if plan.kind is not PlanKind.HOLES:
            return self.target.land(outcome, since)
        if self.replacement.has_rows_of(plan):
            # The missing rows are back by other means: replace them with these.
            return self.replacement.land(plan, outcome, since)
        return self.target.land(outcome, since, self.target.table.gone_files())

    def _found_landed(self, plan: Plan, since: int | None) -> CommittedOutcome | None:
        """The landing of a plan that the table had when it was read."""
        if self.target.identity.landed_sequence(plan.application) < plan.sequence:
            return None
        delta, path = self.target.table.delta, self.target.table.uri
        version = landed_at(delta, path, plan.id, since or 0)
        return CommittedOutcome(version, is_new=False)

    def _replace(
        self, plan: Plan, outcome: OutcomeEvent, since: int | None
    ) -> CommittedOutcome | NotCommitted:
        if not outcome.ranges:
            self._warn(f"{plan.application} was given up: the rows in the table stay")
            return self.target.land(outcome, since)
        if gone := self.target.table.gone_prepared_files(outcome):
            return FilesGone(gone)
        if (unfit := self.replacement.unfit(outcome)) is not None:
            return unfit
        self._compare(plan, outcome)
        self.progress.step("replacing rows")
        try:
            return self.replacement.land(plan, outcome, since)
        except StorageFailed as error:
            self.target.table.refresh()
            if not (files := self.target.table.gone_files()):
                raise
            of_another = self._give_up(plan, _gone_error(plan, files, error), outcome.attempt + 1)
        return self._replace(plan, of_another, since)

    def _compare(self, plan: Plan, outcome: OutcomeEvent) -> None:
        """Counts what the replacement changes. For information only: the plan goes on if rows of
        some type cannot be compared."""
        self.progress.step("comparing with the rows in the table")
        try:
            replaced = self.replacement.differences(plan, outcome)
        except StorageFailed as error:
            self._warn(str(error))
            return
        self.replaced = (self.replaced or ReplacedRange()) + replaced

    def _outcome_of(self, plan: Plan, *, is_new: bool) -> tuple[OutcomeEvent, SharedOutcome | None]:
        """Reads a plan and prepares its outcome: together with other drivers, if there are any,
        as long as its logs do not change. What was handed in before a change does not count."""
        try:
            shared = (
                self.reader.read_shared(plan, partial(self._prepare_shared, plan))
                if plan.slices
                else None
            )
        except LogChange as change:
            return self._read(plan, is_new=is_new, after=change), None
        if shared is not None:
            return shared.outcome, shared
        return self._read(plan, is_new=is_new), None

    def _read(
        self,
        plan: Plan,
        *,
        is_new: bool = False,
        after: LogChange | None = None,
        instead_of: OutcomeEvent | None = None,
    ) -> OutcomeEvent:
        """Reads all slices, proves the counts and prepares the outcome. ``instead_of``: an outcome
        that could not be committed, which the new one replaces. ``after``: the change of the logs
        that makes a second reading necessary. A plan that was made from another version of the job
        file is written with the columns of this one."""
        try:
            receipts = self.reader.read(plan, is_new=is_new, after=after)
            outcomes = self._prove(plan, receipts, instead_of)
        except _PERMANENT as error:
            return self._give_up(plan, error, instead_of.attempt + 1 if instead_of else 0)
        outcome, is_mine = self._prepare(plan, outcomes, receipts, instead_of)
        if not is_mine and instead_of is None:
            self._warn("another driver has read the same plan; its files are landed instead")
        return outcome

    def _prepare_shared(
        self, plan: Plan, receipts: Mapping[int, Receipt], files: Sequence[EventFile]
    ) -> OutcomeEvent:
        """The outcome of a plan that several drivers have read: this one's, or another's."""
        whole = PlanReceipts(receipts, files)
        return self._prepare(plan, self._prove(plan, whole), whole)[0]

    def _prove(
        self, plan: Plan, receipts: PlanReceipts, instead_of: OutcomeEvent | None = None
    ) -> list[RangeResult]:
        """What became of each range. Raises for counts that do not add up, and where what was read
        may not land."""
        outcomes = prove(plan, receipts.receipts)
        if plan.replaces:
            check_all_read(plan, receipts.receipts)
        if instead_of is not None:
            check_covers_outcome(instead_of, outcomes)
        elif plan.replaces:
            self.replacement.check_rows_inside(plan, receipts.files)
        self._check_constraints_hold([one.file for one in receipts.files])
        return outcomes

    def _check_constraints_hold(self, files: Sequence[DataFile]) -> None:
        """Raises TableRefused for a row that the table's constraints do not allow. Nothing is read
        where files of another driver are gone: the plan is then read again before its commit."""
        if not self.constraints.are_any or gone_files(self.target.table.storage(), files):
            return
        schema_json = self.target.schema.as_written(self.reader.schema_to_merge())
        if (refused := self.constraints.violation_error(files, schema_json)) is not None:
            raise refused

    def _prepare(
        self,
        plan: Plan,
        outcomes: Sequence[RangeResult],
        receipts: PlanReceipts,
        instead_of: OutcomeEvent | None = None,
    ) -> tuple[OutcomeEvent, bool]:
        """Writes the outcome. Returns the one that counts, and whether it is this driver's."""
        self.progress.step("preparing the outcome")
        return self.target.prepare(
            plan,
            outcomes,
            receipts.files,
            receipts.receipts,
            receipts.regrown,
            instead_of=instead_of,
            schema_json=self.reader.schema_to_merge(),
        )

    def _read_again(self, plan: Plan, outcome: OutcomeEvent, why: NotCommitted) -> OutcomeEvent:
        """Reads a plan again because prepared files are gone, or because another commit has given
        the table's columns other types. Raises TableRefused if this job's rows do not fit
        either."""
        self._warn(f"{_why_again(why)} read from the log again")
        if isinstance(why, FilesUnfit):
            self.target.table.refresh_same_table()
        return self._read(plan, instead_of=outcome)

    def _give_up(self, plan: Plan, error: RangelandError, attempt: int = 0) -> OutcomeEvent:
        """Ends a plan that cannot succeed without changing the table: it would block every later
        run. Raises the error, unless another driver has read the plan successfully: then its
        outcome counts, and is returned."""
        if not _may_be_given_up(plan, error):
            raise error
        self.progress.step("giving up the plan")
        outcome = self.target.give_up(plan, losses_in(error), attempt)
        if outcome.ranges:
            return outcome
        self.target.land(outcome, None)
        raise error


def _may_be_given_up(plan: Plan, error: RangelandError) -> bool:
    """True where nothing is missing from the table without the plan: the rows to replace are still
    there, and the records on which a transform fails are still in quarantine."""
    is_redrive = plan.kind is PlanKind.REDRIVE and isinstance(error, TransformFailed)
    return plan.replaces or is_redrive


def _why_again(why: NotCommitted) -> str:
    match why:
        case FilesUnfit(misfit=misfit):
            return f"column {misfit.field} of the table has been changed meanwhile; the plan is"
        case RowsRefused(refusal=refusal):
            return f"{refusal.what}; the plan is"
        case FilesGone(paths=(_,)):
            return "1 prepared file is gone and is"
        case FilesGone(paths=paths):
            return f"{len(paths)} prepared files are gone and are"


def _commit_error(plan: Plan, why: NotCommitted) -> RangelandError:
    match why:
        case FilesUnfit(misfit=misfit):
            return Conflict(
                f"files of {plan.id} do not fit the table again",
                why=f"another writer has changed column {misfit.field} meanwhile",
                do="run again",
            )
        case RowsRefused(refusal=refusal):
            return refusal
        case FilesGone(paths=paths):
            return StorageFailed(
                f"files of {plan.id} are gone again",
                why=f"there are {len(paths)}; the first is {paths[0]}",
                do="find out what removes files from the table's folder, then run again",
            )


def _gone_error(plan: Plan, gone: Sequence[AddedFile], error: StorageFailed) -> TableRefused:
    """The error of a replacement that is given up: left unfinished, it would block the plan that
    lands the missing rows again."""
    return TableRefused(
        f"rows of {plan.ranges[0]} cannot be replaced",
        why=f"the table's file {gone[0].path} is gone: {error.why or error.what}",
        do="land what is missing with `rangeland backfill JOB.yaml --missing`, then replace again",
    )


def _log_committed(plan: Plan, outcome: OutcomeEvent, landed: CommittedOutcome) -> None:
    if not landed.is_new:
        logger.info("Found plan %s in the table already", plan.id)
        return
    counts = (len(outcome.files), len(outcome.ranges))
    logger.info(
        "Committed plan %s at version %s: %d files, %d ranges", plan.id, landed.version, *counts
    )
    for one in outcome.ranges:
        where = partition_fields(one.range.partition, one.range.from_offset)
        logger.debug("Committed %s with plan %s", one.range, plan.id, extra=where)


def without_time(files: Sequence[EventFile], layout: TableLayout) -> list[str]:
    """A warning for each column of days or hours that is null in some records."""
    warnings = []
    for column in layout.partition_by:
        rows = sum(
            f.file.rows for f in files if f.file.partition_values.get(column.key, "") is None
        )
        if rows and column.function is not Function.VALUE:
            records = "1 record has" if rows == 1 else f"{rows} records have"
            warnings.append(
                f"{records} no {column.source}, or one outside the years 1 to 9999: landed with "
                f"{column.name} = NULL (folder {column.name}={NULL_FOLDER})"
            )
    return warnings
