"""Decides what to do about an outcome that could not be committed, with the warnings and errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rangeland.delta.table_metadata import AddedFile
from rangeland.delta.transaction_log.table_commit import (
    FilesGone,
    FilesUnfit,
    NotCommitted,
    RowsRefused,
    TableMoved,
)
from rangeland.errors import Conflict, RangelandError, StorageFailed, TableRefused
from rangeland.planning.plan import Plan, PlanId
from rangeland.spark.replace_where import RowsChanged

MAX_ATTEMPTS = 3
"""The maximum number of attempts to commit one outcome while other writers make conflicting changes
to the table."""


@dataclass(frozen=True, slots=True)
class TryAgain:
    """Commit the same outcome again. ``why``: why the last attempt failed."""

    why: str


@dataclass(frozen=True, slots=True)
class ReadAgain:
    """Read the plan again, for another outcome: this one can no longer be committed."""

    failure: NotCommitted


@dataclass(frozen=True, slots=True)
class Raise:
    """Raise the error, and leave the plan unfinished."""

    error: RangelandError


def step_after_failure(
    plan_id: PlanId,
    failure: RowsChanged | TableMoved | NotCommitted,
    conflicts: int,
    *,
    was_read_again: bool,
) -> TryAgain | ReadAgain | Raise:
    """The step after a failed attempt to commit an outcome that has not landed in another way.
    ``conflicts``: how many earlier attempts to commit it other writers have prevented."""
    match failure:
        case RowsChanged():
            error = rows_changed_error(failure)
        case TableMoved():
            error = table_moved_error(failure)
        case _:
            return Raise(commit_error(plan_id, failure)) if was_read_again else ReadAgain(failure)
    return Raise(error) if conflicts + 1 == MAX_ATTEMPTS else TryAgain(failure.why)


def read_again_warning(failure: NotCommitted) -> str:
    """The warning that a plan is being read again after this failure."""
    match failure:
        case FilesUnfit(misfit=misfit):
            what = f"column {misfit.field} of the table has changed in the meantime; the plan is"
        case RowsRefused(refusal=refusal):
            what = f"{refusal.what}; the plan is"
        case FilesGone(paths=(_,)):
            what = "1 prepared file is gone and is"
        case FilesGone(paths=paths):
            what = f"{len(paths)} prepared files are gone and are"
    return f"{what} read from the log again"


def commit_error(plan_id: PlanId, failure: NotCommitted) -> RangelandError:
    """The error for a plan for which two outcomes in a row could not be committed."""
    match failure:
        case FilesUnfit(misfit=misfit):
            return Conflict(
                f"once again, files of {plan_id} do not fit the table",
                why=f"another writer has changed column {misfit.field} in the meantime",
                do="run again",
            )
        case RowsRefused(refusal=refusal):
            return refusal
        case FilesGone(paths=paths):
            return StorageFailed(
                f"files of {plan_id} are gone again",
                why=f"there are {len(paths)}; the first is {paths[0]}",
                do="find out what removes files from the table's folder, then run again",
            )


def table_moved_error(moved: TableMoved) -> Conflict:
    """The error for a repair during which other writers keep committing."""
    return Conflict(
        f"could not land missing rows in {moved.path}",
        why="each time it had been searched for those rows, another writer committed first: "
        f"{moved.why}",
        do="run again when no other writer is committing",
    )


def rows_changed_error(changed: RowsChanged) -> Conflict:
    """The error for a replacement whose rows other writers keep changing."""
    return Conflict(
        f"could not replace rows of {changed.path}",
        why=f"another writer has changed them: {changed.why}",
        do="run again when no other writer is changing them",
    )


def gone_rows_error(plan: Plan, gone: Sequence[AddedFile], error: StorageFailed) -> TableRefused:
    """The error for a replacement that is given up because files of the table are gone: left
    unfinished, it would block the plan that lands the missing rows again."""
    return TableRefused(
        f"rows of {plan.ranges[0]} cannot be replaced",
        why=f"the table's file {gone[0].path} is gone: {error.why or error.what}",
        do="land what is missing with `rangeland backfill JOB.yaml --missing`, then replace again",
    )
