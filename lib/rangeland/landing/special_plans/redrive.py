"""Makes plans that land those quarantined batches which can be decoded now.

A batch is in quarantine from the landing that put it there until a later landing includes its
offsets. The order of the ledger decides this, so nothing is ever marked or removed. A batch is
decoded again from its kept bytes, which needs no broker, or read again from the log, where another
replica may have an undamaged copy.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import assert_never

from rangeland.cluster_access.cluster_lookup import registry_settings
from rangeland.cluster_access.registry_lookup import schemas_of
from rangeland.cluster_settings import ClusterSettings
from rangeland.decode.payload.schema_ids.confluent_framing import count_schema_ids
from rangeland.decode.payload.schema_ids.schema_catalogue import TopicField
from rangeland.delta.ledger.events import LossEvent
from rangeland.delta.quarantine.quarantine_table import QuarantinedBatch
from rangeland.delta.quarantine.quarantine_writer import prefix_of
from rangeland.errors import BadRecord
from rangeland.fetch.quarantine_reading import decodable
from rangeland.fetch.read_settings import ReadSettings
from rangeland.fetch.slice_chunks import LostChunk
from rangeland.fetch.slice_reading import read_slices
from rangeland.job import Job
from rangeland.landing.landing_context import LandingContext
from rangeland.landing.target.job_history import JobHistory
from rangeland.landing.target.landing_target import LandingTarget
from rangeland.loss import (
    Action,
    DamagedBytes,
    DecidedLoss,
    LossKind,
    QuarantinedBytes,
    UndecodableRecords,
)
from rangeland.model import Isolation, Partition, Range, Slice
from rangeland.planning.coverage import coverage_of, uncovered_parts
from rangeland.planning.job_position import JobPosition
from rangeland.planning.loss_errors import QuarantinedBytesGone
from rangeland.planning.plan import Plan, PlanId
from rangeland.planning.plan_draft import PlanDraft
from rangeland.planning.plan_kind import PlanKind
from rangeland.planning.policy import Policy
from rangeland.results import QuarantinedRange, ReadFilter
from rangeland.schema_registry.registry_settings import LONG_AGO
from rangeland.wording import count_noun

PLAN_BYTES = 64 << 20
"""The maximum number of kept bytes per plan, since they are sent to its tasks."""
KEEP = Policy(undecodable=Action.QUARANTINE)
"""The policy for landing kept records through a transform: records that it fails on stay in
quarantine."""
HOLD_ALL = Policy.all(Action.HOLD)
"""The policy for reading a log again: offsets that are still damaged or lost stay in quarantine."""
READ_ON = Policy(
    (), **{k: Action.SKIP if k.traits.is_found_by_reading else Action.HOLD for k in LossKind}
)
"""The policy for finding all offsets that are still damaged or missing."""


def quarantined_ranges(context: LandingContext) -> list[QuarantinedRange]:
    """All batches that the job has in quarantine, in the order of the log, after trying to decode
    each. Those whose bytes are gone are among them."""
    return sorted(_try_batches(context), key=lambda one: one.batch.range)


def _try_batches(context: LandingContext) -> Iterator[QuarantinedRange]:
    """The quarantined ranges in the order of their files. Bytes are released after the trial: there
    may be more of them than fit into the driver's memory."""
    target = context.target
    requests = _ranges_in_force(context.job, target.history)
    remaining = set(requests)
    for batch in target.quarantine.batches(lambda *key: key in remaining):
        key = (batch.plan_id, batch.range)
        if key not in remaining:
            continue
        remaining.discard(key)
        for where in requests[key].ranges:
            isolation, tags = requests[key].read_filter
            for range_, why in _trial(context, replace(batch, range=where), isolation):
                without_bytes = replace(
                    batch, range=range_, quarantined_bytes=DamagedBytes(b"", (), batch.reason)
                )
                yield QuarantinedRange(without_bytes, isolation, why, tags)
    if remaining:
        gone_files = target.quarantine.gone_files()
        for key in sorted(remaining, key=str):
            yield from _without_bytes(requests[key], gone_files)


def _without_bytes(
    request: _RedriveRequest, gone_files: Sequence[str]
) -> Iterator[QuarantinedRange]:
    """The parts of a range whose bytes the quarantine no longer has. Of ``gone_files``, these are
    the ones that its plan has written; if there are none, OPTIMIZE may have moved its bytes to
    any of them."""
    event = request.event
    prefix = prefix_of(event.plan_hash)
    files = tuple(f for f in gone_files if f.startswith(prefix)) or tuple(gone_files)
    why = "its bytes are gone from the quarantine"
    if files:
        why += f" with {', '.join(files[:2])}"
        why += f" and {count_noun(len(files) - 2, 'more file')}" if len(files) > 2 else ""
    reason = event.loss.evidence
    isolation, tags = request.read_filter
    for where in request.ranges:
        nothing = DamagedBytes(b"", (), reason)
        batch = QuarantinedBatch(where, event.application, event.sequence, reason, "", 0, nothing)
        yield QuarantinedRange(batch, isolation, why, tags, files)


def quarantined_schema_ids(job: Job, target: LandingTarget) -> dict[TopicField, set[int]]:
    """The schema ids of intact records in quarantine, by topic and field. Empty for a job without a
    schema registry."""
    ids: dict[TopicField, set[int]] = {}
    if not job.decode.fields_with_schema_ids:
        return ids
    requests = _ranges_in_force(job, target.history)
    for batch in target.quarantine.batches(lambda *key: key in requests):
        kept = batch.quarantined_bytes
        if isinstance(kept, DamagedBytes):
            continue
        for field in job.decode.fields_with_schema_ids:
            of_field = ids.setdefault(TopicField(batch.range.partition.topic, field), set())
            of_field |= set(count_schema_ids(kept.rows.column(field)))
    return ids


@dataclass(frozen=True, slots=True)
class _RedriveRequest:
    ranges: tuple[Range, ...]
    read_filter: ReadFilter
    event: LossEvent
    """The loss with which they were quarantined."""


def _ranges_in_force(job: Job, history: JobHistory) -> dict[tuple[PlanId, Range], _RedriveRequest]:
    """The parts of each quarantined range that no later landing has."""
    if not any(x.loss.action is Action.QUARANTINE for x in history.losses()):
        return {}
    requests: dict[tuple[PlanId, Range], _RedriveRequest] = {}
    for planned, outcome in history.landings():
        covered = coverage_of(one.range for one in outcome.ranges)
        for key, request in list(requests.items()):
            requests[key] = replace(request, ranges=tuple(uncovered_parts(request.ranges, covered)))
        if planned.job != job.name:
            continue
        plan = Plan.parse(planned.document)
        read_filter = plan.isolation, plan.tags
        for event in history.losses(planned.plan_id):
            if event.loss.action is Action.QUARANTINE:
                where = event.loss.range
                requests[planned.plan_id, where] = _RedriveRequest((where,), read_filter, event)
    return {key: request for key, request in requests.items() if request.ranges}


def _trial(
    context: LandingContext, batch: QuarantinedBatch, isolation: Isolation
) -> list[tuple[Range, str]]:
    """The parts of a range, each with the reason why it cannot be decoded now, or an empty text. A
    batch is decoded as a whole; intact records are decoded one by one."""
    kept = batch.quarantined_bytes
    match kept:
        case DamagedBytes():
            return [(batch.range, _why_not(context, batch, isolation))]
        case UndecodableRecords():
            job = context.job
            schemas = schemas_of(job, context.row_format, LONG_AGO)
            return decodable(kept, batch.range, job.source.dialect, context.row_format, schemas)
        case _:
            assert_never(kept)


def _why_not(context: LandingContext, batch: QuarantinedBatch, isolation: Isolation) -> str:
    """The reason why the bytes of a batch cannot be decoded now; empty if they can."""
    where = batch.range
    slice_ = Slice(0, where.partition, *where.interval)
    settings = _decode_settings(context, {0: batch.quarantined_bytes}, isolation)
    reached = where.from_offset
    try:
        for chunk in read_slices([slice_], settings):
            reached = chunk.until_offset
    except BadRecord as error:
        return error.why or error.what
    if reached != where.until_offset:
        return f"its bytes end at offset {reached}, not at {where.until_offset}"
    return ""


def draft_from_quarantine(context: LandingContext, position: JobPosition, now_ms: int) -> PlanDraft:
    """A plan for the batches that can be decoded now, as many as one plan may carry. With a
    transform, it has only one incarnation of each topic, since the transform's rows do not say to
    which incarnation they belong."""
    job = context.job
    batches: list[QuarantinedBatch] = []
    read_filter: ReadFilter | None = None
    topic_ids: dict[str, str | None] = {}
    size = 0
    for quarantined in _try_batches(context):
        if not quarantined.decodes or read_filter not in (None, quarantined.read_filter):
            continue
        where = quarantined.batch.range
        first_id = topic_ids.setdefault(where.partition.topic, where.topic_id)
        if context.transform is not None and first_id != where.topic_id:
            continue
        size += quarantined.batch.size_bytes
        if batches and size > PLAN_BYTES:
            break
        read_filter = quarantined.read_filter
        batches.append(quarantined.batch)
    batches.sort(key=lambda batch: batch.range)
    ranges = [replace(batch.range, estimated_bytes=batch.size_bytes) for batch in batches]
    isolation, tags = read_filter or (job.source.isolation, ())
    plan = Plan(
        job=job.name,
        application=job.application,
        sequence=position.sequence,
        dialect=job.source.dialect,
        isolation=isolation,
        tags=tags,
        ranges=tuple(ranges),
        slices=tuple(_slice(index, r) for index, r in enumerate(ranges)),
        checkpoint=position.checkpoint,
        made_at_ms=now_ms,
        kind=PlanKind.REDRIVE,
        schema_json=context.schema_to_merge(),
    )
    return PlanDraft(plan=plan, requested=tuple(ranges), leaves_more=True)


def _slice(index: int, r: Range) -> Slice:
    return Slice(index, r.partition, *r.interval, r.estimated_bytes, r.topic_id)


def draft_from_log(
    quarantined: Sequence[QuarantinedRange],
    settings: ReadSettings,
    draft_ranges: Callable[[list[Range], ReadFilter], PlanDraft],
) -> PlanDraft:
    """A plan for the quarantined ranges of one read filter that are undamaged in the log now. The
    log is read once beforehand, so that no plan is entered for ranges that are still damaged: the
    notes name those that stay in quarantine. ``draft_ranges`` makes a plan for ranges. Raises
    Unreachable if the log cannot be read."""
    read_filters = list(dict.fromkeys(one.read_filter for one in quarantined))
    notes: list[str] = []
    for read_filter in read_filters:
        ranges = [one.batch.range for one in quarantined if one.read_filter == read_filter]
        draft = _draft_with(ranges, read_filter, settings, draft_ranges)
        notes += [note for note in draft.notes if note not in notes]
        is_last = read_filter == read_filters[-1]
        if is_last or draft.failing is not None or not draft.is_empty:
            return replace(draft, notes=tuple(notes), leaves_more=not is_last)
    return draft_ranges([], (settings.isolation, settings.tags))


def _draft_with(
    ranges: list[Range],
    read_filter: ReadFilter,
    settings: ReadSettings,
    draft_ranges: Callable[[list[Range], ReadFilter], PlanDraft],
) -> PlanDraft:
    draft = draft_ranges(ranges, read_filter)
    lost = _read_on_trial(draft.plan.slices, settings.with_filter(*read_filter))
    losses = (*draft.held, *lost)
    if lost:
        readable = uncovered_parts(ranges, coverage_of(loss.range for loss in lost))
        draft = draft_ranges(list(readable), read_filter)
    notes = [f"{loss}: {loss.evidence}; it stays in quarantine" for loss in losses]
    return replace(draft, held=(), notes=(*draft.notes, *notes))


def _read_on_trial(slices: Sequence[Slice], settings: ReadSettings) -> list[DecidedLoss]:
    """The damage and gaps that these slices still have. Reading continues past them."""
    if not slices:
        return []
    with closing(read_slices(slices, replace(settings, policy=READ_ON))) as chunks:
        return [chunk.loss for chunk in chunks if isinstance(chunk, LostChunk)]


def settings_of(context: LandingContext, plan: Plan) -> ReadSettings:
    """The settings with which tasks decode kept bytes. If offsets were kept more than once, the
    newest bytes count."""
    slices = sorted(plan.slices, key=_place_of)

    def inside(where: Range) -> list[Slice]:
        first = bisect_left(slices, _place_of(where), key=_place_of)
        last = bisect_left(slices, (*_place_of(where)[:-1], where.until_offset), key=_place_of)
        return [s for s in slices[first:last] if s.until_offset <= where.until_offset]

    batches = context.target.quarantine.batches(lambda _plan_id, where: bool(inside(where)))
    by_slice: dict[int, QuarantinedBytes] = {}
    for batch in sorted(batches, key=lambda batch: batch.quarantined_at_ms):
        by_slice |= {s.index: batch.quarantined_bytes for s in inside(batch.range)}
    for s in slices:
        if s.index not in by_slice:
            raise QuarantinedBytesGone(
                f"the quarantine has no bytes of {s}",
                do="restore the folder _rangeland/quarantine beside the table's files",
            )
    return _decode_settings(context, by_slice, plan.isolation, plan.tags)


def _decode_settings(
    context: LandingContext,
    by_slice: dict[int, QuarantinedBytes],
    isolation: Isolation,
    tags: tuple[str, ...] = (),
) -> ReadSettings:
    """The settings for decoding these bytes, without any broker. The memory budget is the job's: a
    batch that was quarantined because it was too large can be landed once the budget is raised.
    Records without a known schema stay in quarantine: it may still be registered."""
    source = context.job.source
    cluster = ClusterSettings(
        source.dialect, (), isolation=isolation, max_batch_bytes=source.max_batch_bytes
    )
    return ReadSettings(
        cluster,
        tags=tags,
        quarantined_bytes=by_slice,
        row_format=context.row_format,
        registry=registry_settings(context.job),
        written=LONG_AGO,
    )


def _place_of(range_: Range | Slice) -> tuple[Partition, str, int]:
    return range_.partition, range_.topic_id or "", range_.from_offset
