"""Finds the landing that an offset came from, and its row in the table.

The ledger shows what became of the offset; the table shows which file has its row. No broker is
asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rangeland.delta.ledger.events import OutcomeEvent, PlanEvent
from rangeland.errors import UsageError
from rangeland.landing.audit.table_rows import TableRows, table_rows
from rangeland.landing.audit.verification import Landings
from rangeland.landing.target.job_history import JobHistory
from rangeland.landing.target.landing_commits import landing_commit
from rangeland.landing.target.landing_target import LandingTarget
from rangeland.loss import Action, DecidedLoss
from rangeland.model import Partition
from rangeland.planning.incarnation import may_be_same
from rangeland.planning.slice_receipt import RangeResult
from rangeland.planning.table_audit import LandedRange
from rangeland.query_results import Finding, FindState

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LEFT_OUT = {Action.QUARANTINE: FindState.QUARANTINED, Action.SKIP: FindState.LOST}


def find_offset(
    spark: SparkSession, target: LandingTarget, partition: Partition, offset: int
) -> Finding:
    """Finds the landing that an offset came from, and its row. Raises UsageError if several brokers
    have that partition."""
    landed = target.history.landings()
    partition = _landed_partition(landed, partition)
    landings = [
        (plan, outcome)
        for plan, outcome in landed
        if any(result.range.has(partition, offset) for result in outcome.ranges)
    ]
    rows = table_rows(spark, target.table)
    files = rows.files_with(partition, offset)
    if not landings:
        state = FindState.UNKNOWN_ROW if files else FindState.NOT_LANDED
        why = "" if files else _why_not(target.history, landed, partition, offset)
        return Finding(partition, offset, state, tuple(files), why=why)
    plan, outcome = landings[-1]
    result = _range_at(outcome, partition, offset)
    files, is_its_own = _files_of_newest(landings, partition, offset, files)
    if files and is_its_own:
        state, why = FindState.LANDED, ""
    elif (loss := _loss_of(target.history, plan, partition, offset)) is not None:
        state, why = _LEFT_OUT[loss.action], f"{loss.kind}, {loss.evidence}"
    else:
        state, why = _state_without_row(rows, result, offset, may_be_another=bool(files))
    location = target.table.location
    commit = landing_commit(location.delta, location.uri, plan.plan_id, plan.table_version or 0)
    return Finding(
        partition,
        offset,
        state,
        tuple(files),
        job=plan.job,
        application=plan.application,
        sequence=plan.sequence,
        table_version=None if commit is None else commit.version,
        leader=result.address or None,
        landed_at_ms=outcome.written_at_ms if commit is None else commit.committed_at_ms,
        range=result.range,
        earlier=tuple(p.plan_id for p, _ in landings[:-1]),
        why=why,
    )


def _state_without_row(
    rows: TableRows, landed: RangeResult, offset: int, *, may_be_another: bool
) -> tuple[FindState, str]:
    """The state of an offset that is not known to have a row, and why. ``may_be_another``: the
    table has a row, but it may come from an earlier topic of the same name."""
    if any(start <= offset < end for start, end in landed.rowless or ()):
        return FindState.NO_ROW, ""
    if landed.offsets_are_bytes:
        return FindState.NO_ROW if _is_whole(rows, landed) else FindState.NO_ROW_OR_HOLE, ""
    if may_be_another:
        return FindState.NO_ROW_OR_HOLE, "its row may come from an earlier topic of that name"
    is_full = landed.counts.landed == landed.range.width
    return FindState.HOLE if is_full or landed.rowless is not None else FindState.NO_ROW_OR_HOLE, ""


def _files_of_newest(
    landings: Landings, partition: Partition, offset: int, files: Sequence[str]
) -> tuple[list[str], bool]:
    """The files that may have the row of an offset from its newest landing, and whether it is
    certain that one of them has it. ``files``: one name for each row of the offset. A row of an
    earlier incarnation of the topic is in a file that its landing wrote, or in one that has been
    rewritten since; the same is true of the newest row."""
    landed_files = [
        (_range_at(outcome, partition, offset), _names_of(outcome)) for _, outcome in landings
    ]
    newest, own_names = landed_files[-1]
    by_incarnation: dict[str | None, set[str]] = {}
    for result, names in landed_files[:-1]:
        if not may_be_same(result.range.topic_id, newest.range.topic_id):
            by_incarnation.setdefault(result.range.topic_id, set()).update(names)
    earlier_names = set[str]().union(*by_incarnation.values())
    candidates = [file for file in files if _name_of(file) not in earlier_names]
    file_names = {_name_of(file) for file in files}
    rewritten = sum(1 for names in by_incarnation.values() if not names & file_names)
    has_row = any(_name_of(file) in own_names for file in candidates)
    return candidates, len(candidates) > rewritten or has_row


def _range_at(outcome: OutcomeEvent, partition: Partition, offset: int) -> RangeResult:
    return next(e for e in outcome.ranges if e.range.has(partition, offset))


def _names_of(outcome: OutcomeEvent) -> set[str]:
    return {_name_of(f.file.path) for f in outcome.files}


def _name_of(path: str) -> str:
    """The name of a file without its folder. Names are unique."""
    return path.rpartition("/")[2]


def _loss_of(
    history: JobHistory, plan: PlanEvent, partition: Partition, offset: int
) -> DecidedLoss | None:
    """The loss for which a plan has skipped or quarantined an offset."""
    losses = (event.loss for event in history.losses(plan.plan_id))
    return next(
        (loss for loss in losses if loss.action in _LEFT_OUT and loss.range.has(partition, offset)),
        None,
    )


def _landed_partition(landings: Landings, partition: Partition) -> Partition:
    """The landed partition that is meant: without a broker, it may belong to any of them."""
    ranges = (result.range for _, outcome in landings for result in outcome.ranges)
    same = {r.partition for r in ranges if r.partition.of_any_broker == partition}
    if len(same) > 1:
        raise UsageError(
            f"{partition} is a partition of each of {len(same)} brokers",
            why=f"these have landed: {', '.join(map(str, sorted(same)))}",
            do="name the broker, as in 1-0, or with --broker",
        )
    return same.pop() if same else partition


def _why_not(history: JobHistory, landings: Landings, partition: Partition, offset: int) -> str:
    """Why an offset has not landed: because of the unfinished plan that covers it, or else because
    of its place relative to the landed offsets."""
    for entered in history.unfinished_plans():
        plan = entered.plan
        covering = (r for r in plan.ranges if r.from_offset <= offset < r.until_offset)
        if any(partition in (r.partition, r.partition.of_any_broker) for r in covering):
            return (
                f"plan {plan.sequence} of {plan.application} covers it, but has not landed yet; "
                "`rangeland status JOB.yaml` shows what finishes that plan"
            )
    ranges = [e.range for _, o in landings for e in o.ranges if e.range.partition == partition]
    if not ranges:
        return f"nothing of {partition} has landed in it"
    first, until = min(r.from_offset for r in ranges), max(r.until_offset for r in ranges)
    if first <= offset < until:
        return f"it lies between offsets of {partition} that have landed"
    return f"it has offsets {first} to {until - 1} of {partition}"


def _is_whole(rows: TableRows, result: RangeResult) -> bool:
    """Whether the table has all rows of a range whose offsets are bytes."""
    landed_range = LandedRange(result.range, result.counts.landed, offsets_are_bytes=True)
    counted = rows.entries({result.range.partition: [landed_range]})
    return counted[result.range.partition].rows[0] >= result.counts.landed
