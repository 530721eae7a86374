"""Which of the ledger's files are written into one. Pure.

Each landing leaves two files of one row, and opening a file costs more than reading a hundred of
its rows. So runs move the rows of older files into larger ones, as ``OPTIMIZE`` does: the same
rows, in a commit in which no data changes. A file takes in smaller ones only, so a row is moved as
often as the logarithm of their number. Files that were replaced stay until a ``VACUUM`` of the
ledger: drivers with an older view of it read on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rangeland.delta.ledger.ledger_files import COMPACTED, OUR_FILES
from rangeland.delta.parquet_files.file_statistics import rows_in
from rangeland.delta.table_metadata import AddedFile

MANY = 200
"""Files of single commits from which on they are compacted."""
NEWEST = 40
"""This many of the newest files stay as they are: runs read them, and look for those that they have
written."""
LARGE_BYTES = 64 << 20
"""A compacted file of this size is not written again."""


def is_due(paths: Iterable[str]) -> bool:
    return sum(path.startswith(OUR_FILES) for path in paths) >= MANY


def to_compact(files: Sequence[AddedFile]) -> list[AddedFile]:
    """Files to write into one; none if it is not due."""
    single = [file for file in files if file.path.startswith(OUR_FILES)]
    if not is_due([file.path for file in single]):
        return []
    taken = sorted(single, key=lambda file: (file.modified_at_ms, file.path))[:-NEWEST]
    rows = sum(map(recorded_rows, taken))
    earlier = [f for f in files if f.path.startswith(COMPACTED) and f.size_bytes < LARGE_BYTES]
    for file in sorted(earlier, key=recorded_rows):
        if recorded_rows(file) > rows:
            break
        taken.append(file)
        rows += recorded_rows(file)
    return taken


def recorded_rows(file: AddedFile) -> int:
    """The rows of a file by its statistics; 0 where they do not say so, which no ledger's file is
    written with."""
    return rows_in(file, unknown=0)
