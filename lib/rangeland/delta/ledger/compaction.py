"""Combines many small files of the ledger into one.

Each landing leaves behind two files with one row each, and opening a file costs more than reading a
hundred rows. Runs therefore move the rows of older files into larger ones, as ``OPTIMIZE`` does:
the same rows, in a commit that changes no data. A file only ever absorbs smaller ones, so each row
is moved a logarithmic number of times. Replaced files stay until the ledger is vacuumed, because
drivers with an older view of it still read them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from rangeland.delta.ledger.event_codec import is_complete
from rangeland.delta.ledger.ledger_files import COMPACTED, OUR_FILES, LedgerFiles
from rangeland.delta.parquet_files.file_statistics import rows_in
from rangeland.delta.table_metadata import AddedFile
from rangeland.delta.transaction_log.delta_kernel import DeltaKernel
from rangeland.delta.transaction_log.table_snapshot import CommitRequest, Snapshot
from rangeland.errors import Conflict
from rangeland.model import DataFile

COMPACTIONS = "rangeland/compactions"

MANY = 200
"""Files written by single commits are compacted once there are this many."""
NEWEST = 40
"""This many of the newest files are left alone: runs read them, and look for the files that they
themselves have written."""
LARGE_BYTES = 64 << 20
"""A compacted file of this size is not rewritten."""
logger = logging.getLogger(__name__)


def compact_files(delta: DeltaKernel, snapshot: Snapshot, files: LedgerFiles) -> DataFile | None:
    """Moves the rows of this version's older files into one file and returns it; None if there is
    nothing to do. Nothing can be lost: the rows move in one commit, which succeeds only if no other
    commit came in between. The next version shows whether the file made it into the ledger."""
    old = to_compact(list(snapshot.files()))
    if not old or not is_complete(snapshot.schema_json):
        return None
    compacted = files.rewrite([file.path for file in old])
    if compacted.rows != sum(map(recorded_rows, old)):
        raise files.contradiction_error(f"{len(old)} of its files have {compacted.rows} rows")
    number = (snapshot.transaction_version(COMPACTIONS) or 0) + 1
    request = CommitRequest(
        COMPACTIONS,
        number,
        [compacted],
        removed=old,
        moves_rows=True,
        expected_version=snapshot.version,
    )
    try:
        delta.commit(snapshot, request)
    except Conflict:
        logger.info("Did not compact the ledger: another driver came first")
    return compacted


def is_due(paths: Iterable[str]) -> bool:
    """Whether a ledger with these files has enough single-commit files to be compacted."""
    return sum(path.startswith(OUR_FILES) for path in paths) >= MANY


def to_compact(files: Sequence[AddedFile]) -> list[AddedFile]:
    """The files to combine into one; none if compaction is not due."""
    single = [file for file in files if file.path.startswith(OUR_FILES)]
    if not is_due([file.path for file in single]):
        return []
    chosen = sorted(single, key=lambda file: (file.modified_at_ms, file.path))[:-NEWEST]
    rows = sum(map(recorded_rows, chosen))
    earlier = [f for f in files if f.path.startswith(COMPACTED) and f.size_bytes < LARGE_BYTES]
    for file in sorted(earlier, key=recorded_rows):
        if recorded_rows(file) > rows:
            break
        chosen.append(file)
        rows += recorded_rows(file)
    return chosen


def recorded_rows(file: AddedFile) -> int:
    """The number of rows in a file according to its statistics; 0 if they do not say, which never
    happens in a ledger."""
    return rows_in(file, unknown=0)
