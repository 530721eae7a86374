"""Verifies from the table itself what was landed.

The ledger says which offsets were landed and which of them have no row; the table is read for the
offsets that have rows. No broker is asked and nothing is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rangeland.delta.ledger.events import LossEvent, OutcomeEvent, PlanEvent, RangeEntry
from rangeland.delta.ledger.landed_offsets import without_still_to_come
from rangeland.delta.transaction_log.table_commit import landing_commit
from rangeland.errors import Conflict, TableRefused, UsageError
from rangeland.job import Job
from rangeland.landing.landing_target import LandingTarget
from rangeland.landing.table_rows import TableRows, table_rows
from rangeland.model import Partition, Range
from rangeland.planning.coverage import coverage_of, covered_parts
from rangeland.planning.grouping import group_by
from rangeland.planning.plan import Plan
from rangeland.planning.policy import Action, Loss
from rangeland.planning.table_audit import (
    Audit,
    LandedPiece,
    LocatedHoles,
    Runs,
    audit,
    cut_pieces,
    in_force,
    locate_holes,
    other_incarnations,
    pieces_in_bytes,
)
from rangeland.progress_events import Progress
from rangeland.results import Finding, FindState
from rangeland.spark.catalog_names import literal
from rangeland.spark.offset_scan import (
    has_rows,
    table_frame,
)

_LEFT_OUT = {Action.QUARANTINE: FindState.QUARANTINED, Action.SKIP: FindState.LOST}
Landings = Sequence[tuple[PlanEvent, OutcomeEvent]]


@dataclass(frozen=True, slots=True)
class Verification:
    """``pieces`` are the landed ranges in force, ``audit`` compares them with the table,
    ``gone_files`` are those that the table names and its store no longer has. ``found`` are the
    runs of offsets that have rows, except where offsets are bytes."""

    landings: int = 0
    pieces: tuple[LandedPiece, ...] = ()
    audit: Audit = field(default_factory=Audit)
    gone_files: tuple[str, ...] = ()
    found: Mapping[Partition, Runs] = field(default_factory=dict)


def examine(spark: Any, target: LandingTarget) -> Verification:
    """Reads three columns of the whole table, in the version that the target was last seen in:
    rows that land meanwhile are in a later one."""
    landings = target.history.landings()
    pieces = in_force(pieces_of(landings, target.history.losses()))
    by_broker = any(piece.range.partition.broker for piece in pieces)
    rows = _rows(spark, target)
    in_bytes = pieces_in_bytes(pieces)
    counted = rows.entries(in_bytes) if in_bytes else {}
    # In a table of such logs only, every entry is a run of its own, which is useless.
    dense = not in_bytes or len(in_bytes) < len({p.range.partition for p in pieces})
    found = rows.runs(by_broker=by_broker) if dense else {}
    found = {p: runs for p, runs in found.items() if p not in in_bytes}
    return Verification(
        landings=len(landings),
        pieces=tuple(pieces),
        audit=audit(pieces, found, counted),
        gone_files=tuple(f.path for f in target.table.gone_files()),
        found=found,
    )


def pieces_of(landings: Landings, losses: Iterable[LossEvent] = ()) -> list[LandedPiece]:
    """The ranges of all landings, in order, with all losses in the ledger. A range without recorded
    gaps ends where its log ended: its rows could not be counted once a later landing had cut it."""
    of_plans = (event for event in losses if event.plan_hash)
    lost = group_by(of_plans, lambda event: (event.application, event.sequence))
    found = []
    for _, outcome in landings:
        ends = [event.loss for event in lost.get((outcome.application, outcome.sequence), ())]
        for entry in outcome.ranges:
            if entry.counts is None:
                continue
            left = without_still_to_come([entry], ends) if entry.gaps is None else [entry]
            where = left[0].range if len(left) == 1 else entry.range
            piece = LandedPiece(where, entry.counts.landed, entry.gaps, entry.in_bytes)
            found.append(piece)
    return found


def holes_of_job(
    spark: Any, target: LandingTarget, job: Job, warn: Callable[[str], None]
) -> LocatedHoles:
    """What the table has lost of the topics that a job reads."""
    seen = examine(spark, target)
    found = locate_holes(seen.pieces, seen.audit.holes, seen.found)
    if found.shared:
        warn(
            f"{found.shared[0]} was landed from two topics of that name, one made after the other "
            "was deleted: it is unknown whose rows are missing, so they are left alone"
        )
    mine = [hole for hole in found.ranges if job.source.reads(hole.partition.topic)]
    if others := sorted({h.partition.topic for h in found.ranges if h not in mine}):
        warn(f"offsets of {', '.join(others)} are missing too, which this job does not read")
    return replace(found, ranges=tuple(mine))


def refuse_partial_slices(target: LandingTarget, ranges: Iterable[Range]) -> None:
    """Raises UsageError where a range holds only a part of a slice: a slice was landed as a
    whole, and can only be replaced as a whole."""
    slices = [
        LandedPiece(landed, None)
        for plan, outcome in target.history.landings()
        for s in Plan.parse(plan.document).slices
        for whole in (Range(s.partition, *s.interval, s.topic_id),)
        for landed in covered_parts([whole], coverage_of(entry.range for entry in outcome.ranges))
    ]
    asked_for, here = list(ranges), in_force(slices)
    for r in asked_for:
        if others := other_incarnations(here, r):
            raise UsageError(
                f"--replace of {r} would remove rows of an earlier incarnation of its topic",
                why=f"{others[0]} was landed before the topic was deleted and created again, and "
                "its rows have the same offsets",
                do="replace a range that the earlier topic did not have, or delete its rows first",
            )
    cut = cut_pieces(here, asked_for)
    if not cut:
        return
    asked, piece = cut[0]
    raise UsageError(
        f"--replace of {asked} cuts the slice {piece}",
        why="a slice was landed as a whole and can only be replaced as a whole",
        do=f"begin at {piece.from_offset} or {piece.until_offset} and end at one of them, or "
        "include the slices before and after as well",
        slices=[[str(r), str(p)] for r, p in cut],
    )


def refuse_undone(spark: Any, target: LandingTarget, job: Job, progress: Progress) -> None:
    """Raises Conflict where the table was restored, or all its rows replaced, and rows of the
    job's topics are missing since: the checkpoint is then ahead of the table."""
    found = target.history.undone()
    if found is None:
        return
    progress.step(f"rows of {job.sink.table} were removed or replaced: reading its offsets")
    try:
        holes = examine(spark, target).audit.holes
    except TableRefused:  # its rows cannot be read, so the table's history decides
        target.history.refuse_undone(found)
        return
    if any(job.source.reads(hole.partition.topic) for hole in holes):
        target.history.refuse_undone(found)


def refuse_unknown_rows(spark: Any, target: LandingTarget, ranges: Iterable[Range]) -> None:
    """Raises Conflict where the table has rows of topics that its ledger does not know: these
    offsets may be among them."""
    topics = target.identity.may_hold({r.partition.topic for r in ranges})
    if not topics:
        return
    why = f"its ledger has no landing of {', '.join(topics)}"
    try:
        columns = target.table.columns
        where = f"{columns.topic} IN ({', '.join(map(literal, topics))})"
        if not has_rows(spark, table_frame(spark, target.table.there(), columns), where):
            return
        if not target.identity.unknown_topics(topics, now=True):
            return  # another driver has just landed them: this plan will not be entered
        found = f"the table {target.table.name} has rows of {', '.join(topics)}"
    except TableRefused as error:
        found = f"the table {target.table.name} has rows that may be of {', '.join(topics)}"
        why += f", and {error.what}"
    raise Conflict(
        found,
        why=f"{why}: it is a copy or clone of another table, or something else wrote them; "
        "landing on top of them could land records twice",
        do="land in another table; or copy the ledger, the folder _rangeland, from where the rows "
        "came from; or count these rows as landed with `rangeland adopt JOB.yaml`",
        topics=topics,
    )


def find(spark: Any, target: LandingTarget, partition: Partition, offset: int) -> Finding:
    """Which landing an offset came from, and where its row is. Raises UsageError where several
    brokers have that partition."""
    landed = target.history.landings()
    partition = _landed_partition(landed, partition)
    landings = [
        (plan, outcome)
        for plan, outcome in landed
        if any(entry.range.has(partition, offset) for entry in outcome.ranges)
    ]
    rows = _rows(spark, target)
    files = rows.files_with(partition, offset)
    if not landings:
        state = FindState.UNKNOWN_ROW if files else FindState.NOT_LANDED
        why = "" if files else _why_not(landed, partition, offset)
        return Finding(partition, offset, state, tuple(files), why=why)
    plan, outcome = landings[-1]
    entry = next(e for e in outcome.ranges if e.range.has(partition, offset))
    why = ""
    if files:
        state = FindState.LANDED
    elif (loss := _loss_of(target, plan, partition, offset)) is not None:
        state, why = _LEFT_OUT[loss.action], f"{loss.kind}, {loss.evidence}"
    elif any(start <= offset < end for start, end in entry.gaps or ()):
        state = FindState.NO_ROW
    elif entry.in_bytes:
        state = FindState.NO_ROW if _is_whole(rows, entry) else FindState.NO_ROW_OR_HOLE
    else:
        whole = entry.counts is not None and entry.counts.landed == entry.range.width
        state = FindState.HOLE if whole or entry.gaps is not None else FindState.NO_ROW_OR_HOLE
    commit = landing_commit(
        target.table.kernel,
        target.table.there(),
        plan.application,
        plan.sequence,
        plan.table_version or 0,
    )
    return Finding(
        partition,
        offset,
        state,
        tuple(files),
        job=plan.job,
        application=plan.application,
        sequence=plan.sequence,
        table_version=None if commit is None else commit.version,
        leader=entry.leader,
        landed_at_ms=outcome.written_at_ms if commit is None else commit.committed_at_ms,
        range=entry.range,
        earlier=tuple((p.application, p.sequence) for p, _ in landings[:-1]),
        why=why,
    )


def _loss_of(
    target: LandingTarget, plan: PlanEvent, partition: Partition, offset: int
) -> Loss | None:
    """What a plan has skipped or quarantined at an offset."""
    losses = (event.loss for event in target.history.losses(plan.application, plan.sequence))
    return next(
        (loss for loss in losses if loss.action in _LEFT_OUT and loss.range.has(partition, offset)),
        None,
    )


def _landed_partition(landings: Landings, partition: Partition) -> Partition:
    """The landed partition that is meant: a partition without a broker may be that of any."""
    ranges = (entry.range for _, outcome in landings for entry in outcome.ranges)
    same = {r.partition for r in ranges if r.partition.of_any_broker == partition}
    if len(same) > 1:
        raise UsageError(
            f"{partition} is a partition of each of {len(same)} brokers",
            why=f"these have landed: {', '.join(map(str, sorted(same)))}",
            do="name the broker, as in 1-0, or with --broker",
        )
    return same.pop() if same else partition


def _why_not(landings: Landings, partition: Partition, offset: int) -> str:
    """Where an offset that was never landed lies relative to those that were."""
    ranges = [e.range for _, o in landings for e in o.ranges if e.range.partition == partition]
    if not ranges:
        return f"nothing of {partition} has landed in it"
    first, until = min(r.from_offset for r in ranges), max(r.until_offset for r in ranges)
    if first <= offset < until:
        return f"it lies between offsets of {partition} that have landed"
    return f"it has offsets {first} to {until - 1} of {partition}"


def _is_whole(rows: TableRows, entry: RangeEntry) -> bool:
    """True if the table has all rows of a range whose offsets are bytes."""
    if entry.counts is None:
        return False
    piece = LandedPiece(entry.range, entry.counts.landed, in_bytes=True)
    counted = rows.entries({entry.range.partition: [piece]})
    return counted[entry.range.partition].rows[0] >= entry.counts.landed


def _rows(spark: Any, target: LandingTarget) -> TableRows:
    if target.table.path is None or target.table.version is None:
        raise TableRefused(
            f"the table {target.table.name} does not exist", do="land something in it first"
        )
    return table_rows(spark, target.table)
