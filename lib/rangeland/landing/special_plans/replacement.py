"""Replaces rows of a table with those of an outcome.

This uses Spark's ``replaceWhere``, in one commit with the outcome's transaction. If rows may not be
replaced, this is refused before a plan is entered. If a loss is found only during reading, the plan
ends with an outcome that lands nothing: no policy could let it continue, and an unfinished plan
would block every run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rangeland.delta.ledger.events import OutcomeEvent
from rangeland.delta.stores.local_table_lock import lock_table
from rangeland.delta.table_schema.schema_evolution import SchemaChange
from rangeland.delta.transaction_log import table_commit
from rangeland.errors import TableRefused, UsageError
from rangeland.landing.audit.verification import landed_ranges_of
from rangeland.landing.landing_context import LandingContext
from rangeland.landing.special_plans.repaired_offsets import (
    MAX_RANGES,
    are_rows_unrecorded,
    joined_ranges,
    ranges_with_rows,
)
from rangeland.landing.target.job_history import JobHistory
from rangeland.landing.target.target_table import TargetTable
from rangeland.model import Partition, Range
from rangeland.planning.coverage import coverage_of, covered_parts
from rangeland.planning.intervals import Interval, merge
from rangeland.planning.loss_errors import range_lost_error
from rangeland.planning.plan import Plan
from rangeland.planning.slice_receipt import Receipt, WrittenFile
from rangeland.planning.table_audit import (
    LandedRange,
    ReplacedRange,
    cut_ranges,
    other_incarnations,
    ranges_in_force,
)
from rangeland.spark.offset_scan import has_rows, intervals_in, table_frame
from rangeland.spark.replace_where import (
    RowsChanged,
    compare,
    condition,
    prepared_frame,
    reading_prepared_files,
    replace_rows,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Replacement:
    """Replaces rows of one table."""

    def __init__(self, context: LandingContext) -> None:
        self._context = context
        self._target = context.target

    def differences(self, plan: Plan, outcome: OutcomeEvent) -> ReplacedRange:
        """The changes that replacing the table's rows with this outcome would make."""
        table = self._target.table
        change = table.change_by(outcome.schema_json)
        old, new, where = self._swap(plan.ranges, outcome, change)
        by_broker = any(r.partition.broker for r in plan.ranges)
        return compare(old.where(where), new, table.log_columns, by_broker=by_broker)

    def ranges_of_repair(self, plan: Plan, outcome: OutcomeEvent) -> list[Range]:
        """The offsets at which a repair has rows, which its commit may replace. If there are many
        ranges, they may be joined across offsets at which no landing has a row."""
        history = self._target.history
        losses = [event.loss for event in history.losses(plan.id) if event.plan_hash]
        in_files = self._offsets_in_files(outcome) if are_rows_unrecorded(outcome) else None
        ranges = ranges_with_rows(outcome, losses, in_files)
        if len(ranges) <= MAX_RANGES:
            return ranges
        all_losses = history.losses()
        landed_ranges = landed_ranges_of(history.landings(), all_losses)
        return joined_ranges(ranges, landed_ranges, [event.loss for event in all_losses])

    def _offsets_in_files(self, outcome: OutcomeEvent) -> dict[Partition, list[Interval]]:
        """The offsets of the rows in an outcome's files."""
        table = self._target.table
        path = table.location.uri
        change = table.change_by(outcome.schema_json)
        schema = table.schema.schema_of_files(change)
        by_broker = any(one.range.partition.broker for one in outcome.ranges)
        rows = prepared_frame(self._context.spark, path, outcome.data_files, schema)
        with reading_prepared_files(path):
            found = intervals_in(rows, table.log_columns, by_broker=by_broker)
        return {
            partition: merge(zip(firsts.tolist(), untils.tolist(), strict=True))
            for partition, (firsts, untils) in found.items()
        }

    def has_rows_of(self, ranges: Sequence[Range]) -> bool:
        """Whether the table had rows of these ranges when it was last looked at."""
        if not ranges:
            return False
        rows = self._frame(version=self._target.table.version)
        parts = (ranges[i : i + MAX_RANGES] for i in range(0, len(ranges), MAX_RANGES))
        return any(has_rows(rows, self._condition(rows, part)) for part in parts)

    def check_rows_inside(self, plan: Plan, files: Sequence[WrittenFile]) -> None:
        """Raises TableRefused if new rows lie outside the ranges to replace: a transform has
        changed the columns that identify their offsets."""
        table = self._target.table
        new_files = [f.file for f in files]
        schema = table.schema.schema_of_files()
        new = prepared_frame(self._context.spark, table.location.uri, new_files, schema)
        condition = f"coalesce({self._condition(self._frame(), plan.ranges)}, false)"
        with reading_prepared_files(table.location.uri):
            stray_rows = new.where(f"NOT ({condition})").count()
        if stray_rows:
            raise TableRefused(
                f"{stray_rows} of the new rows are outside the range to replace",
                why="the transform has changed their topic, partition or offset",
                do="let the transform keep these columns as they are",
            )

    def unfit(self, outcome: OutcomeEvent) -> table_commit.FilesUnfit | None:
        """Why an outcome's files do not fit the table as it is now, if they do not."""
        table = self._target.table
        misfits = table.change_by(outcome.schema_json, outcome.data_files).misfits
        return table_commit.FilesUnfit(misfits[0]) if misfits else None

    def commit_outcome(
        self, ranges: Sequence[Range], outcome: OutcomeEvent
    ) -> table_commit.CommittedOutcome | table_commit.NotCommitted | RowsChanged:
        """Replaces the table's rows in these ranges with those of an outcome that is not in the
        table yet, unless another writer has changed the rows first. It is done in one commit, which
        also adds the columns that the table lacks. Spark does not say which version the commit
        made."""
        table = self._target.table
        path = table.location.uri
        self._target.writer.set_ledger_property()
        with lock_table(path):
            if paths := table.gone_prepared_files(outcome.data_files):
                return table_commit.FilesGone(paths)
            table.check_same_table()
            change = table.change_by(outcome.schema_json, outcome.data_files)
            if change.misfits:
                return table_commit.FilesUnfit(change.misfits[0])
            _, new, where = self._swap(ranges, outcome, change)
            changed = replace_rows(new, path, where, outcome.plan_id, evolves=change.is_any)
            if changed is not None:
                return changed
        return table_commit.CommittedOutcome(None, is_new=True, added=tuple(change.added))

    def _swap(
        self, ranges: Sequence[Range], outcome: OutcomeEvent, change: SchemaChange
    ) -> tuple[Any, Any, str]:
        """The table's rows, the new ones, and the condition for the rows that they replace."""
        table = self._target.table
        path = table.location.uri
        old = self._frame(all_files=True)
        schema = table.schema.schema_of_files(change)
        new = prepared_frame(self._context.spark, path, outcome.data_files, schema)
        return old, new, self._condition(old, ranges)

    def _frame(self, *, version: int | None = None, all_files: bool = False) -> Any:
        table = self._target.table
        return table_frame(
            self._context.spark,
            table.location.uri,
            table.log_columns,
            version=version,
            all_files=all_files,
        )

    def _condition(self, rows: Any, ranges: Sequence[Range]) -> str:
        """The condition for the rows of these ranges."""
        return condition(rows, ranges, self._target.table.log_columns)


def check_rows_can_be_replaced(spark: SparkSession, table: TargetTable) -> None:
    """Raises TableRefused if rows of this table cannot be replaced, before a plan is entered that
    could never be finished."""
    if table.snapshot is None:
        return
    if table.snapshot.metadata.configuration.get("delta.appendOnly", "").lower() == "true":
        raise TableRefused(
            f"rows of {table.name} cannot be replaced",
            why="its property delta.appendOnly is true",
            do="unset it, or land the range into another table",
        )
    # This raises an error if rows do not contain their offsets.
    table_frame(spark, table.location.uri, table.log_columns)


def check_all_read(plan: Plan, receipts: Mapping[int, Receipt]) -> None:
    """Raises RangeLost for losses: rows that the log has lost must not be removed from the
    table."""
    losses = [loss for _, receipt in sorted(receipts.items()) for loss in receipt.losses]
    if not losses:
        return
    error = range_lost_error(losses)
    raise error.with_words(
        why=f"{error.why}, and replacing {plan.ranges[0]} would remove their rows from the table",
        do="replace only what the log still has; the table is unchanged",
    )


def check_whole_slices(history: JobHistory, ranges: Iterable[Range]) -> None:
    """Raises UsageError for a range that contains only part of a slice: a slice was landed as a
    whole, and can only be replaced as a whole."""
    slices = [
        LandedRange(landed, None)
        for plan, outcome in history.landings()
        for s in Plan.parse(plan.document).slices
        for landed in covered_parts(
            [Range(s.partition, *s.interval, s.topic_id)],
            coverage_of(one.range for one in outcome.ranges),
        )
    ]
    requested = list(ranges)
    landed_pieces = ranges_in_force(slices)
    for r in requested:
        if earlier := other_incarnations(landed_pieces, r):
            raise UsageError(
                f"--replace of {r} would remove rows of an earlier incarnation of its topic",
                why=f"{earlier[0]} was landed before the topic was deleted and created again, and "
                "its rows have the same offsets",
                do="replace a range that the earlier topic did not have, or delete its rows first",
            )
    cut = cut_ranges(landed_pieces, requested)
    if not cut:
        return
    cut_range, slice_ = cut[0]
    raise UsageError(
        f"--replace of {cut_range} cuts the slice {slice_}",
        why="a slice was landed as a whole and can only be replaced as a whole",
        do=f"begin at {slice_.from_offset} or {slice_.until_offset} and end at one of them, or "
        "include the slices before and after as well",
        slices=[[str(r), str(p)] for r, p in cut],
    )
