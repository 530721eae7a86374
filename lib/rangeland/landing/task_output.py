"""What tasks have written, as the driver checks and records it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rangeland.delta.ledger.events import FileEntry, OutcomeEvent
from rangeland.delta.table_commit import missing_files
from rangeland.delta.table_path import TablePath
from rangeland.errors import RangeLost, TableRefused
from rangeland.landing.landing_target import LandingTarget
from rangeland.model import Range
from rangeland.planning.coverage_rule import coverage_of, leave_out
from rangeland.planning.plan import Plan
from rangeland.planning.proof import RangeOutcome
from rangeland.planning.slice_receipt import TaskResult


def file_entries(results: Sequence[TaskResult], plan: Plan) -> list[FileEntry]:
    """Each file, with its range if its task had one slice."""
    slices = {s.index: s for s in plan.slices}
    entries = []
    for result in results:
        only = slices[result.receipts[0].slice_index] if len(result.receipts) == 1 else None
        where = None
        if only is not None:
            where = Range(only.partition, only.from_offset, only.until_offset, only.topic_id)
        entries += [FileEntry(file, where) for file in result.files]
    return entries


def refuse_unseen(spark: Any, target: LandingTarget, entries: Sequence[FileEntry]) -> None:
    """Raises TableRefused for files that the driver cannot see: a path on a local disk is a
    different folder on each host of a cluster."""
    where = str(target.table.path)
    if spark.sparkContext.master.startswith("local") or not TablePath.parse(where).is_local:
        return
    if missing := missing_files(where, [entry.file for entry in entries]):
        raise TableRefused(
            f"{len(missing)} of {len(entries)} files that the executors have written are not "
            f"in {where} as this driver sees it",
            why=f"the first is {missing[0]}; the path is not the same folder on all hosts",
            do="name a table in sink.table that driver and executors share (HDFS, an object "
            "store, a disk mounted at the same place everywhere), then run again; remove "
            "what was written to that path on the executors' hosts",
            missing=list(missing[:10]),
        )


def refuse_less(old: OutcomeEvent, outcomes: Sequence[RangeOutcome]) -> None:
    """Raises RangeLost where a new attempt lacks ranges of the old outcome, which count as
    landed."""
    again = coverage_of(outcome.range for outcome in outcomes)
    if left := leave_out([entry.range for entry in old.ranges], again):
        raise RangeLost(
            f"{left[0]} was prepared, its files are gone, and it cannot be read again",
            why="the log has lost it since, or its bytes are damaged, and a policy holds it",
            do="let the policy skip it, and run again",
        )
