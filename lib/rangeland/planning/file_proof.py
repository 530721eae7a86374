"""Proves that every row that the receipts have counted is in exactly one file, once.

A file that is lost between a task and its plan's outcome would leave a hole that counts as landed,
and a file that is named twice would land its rows twice. So the rows of files are compared with the
counts of receipts: by slice if a file has the rows of one slice, otherwise in total.

A transform may make any number of rows from a record, while its receipts count records. Then only
the names of files are checked, and the quarantine, whose contents no transform has seen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from rangeland.errors import ProofFailed
from rangeland.grouping import sum_by_key
from rangeland.loss import Action
from rangeland.model import DataFile, Partition, Range, Slice
from rangeland.planning.intervals import Interval
from rangeland.planning.plan import Plan
from rangeland.planning.proof import REPORT
from rangeland.planning.slice_receipt import Receipt, WrittenFile


def prove_files(
    plan: Plan,
    receipts: Mapping[int, Receipt],
    files: Sequence[WrittenFile],
    *,
    are_transformed: bool = False,
) -> None:
    """Checks the files of a plan, or of a part of it, against the receipts of the slices that were
    read for them. Raises ProofFailed if rows are missing or there are too many, if files are named
    twice, and if a batch in quarantine lacks its bytes."""
    _check_named_once(one.file for one in files)
    if not are_transformed:
        _check_rows_agree(plan, receipts, files)
    _check_quarantine_is_whole(receipts.values())


def _check_named_once(files: Iterable[DataFile]) -> None:
    twice = [path for path, count in Counter(f.path for f in files).items() if count > 1]
    if twice:
        raise ProofFailed(f"{twice[0]} is named twice among the files of a plan", do=REPORT)


_Place = tuple[Partition, str | None, Interval] | None
"""The slice of a file's rows, with its topic id; None for files that may have rows of several."""


def _check_rows_agree(
    plan: Plan, receipts: Mapping[int, Receipt], files: Sequence[WrittenFile]
) -> None:
    """Checks rows by slice. The slices without a file of their own are checked together, against
    all other files; they include any slice whose only file is lost."""
    rows = sum_by_key((_place_of(f.range), f.file.rows) for f in files)
    landed: dict[_Place, int] = {}
    for s in plan.slices:
        if s.index in receipts:
            place = _place_of(s) if _place_of(s) in rows else None
            landed[place] = landed.get(place, 0) + receipts[s.index].counts.landed
    for place in {**rows, **landed}:
        if rows.get(place, 0) != landed.get(place, 0):
            raise _rows_error(place, rows.get(place, 0), landed.get(place, 0))


def _place_of(where: Range | Slice | None) -> _Place:
    return None if where is None else (where.partition, where.topic_id, where.interval)


def _rows_error(place: _Place, rows: int, landed: int) -> ProofFailed:
    whose = "slices without a file of their own"
    if place is not None:
        partition, _, (from_offset, until_offset) = place
        whose = str(Range(partition, from_offset, until_offset))
    return ProofFailed(
        f"the files of {whose} do not add up",
        why=f"they have {rows} rows, and the receipts count {landed}",
        do=REPORT,
    )


def _check_quarantine_is_whole(receipts: Iterable[Receipt]) -> None:
    """Checks that each batch that counts as quarantined has its bytes in a file: one row each."""
    named: list[DataFile] = []
    for receipt in receipts:
        kept = sum(file.rows for file in receipt.quarantine_files)
        counted = len(receipt.losses_by(Action.QUARANTINE))
        if kept != counted:
            raise ProofFailed(
                f"the quarantined batches of slice {receipt.slice_index} ({receipt}) do not add up",
                why=f"its files have {kept} of them, and its receipt counts {counted}",
                do=REPORT,
                slice=receipt.slice_index,
            )
        named += receipt.quarantine_files
    _check_named_once(named)
