"""One commit makes a prepared outcome visible; and the look back whether it still is.

``land`` may be called any number of times, by any number of drivers, for the same outcome:
the table's transaction version lets one of them through and tells the others. It never
reads the log; files that have gone since the outcome was prepared are a value, not an
error, since the caller can make them again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow.fs as pafs

from rangeland.delta.facts import AddedFile, CommitFacts
from rangeland.delta.files import store_error
from rangeland.delta.kernel import Committed, Kernel, Snapshot
from rangeland.delta.storage import StoreSettings, open_store
from rangeland.errors import TableRefused
from rangeland.model import DataFile


@dataclass(frozen=True, slots=True)
class Landed:
    """The outcome is in the table. ``version`` is the commit that made it so, None where
    the log no longer goes back that far; ``anew`` is False if it was there before."""

    version: int | None
    anew: bool


@dataclass(frozen=True, slots=True)
class FilesMissing:
    """Prepared files that are gone or have another size: nothing was committed."""

    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Restored:
    """A RESTORE took landings away while the table still says they were made.

    ``version`` is the RESTORE's own commit, ``restored_to`` what it went back to; ``lost``
    are the (application, sequence) of the landings between the two that the log still
    tells of."""

    version: int
    restored_to: int
    committed_at_ms: int
    lost: tuple[tuple[str, int], ...]


def land(
    kernel: Kernel,
    table: str | Snapshot,
    application: str,
    sequence: int,
    files: Sequence[DataFile],
    since: int = 0,
    removed: Sequence[AddedFile] = (),
) -> Landed | FilesMissing:
    """Commits ``files`` with transaction (application, sequence), once and for all. Where
    files are ``removed`` in the same commit, one that came meanwhile is a Conflict.

    ``since`` is a table version from before the landing (the plan's ``table_version``): it
    only shortens the search for the version of a landing that was made before."""
    snapshot = kernel.load(table) if isinstance(table, str) else table
    if snapshot is None:
        raise TableRefused(
            f"landing in {table}",
            why="there is no Delta table",
            do="See that nobody has moved or dropped it, then run again",
        )
    where = snapshot.path
    newest = snapshot.transaction_version(application)
    if newest is not None and newest >= sequence:
        return Landed(landed_at(kernel, where, application, sequence, since), anew=False)
    if missing := missing_files(kernel.storage(where), files):
        return FilesMissing(missing)
    expected = snapshot.version if removed else None
    done = kernel.append(snapshot, files, (application, sequence), expected, removed)
    if isinstance(done, Committed):
        return Landed(done.version, anew=True)
    return Landed(landed_at(kernel, where, application, sequence, since), anew=False)


def missing_files(table: StoreSettings | str, files: Sequence[DataFile]) -> tuple[str, ...]:
    """The paths, relative to the table, of files that are not there in their full size."""
    store, root = open_store(table)
    paths = [f"{root}/{file.path}" for file in files]
    try:
        found = store.get_file_info(paths)
    except OSError as error:
        raise store_error(error, root) from error
    return tuple(
        file.path
        for file, info in zip(files, found, strict=True)
        if info.type != pafs.FileType.File or info.size != file.size_bytes
    )


def landed_at(
    kernel: Kernel, table_uri: str, application: str, sequence: int, since: int = 0
) -> int | None:
    """The table version whose commit has this transaction, None if the log is too short."""
    commit = landing_commit(kernel, table_uri, application, sequence, since)
    return None if commit is None else commit.version


def landing_commit(
    kernel: Kernel, table_uri: str, application: str, sequence: int, since: int = 0
) -> CommitFacts | None:
    """The commit that has this transaction, None if the log is too short."""
    for commit in reversed(kernel.commits(table_uri, since)):
        if commit.transactions.get(application) == sequence:
            return commit
    return None


def restored(kernel: Kernel, table: str | Snapshot, since: int) -> Restored | None:
    """The last RESTORE after table version ``since`` that took landings away, if any.

    RESTORE keeps transaction versions, so the checkpoint is then ahead of the rows. Give
    the version that the newest plan was made at: what came before was dealt with then."""
    path = table if isinstance(table, str) else table.path
    seen_until: int | None = None
    for commit in reversed(kernel.commits(path, since + 1)):
        if not commit.is_restore or (seen_until is not None and commit.version > seen_until):
            continue
        # To a time: how far back that was is not in the log, so it may be all the way.
        target = since if commit.restored_to is None else commit.restored_to
        undone = kernel.commits(path, target + 1)
        if lost := _landings(undone, commit.version):
            return Restored(commit.version, target, commit.committed_at_ms, lost)
        # The table is as it was then: what lies between is neither there nor missed.
        seen_until = target
    return None


def _landings(commits: Sequence[CommitFacts], before: int) -> tuple[tuple[str, int], ...]:
    return tuple(
        (application, sequence)
        for commit in commits
        if commit.version < before
        for application, sequence in commit.transactions.items()
        if application.startswith("rangeland/")
    )
