"""Takes one plan through to its commit.

A plan may be new, or in the ledger with or without an outcome. Each step is recorded before the
next begins, so an interrupted plan resumes where it stopped. Which plan to finish is decided
elsewhere.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

from rangeland.delta.ledger.events import OutcomeEvent
from rangeland.delta.parquet_files.partition_values import NULL_FOLDER
from rangeland.delta.table_metadata import Function, TableLayout
from rangeland.delta.transaction_log.table_commit import (
    CommittedOutcome,
    FilesGone,
    FilesUnfit,
    NotCommitted,
    RowsRefused,
    TableMoved,
)
from rangeland.error_answers import PlanStage, at_stage
from rangeland.errors import EngineFailed, RangelandError, StorageFailed
from rangeland.landing.execution.commit_failures import (
    Raise,
    ReadAgain,
    TryAgain,
    gone_rows_error,
    step_after_failure,
)
from rangeland.landing.execution.constraint_check import ConstraintCheck
from rangeland.landing.execution.outcome_preparation import OutcomePreparer
from rangeland.landing.execution.plan_ending import (
    Superseded,
    check_plan_is_not_ended,
    give_up,
    has_landed_by_now,
)
from rangeland.landing.execution.shared_reader_interface import SharedReading
from rangeland.landing.execution.spark_plan_reader import SparkPlanReader
from rangeland.landing.landing_context import LandingContext
from rangeland.landing.special_plans.repaired_offsets import check_can_be_replaced
from rangeland.landing.special_plans.replacement import Replacement
from rangeland.landing.target.job_history import EnteredPlan
from rangeland.landing.target.landing_commits import landed_at
from rangeland.landing.target.target_writer import check_outcome_is_not_ended, check_same_plan
from rangeland.logging_setup import partition_fields
from rangeland.planning.plan import Plan
from rangeland.planning.plan_kind import WriteMode
from rangeland.planning.slice_receipt import WrittenFile
from rangeland.planning.table_audit import ReplacedRange
from rangeland.spark.replace_where import RowsChanged, names_file
from rangeland.wording import count_noun

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CommittedPlan:
    """A plan that is now in the table. ``recovered``: another or an earlier driver entered it."""

    plan: Plan
    outcome: OutcomeEvent
    landed: CommittedOutcome
    recovered: bool
    is_shared: bool = False
    replaced: ReplacedRange | None = None
    """What the plan has changed, if this driver replaced rows that could be compared."""

    @property
    def is_given_up(self) -> bool:
        """Whether the plan was given up: it is in the table, but lands nothing."""
        return self.outcome.is_given_up(self.plan.kind)

    @property
    def is_ours(self) -> bool:
        """Whether this driver landed the plan, alone or with others."""
        return self.landed.is_new or self.is_shared


@dataclass(frozen=True, slots=True)
class RowsReplaced:
    """The outcome is in the table, and its rows have replaced others. ``differences`` is what that
    has changed; None if the rows could not be compared."""

    landed: CommittedOutcome
    differences: ReplacedRange | None


Attempt = CommittedOutcome | RowsReplaced | NotCommitted | Superseded | RowsChanged | TableMoved
"""How an attempt to commit an outcome may end."""


class PlanCommitter:
    """Finishes plans for one job's table."""

    def __init__(self, context: LandingContext, reader: SparkPlanReader) -> None:
        self._context = context
        self._target = context.target
        self._replacement = Replacement(context)
        self._constraints = ConstraintCheck(context)
        self._outcomes = OutcomePreparer(context, reader, self._replacement, self._constraints)

    def finish_new(self, plan: Plan) -> CommittedPlan:
        """Reads a plan that this driver has just entered, and commits it. A plan that can never
        succeed is given up if its kind allows that."""
        entered = EnteredPlan(plan, self._target.table.version, None)
        return self._finish(entered, is_new=True)

    def finish_entered(self, entered: EnteredPlan) -> CommittedPlan:
        """Finishes a plan that another run left unfinished. If it is given up, the error becomes a
        warning: this run did not ask for the plan, and continues."""
        plan = entered.plan
        try:
            return self._finish(entered, is_new=False)
        except RangelandError as error:
            traits = plan.kind.traits
            given_up = self._find_given_up(plan) if traits.is_given_up_for(error) else None
            if given_up is None:
                raise
            self._context.warn(f"{plan.application} was given up, its {traits.stays}: {error}")
            return self._finish(given_up, is_new=False)

    def _find_given_up(self, plan: Plan) -> EnteredPlan | None:
        """The plan as it now is in the ledger, if it was given up."""
        self._target.ledger.refresh()
        entered = self._target.history.plan_with_outcome(plan)
        outcome = None if entered is None else entered.outcome
        return entered if outcome is not None and outcome.is_given_up(plan.kind) else None

    def _finish(self, entered: EnteredPlan, *, is_new: bool) -> CommittedPlan:
        plan = entered.plan
        outcome = entered.outcome
        self._context.progress.planned(plan, recovered=not is_new)
        if not is_new:
            logger.info("Finishing plan %s, which another run entered", plan.id)
        shared: SharedReading | None = None
        if outcome is None:
            with at_stage(PlanStage.READING):
                outcome, shared = self._outcomes.read_and_prepare(plan, is_new=is_new)
        check_same_plan(plan, outcome)
        check_outcome_is_not_ended(plan, outcome)
        outcome, landed, replaced = self._commit(plan, outcome)
        landed = self._with_version(landed, entered)
        _log_committed(plan, outcome, landed)
        if landed.is_new:
            self._warn_of_null_times(outcome)
        recovered = not (is_new or (shared is not None and shared.with_others))
        is_shared = shared is not None
        return CommittedPlan(plan, outcome, landed, recovered, is_shared, replaced)

    def _warn_of_null_times(self, outcome: OutcomeEvent) -> None:
        """Warns of day or hour columns that are null. The rows have landed, so an error here is
        only a warning too: an earlier driver may have prepared them with a different job file."""
        nulls = [f for f in outcome.files if None in f.file.partition_values.values()]
        if not nulls:
            return
        try:
            layout = self._target.table.schema.layout(self._context.row_schema)
        except RangelandError as error:
            text = "records have landed with NULL in a column by which the table is partitioned"
            self._context.warn(f"{text}; whether their time was unusable is unknown: {error}")
            return
        for text in null_time_warnings(nulls, layout):
            self._context.warn(text)

    def _commit(
        self, plan: Plan, outcome: OutcomeEvent
    ) -> tuple[OutcomeEvent, CommittedOutcome, ReplacedRange | None]:
        """Commits the outcome, or the one that counts instead: another driver's or, if this one
        cannot be committed, the outcome of reading the plan once more. Returns it with what it has
        changed, if this driver replaced rows that could be compared."""
        conflicts = 0
        was_read_again = False
        while True:
            attempt = self._attempt(plan, outcome)
            match attempt:
                case CommittedOutcome() as landed:
                    if not landed.is_new:
                        check_plan_is_not_ended(self._target, plan)
                    return outcome, landed, None
                case RowsReplaced(landed, differences):
                    return outcome, landed, differences
                case Superseded(outcome=outcome):
                    continue
            if has_landed_by_now(self._target, plan):
                continue  # another driver committed it, or our own commit conflicted with itself
            match step_after_failure(plan.id, attempt, conflicts, was_read_again=was_read_again):
                case TryAgain(why):
                    conflicts += 1
                    logger.info("Committing plan %s again: %s", plan.id, why)
                case ReadAgain(failure):
                    with at_stage(PlanStage.READING):
                        outcome = self._outcomes.read_again(plan, outcome, failure)
                    conflicts, was_read_again = 0, True
                case Raise(error):
                    raise error

    def _with_version(self, landed: CommittedOutcome, entered: EnteredPlan) -> CommittedOutcome:
        """The committed outcome with its table version, if the version can be found; the outcome is
        in the table in any case."""
        if landed.version is not None:
            return landed
        location = self._target.table.location
        since = entered.planned_at_version or 0
        version = landed_at(location.delta, location.uri, entered.plan.id, since)
        return replace(landed, version=version)

    def _attempt(self, plan: Plan, outcome: OutcomeEvent) -> Attempt:
        """Tries once to commit an outcome as its kind of plan requires, the bytes in quarantine
        first. Does nothing if it has already landed."""
        mode = plan.kind.traits.write_mode
        if mode is WriteMode.REPAIR:
            # Everything that is checked for a repair must hold for the version that it follows.
            self._target.table.refresh_same_table()
        if self._target.identity.has_landed(plan.id):
            return CommittedOutcome(None, is_new=False)
        if (gone := self._commit_quarantine(outcome)) is not None:
            return gone
        if (failure := self._constraint_failure(outcome)) is not None:
            return failure
        match mode:
            case WriteMode.ADD:
                return self._add(outcome)
            case WriteMode.REPAIR:
                return self._repair(plan, outcome)
            case WriteMode.REPLACE:
                return self._replace(plan, outcome)

    def _commit_quarantine(self, outcome: OutcomeEvent) -> FilesGone | None:
        """Commits what an outcome has put in quarantine. A later attempt that has nothing there
        still drops what an earlier one had."""
        if not outcome.quarantine_files and not outcome.attempt:
            return None
        if outcome.quarantine_files:
            count = count_noun(len(outcome.quarantine_files), "file")
            self._context.progress.step(f"keeping {count} in quarantine")
        return self._target.quarantine.commit(outcome)

    def _constraint_failure(self, outcome: OutcomeEvent) -> FilesGone | RowsRefused | None:
        """The reason why these rows cannot be committed, if the table has constraints against which
        they have not been checked yet."""
        files = outcome.data_files
        table = self._target.table
        if self._constraints.are_any and (paths := table.gone_prepared_files(files)):
            return FilesGone(paths)
        refusal = self._constraints.violation_error(files, outcome.schema_json)
        return None if refusal is None else RowsRefused(refusal)

    def _add(self, outcome: OutcomeEvent) -> Attempt:
        """Adds the rows of an outcome to the table."""
        self._context.progress.step(_step_text(outcome))
        return self._target.writer.commit_outcome(outcome)

    def _repair(self, plan: Plan, outcome: OutcomeEvent) -> Attempt:
        """Adds the rows of a repair. If something else has brought back rows at their offsets in
        the meantime, they replace those. Otherwise, the commit must directly follow the version
        that was seen to have none."""
        self._context.progress.step(_step_text(outcome))
        if (failure := self._file_failure(outcome)) is not None:
            return failure
        ranges = self._replacement.ranges_of_repair(plan, outcome)
        if self._replacement.has_rows_of(ranges):
            check_can_be_replaced(outcome, ranges)
            return self._replacement.commit_outcome(ranges, outcome)
        return self._target.writer.commit_outcome(
            outcome,
            self._target.table.gone_files(),
            expected_version=self._target.table.version if ranges else None,
        )

    def _replace(self, plan: Plan, outcome: OutcomeEvent) -> Attempt:
        """Puts the rows of an outcome in place of those in the table, unless the plan was given
        up."""
        if outcome.is_given_up(plan.kind):
            self._context.warn(f"{plan.application} was given up: the rows in the table stay")
            return self._target.writer.commit_outcome(outcome)
        if (failure := self._file_failure(outcome)) is not None:
            return failure
        differences = self._differences(plan, outcome)
        self._context.progress.step("replacing rows")
        try:
            done = self._replacement.commit_outcome(plan.ranges, outcome)
        except StorageFailed as error:
            return self._judge_failed_replacement(plan, outcome, error)
        return RowsReplaced(done, differences) if isinstance(done, CommittedOutcome) else done

    def _file_failure(self, outcome: OutcomeEvent) -> FilesGone | FilesUnfit | None:
        """The reason why Spark cannot read the prepared files and write their rows, if any."""
        if paths := self._target.table.gone_prepared_files(outcome.data_files):
            return FilesGone(paths)
        return self._replacement.unfit(outcome)

    def _judge_failed_replacement(
        self, plan: Plan, outcome: OutcomeEvent, error: StorageFailed
    ) -> Attempt:
        """Decides whether a replacement that failed was committed after all. If it was not, and
        failed because files of the table are gone, gives the plan up; otherwise raises the
        error."""
        if has_landed_by_now(self._target, plan):
            return CommittedOutcome(None, is_new=False)
        gone = self._target.table.gone_files()
        files = [file for file in gone if names_file(error, file.path)]
        if not files:
            raise error
        gone_error = gone_rows_error(plan, files, error)
        superseded = give_up(self._context, plan, gone_error, outcome)
        if superseded is None:
            raise gone_error from error
        return superseded

    def _differences(self, plan: Plan, outcome: OutcomeEvent) -> ReplacedRange | None:
        """The changes that the replacement would make; None if the rows cannot be compared. This is
        only for information, so a failure is a warning."""
        self._context.progress.step("comparing with the rows in the table")
        try:
            return self._replacement.differences(plan, outcome)
        except (EngineFailed, StorageFailed) as error:
            self._context.warn(str(error))
            return None


def _step_text(outcome: OutcomeEvent) -> str:
    """The step of a commit, in words."""
    return f"committing {count_noun(len(outcome.files), 'file')}"


def _log_committed(plan: Plan, outcome: OutcomeEvent, landed: CommittedOutcome) -> None:
    if not landed.is_new:
        logger.info("Found that plan %s had already landed", plan.id)
        return
    logger.info(
        "Committed plan %s at version %s: %d files, %d ranges",
        plan.id,
        landed.version,
        len(outcome.files),
        len(outcome.ranges),
    )
    for r in (landed_range.range for landed_range in outcome.ranges):
        fields = partition_fields(r.partition, r.from_offset)
        logger.debug("Committed %s with plan %s", r, plan.id, extra=fields)


def null_time_warnings(files: Sequence[WrittenFile], layout: TableLayout) -> list[str]:
    """A warning for each day or hour column that is null in some records."""
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
