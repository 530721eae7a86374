"""Finds what may have removed rows of a job from its table: a RESTORE, a commit that replaced all
rows, or any of the commits that are no longer in its log. Only reading the table shows whether rows
are missing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rangeland.delta.ledger.events import OutcomeEvent, PlanEvent
from rangeland.delta.table_metadata import CommitMetadata
from rangeland.landing.target.landing_commits import Restored, last_replacement, last_restore
from rangeland.landing.target.ledger_history import plan_of
from rangeland.landing.target.target_ledger import TargetLedger
from rangeland.landing.target.target_table import TargetTable
from rangeland.planning.coverage import coverage_of, uncovered_parts
from rangeland.planning.plan_kind import PlanKind, WriteMode


@dataclass(frozen=True, slots=True)
class UnknownCommits:
    """Commits that the log of the table no longer has: it begins at ``log_begins_at``, and the
    job's newest plan was made for the earlier ``planned_at_version``. A removal of rows may have
    been among them."""

    planned_at_version: int
    log_begins_at: int


Removal = Restored | CommitMetadata | UnknownCommits


def find_removal(job: str, table: TargetTable, ledger: TargetLedger) -> Removal | None:
    """The last removal since the job's newest plan, not counting repairs that left rows missing."""
    planned_at_version = (
        None if table.snapshot is None else _last_planned_at_version(job, table, ledger)
    )
    if planned_at_version is None or table.version is None:
        return None
    delta = table.location.delta
    uri = table.location.uri
    commits = delta.commits(uri, planned_at_version + 1)
    restored = last_restore(delta, uri, commits)
    found = restored or last_replacement(commits)
    if found is not None:
        return found
    unknown = _unknown_commits(planned_at_version, table.version, commits)
    return None if unknown and _has_newest_rows(job, table, ledger) else unknown


def _unknown_commits(
    planned_at_version: int, version: int, commits: Sequence[CommitMetadata]
) -> UnknownCommits | None:
    """The commits that the log of the table, read in this version, no longer has. ``commits``:
    those that it still has after ``planned_at_version``."""
    begins_at = commits[0].version if commits else version + 1
    return (
        UnknownCommits(planned_at_version, begins_at)
        if begins_at > planned_at_version + 1
        else None
    )


def _has_newest_rows(job: str, table: TargetTable, ledger: TargetLedger) -> bool:
    """Whether the table has a file of the newest landing of each of the job's applications: then no
    earlier state of the table was restored, nor were all its rows replaced. Applications land in
    the order of their outcomes. False proves nothing, since OPTIMIZE removes files as well."""
    view = ledger.view
    for application in view.applications(job):
        newest = next((o for o in view.outcomes(application) if _landed_rows(o)), None)
        if newest is not None and not table.has_one_of(newest.data_files):
            return False
    return True


def _landed_rows(outcome: OutcomeEvent) -> int:
    return sum(one.counts.landed for one in outcome.ranges)


def _last_planned_at_version(job: str, table: TargetTable, ledger: TargetLedger) -> int | None:
    """The version of the table for which the job's newest plan was made, not counting repairs that
    left rows missing; 0 if there are only such repairs. Any other plan is entered only if no rows
    are missing, or to adopt the table."""
    planned_at_version = None
    for event in ledger.view.plans(job=job):
        if not _is_repair(event) or _has_repaired_all(table, ledger, event):
            return event.table_version
        planned_at_version = 0
    return planned_at_version


def _is_repair(event: PlanEvent) -> bool:
    kind = PlanKind.of_application(event.job, event.application)
    return kind.traits.write_mode is WriteMode.REPAIR


def _has_repaired_all(table: TargetTable, ledger: TargetLedger, event: PlanEvent) -> bool:
    """Whether table and ledger show each missing row as restored, or its loss as recorded. A policy
    may have held some of them, before or while the plan was read."""
    outcome = ledger.view.outcome(event.plan_id)
    landed = table.transaction_version(event.application)
    if outcome is None or landed < event.sequence or not plan_of(event).repairs_all:
        return False
    return not uncovered_parts(event.ranges, coverage_of(one.range for one in outcome.ranges))
