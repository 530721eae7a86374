"""What is in quarantine, and plans that land what of it decodes by now.

A batch is in quarantine from the landing that has put it there until another one has dealt
with its offsets: the ledger's order decides, so that nothing here is ever marked or removed.
It is decoded again from the bytes that were kept, which need no broker, or read again from
the log, where another replica may have it whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rangeland.delta.quarantine import KeptBatch
from rangeland.errors import BadRecord, StorageFailed
from rangeland.fetch.consumer import read_slices
from rangeland.fetch.settings import ClusterSettings
from rangeland.job import Job
from rangeland.landing.target import Target
from rangeland.model import Isolation, Kept, Range, Slice
from rangeland.planning.coverage import coverage_of, leave_out
from rangeland.planning.draft import Draft, Standing
from rangeland.planning.plan import Plan, Way
from rangeland.planning.policy import Action, Policy

PLAN_BYTES = 64 << 20
"""What of kept bytes one plan lands: they travel with its tasks."""
_HOLD = Action.HOLD
HOLD_ALL = Policy(_HOLD, _HOLD, _HOLD, _HOLD, _HOLD, _HOLD)
"""For reading a log again: what it cannot give stays in quarantine."""


@dataclass(frozen=True, slots=True)
class Quarantined:
    """A batch in quarantine. ``why`` it cannot be decoded now; empty if it can."""

    batch: KeptBatch
    isolation: Isolation
    why: str

    @property
    def decodes(self) -> bool:
        return not self.why


def in_quarantine(job: Job, target: Target) -> list[Quarantined]:
    """All batches that the job has in quarantine, in the order of the log, each tried.
    Raises StorageFailed where bytes are gone that the ledger says are kept."""
    wanted = _ranges_in_force(job, target)
    if not wanted:
        return []
    found: list[Quarantined] = []
    left = set(wanted)
    for batch in target.quarantined():
        key = (batch.application, batch.sequence, batch.range)
        if key not in left:
            continue
        left.discard(key)
        for where in wanted[key].ranges:
            part = replace(batch, range=where)
            isolation = wanted[key].isolation
            found.append(Quarantined(part, isolation, _trouble(job, part, isolation)))
    if left:
        application, sequence, where = min(left, key=str)
        raise StorageFailed(
            f"the quarantine has no bytes of {where}",
            why=f"{application} {sequence} has put them there",
            do="restore the folder _rangeland/quarantine beside the table's files",
        )
    return sorted(found, key=lambda one: one.batch.range)


@dataclass(frozen=True, slots=True)
class _Wanted:
    ranges: tuple[Range, ...]
    isolation: Isolation


def _ranges_in_force(job: Job, target: Target) -> dict[tuple[str, int, Range], _Wanted]:
    """What of each quarantined range no later landing has dealt with."""
    if not any(one.action == Action.QUARANTINE for one in target.losses()):
        return {}
    found: dict[tuple[str, int, Range], _Wanted] = {}
    for entry, outcome in target.landings():
        landed = coverage_of(one.range for one in outcome.ranges)
        for key, wanted in list(found.items()):
            found[key] = replace(wanted, ranges=tuple(leave_out(wanted.ranges, landed)))
        if entry.job != job.job:
            continue
        isolation = Plan.from_json(target.document(entry)).isolation
        for loss in target.losses(entry.application, entry.sequence):
            if loss.action == Action.QUARANTINE:
                where = loss.range
                found[entry.application, entry.sequence, where] = _Wanted((where,), isolation)
    return {key: wanted for key, wanted in found.items() if wanted.ranges}


def _trouble(job: Job, batch: KeptBatch, isolation: Isolation) -> str:
    where = batch.range
    piece = Slice(0, where.partition, where.from_offset, where.until_offset)
    settings = ClusterSettings(job.source.dialect, (), isolation=isolation, kept={0: batch.kept})
    try:
        for _ in read_slices([piece], settings):
            pass
    except BadRecord as error:
        return error.why or error.what
    return ""


def draft_of_kept(job: Job, target: Target, standing: Standing, now_ms: int) -> Draft:
    """A plan of the batches that can be decoded now, as many as one plan may carry."""
    ready = [one for one in in_quarantine(job, target) if one.decodes]
    alike = [one for one in ready if one.isolation is ready[0].isolation]
    taken: list[Quarantined] = []
    size = 0
    for one in alike:
        size += one.batch.size_bytes
        if taken and size > PLAN_BYTES:
            break
        taken.append(one)
    ranges = [replace(one.batch.range, estimated_bytes=one.batch.size_bytes) for one in taken]
    plan = Plan(
        job=job.job,
        application=job.application,
        sequence=standing.sequence,
        dialect=job.source.dialect,
        isolation=taken[0].isolation if taken else job.source.isolation,
        ranges=tuple(ranges),
        slices=tuple(_slice(index, r) for index, r in enumerate(ranges)),
        checkpoint=standing.checkpoint,
        made_at_ms=now_ms,
    )
    return Draft(plan, tuple(ranges), (), ())


def _slice(index: int, r: Range) -> Slice:
    ends = (r.from_offset, r.until_offset)
    return Slice(index, r.partition, *ends, r.estimated_bytes, r.topic_id)


def redrives(plan: Plan) -> bool:
    """True where a plan lands the bytes that were kept."""
    return _goes(plan, Way.REDRIVE)


def rereads(plan: Plan) -> bool:
    """True where a plan reads from the log again what is in quarantine."""
    return _goes(plan, Way.REREAD)


def _goes(plan: Plan, way: Way) -> bool:
    return plan.application.startswith(f"rangeland/{plan.job}/{way.value}/")


def settings_of(plan: Plan, target: Target) -> ClusterSettings:
    """Where tasks read a plan of kept bytes: from the bytes, which they take along."""
    batches = target.quarantined()
    kept = {s.index: kept_for(s, batches) for s in plan.slices}
    return ClusterSettings(plan.dialect, (), isolation=plan.isolation, kept=kept)


def kept_for(piece: Slice, batches: Sequence[KeptBatch]) -> Kept:
    """The bytes that were kept last of a slice's offsets."""
    for batch in reversed(batches):
        r = batch.range
        same = (r.partition, r.topic_id) == (piece.partition, piece.topic_id)
        if same and r.from_offset <= piece.from_offset and piece.until_offset <= r.until_offset:
            return batch.kept
    raise StorageFailed(
        f"the quarantine has no bytes of {piece}",
        do="restore the folder _rangeland/quarantine beside the table's files",
    )
