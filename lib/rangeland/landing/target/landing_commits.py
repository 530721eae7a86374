"""Finds commits in the log of a table: those of landings, and those that have removed landings."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from rangeland.delta.table_metadata import CommitMetadata
from rangeland.delta.transaction_log.delta_kernel import DeltaKernel
from rangeland.errors import RangelandError
from rangeland.planning.plan import PlanId

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Restored:
    """A RESTORE that removed, or may have removed, landings that are still in the table's
    transactions.

    ``version`` is the RESTORE's own commit; ``restored_to`` is the version it went back to, None
    for a RESTORE to a time; ``lost`` are the plans that landed between the two and are still in the
    log. If there are none, the log does not show what was removed."""

    version: int
    restored_to: int | None
    committed_at_ms: int
    lost: tuple[PlanId, ...]


def landed_at(delta: DeltaKernel, table_uri: str, plan_id: PlanId, since: int = 0) -> int | None:
    """The version at which a plan landed that is known to be in the table. None if the log does not
    go back that far or cannot be read; the plan is in the table nevertheless. ``since`` is a
    version from before the landing, which only shortens the search."""
    try:
        commit = landing_commit(delta, table_uri, plan_id, since)
    except RangelandError as error:
        logger.warning("Did not find the version at which plan %s landed: %s", plan_id, error)
        return None
    return None if commit is None else commit.version


def landing_commit(
    delta: DeltaKernel, table_uri: str, plan_id: PlanId, since: int = 0
) -> CommitMetadata | None:
    """The commit with which a plan landed, None if the log does not go back that far."""
    for commit in reversed(delta.commits(table_uri, since)):
        if commit.transactions.get(plan_id.application) == plan_id.sequence:
            return commit
    return None


def last_replacement(commits: Sequence[CommitMetadata]) -> CommitMetadata | None:
    """The last of these commits that replaced or removed all rows at once, if any."""
    return next((commit for commit in reversed(commits) if commit.replaces_all), None)


def last_restore(
    delta: DeltaKernel, table_uri: str, commits: Sequence[CommitMetadata]
) -> Restored | None:
    """The last RESTORE that removed landings, or may have, among ``commits``, the newest of a
    table.

    RESTORE keeps transaction versions, so the checkpoint is then ahead of the rows. Pass the
    commits since a version at which no rows were known to be missing: earlier ones do not
    matter."""
    restored_to: int | None = None
    for commit in reversed(commits):
        if not commit.is_restore or (restored_to is not None and commit.version > restored_to):
            continue
        target = commit.restored_to
        if target is None:
            return Restored(commit.version, None, commit.committed_at_ms, ())
        undone = delta.commits(table_uri, target + 1)
        lost = _landings(undone, commit.version)
        is_whole = bool(undone) and undone[0].version == target + 1
        if lost or not is_whole:
            return Restored(commit.version, target, commit.committed_at_ms, lost)
        # The table is as it was at that version, so commits in between no longer matter.
        restored_to = target
    return None


def _landings(commits: Sequence[CommitMetadata], before: int) -> tuple[PlanId, ...]:
    return tuple(
        PlanId(application, sequence)
        for commit in commits
        if commit.version < before
        for application, sequence in commit.transactions.items()
        if application.startswith("rangeland/")
    )
