"""Which of the ledger's files are combined into one. Pure.

Each landing leaves two files of one row, and opening a file costs more than reading a hundred rows.
So runs move the rows of older files into larger ones, as ``OPTIMIZE`` does: the same rows, in a
commit that changes no data. A file absorbs only smaller ones, so a row is moved a logarithmic
number of times. Replaced files stay until a ``VACUUM`` of the ledger: drivers with an older view of
it still read them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rangeland.delta.ledger.ledger_files import COMPACTED, OUR_FILES
from rangeland.delta.parquet_files.file_statistics import rows_in
from rangeland.delta.table_metadata import AddedFile

MANY = 200
"""The number of single-commit files from which on they are compacted."""
NEWEST = 40
"""This many of the newest files stay as they are: runs read them, and look for the ones they have
written."""
LARGE_BYTES = 64 << 20
"""A compacted file of this size is not rewritten."""


def is_due(paths: Iterable[str]) -> bool:
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
    """The number of rows in a file according to its statistics; 0 if they lack it, as in no file of
    a ledger."""
    return rows_in(file, unknown=0)
