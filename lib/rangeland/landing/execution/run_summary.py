"""The result of one command, summed over the plans it has finished."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rangeland.cluster_access.registry_lookup import registered_as, schemas_of
from rangeland.decode.payload.schema_ids.schema_catalogue import SubjectVersion
from rangeland.delta.ledger.events import LossEvent
from rangeland.errors import RangelandError
from rangeland.grouping import sum_by_key
from rangeland.landing.execution.committer import CommittedPlan
from rangeland.landing.landing_context import LandingContext
from rangeland.landing.target.job_history import JobHistory
from rangeland.loss import Action, DecidedLoss
from rangeland.model import Partition, Range
from rangeland.planning.incarnation import LogMark, checkpoint_after
from rangeland.planning.plan_draft import PlanDraft
from rangeland.planning.slice_receipt import RangeResult
from rangeland.planning.table_audit import ReplacedRange
from rangeland.results import RunResult, RunState, WriterSchema


def result_of_plans(
    context: LandingContext, finished: Sequence[CommittedPlan], draft: PlanDraft | None
) -> RunResult:
    """The result of a command that has finished these plans. ``draft`` is the last one, if any."""
    job = context.job
    target = context.target
    ours = [f for f in finished if f.is_ours]
    already_landed = _already_landed(finished, draft)
    losses = [_losses_of(target.history, f) for f in finished]
    files = [one.file for f in ours for one in f.outcome.files]
    last = finished[-1] if finished else None
    is_typed = job.decode.is_typed
    return RunResult(
        job=job.name,
        application=last.plan.application if last else job.application,
        sequence=last.plan.sequence if last else target.identity.landed_sequence(job.application),
        state=_state(ours, already_landed),
        table=job.sink.table,
        table_version=last.landed.version if last else target.table.version,
        ranges=_range_results(ours),
        seconds=0.0,
        rows=sum(file.rows for file in files),
        files=len(files),
        bytes_written=sum(file.size_bytes for file in files),
        recovered=tuple(f.plan.sequence for f in finished if f.recovered),
        already_landed=already_landed,
        held_losses=_held_losses(draft, losses),
        losses=tuple(event for events in losses for event in events),
        added_columns=_added_columns(ours) if is_typed else None,
        schemas=_schemas(context, ours) if is_typed else None,
        passed_over=draft.passed_over if draft is not None and finished else (),
        replaced=_replaced_rows(ours),
        checkpoint=_checkpoint(context, finished, losses, draft),
        logs=tuple(context.surveys.last.logs.values()),
        skipped_losses=() if draft is None else draft.skipped_losses,
    )


def _state(ours: Iterable[CommittedPlan], already_landed: Sequence[Range]) -> RunState:
    """The state that the command has reached. A plan may be in the table although it landed
    nothing."""
    if any(f.outcome.has_landed_ranges for f in ours):
        return "landed"
    return "already-landed" if already_landed else "nothing"


def _already_landed(
    finished: Iterable[CommittedPlan], draft: PlanDraft | None
) -> tuple[Range, ...]:
    """The ranges that the last draft leaves out, and those that other drivers have landed."""
    left_out = () if draft is None else draft.already_landed
    landed_by_others = [one.range for f in finished if not f.is_ours for one in f.outcome.ranges]
    by_interval = {(r.partition, *r.interval): r for r in (*left_out, *landed_by_others)}
    return tuple(by_interval.values())


def _losses_of(history: JobHistory, finished: CommittedPlan) -> list[LossEvent]:
    """The losses inside a plan, without those that were found beside it."""
    return [event for event in history.losses(finished.plan.id) if event.plan_hash]


def _held_losses(
    draft: PlanDraft | None, losses: Iterable[Sequence[LossEvent]]
) -> tuple[DecidedLoss, ...]:
    """The loss for which each partition is held: by the draft, or while the plans with these losses
    were read."""
    held = {loss.partition: loss for loss in (() if draft is None else draft.held)}
    for events in losses:
        # Each slice has its own loss; the checkpoint stays where the first of them begins.
        held |= {
            event.loss.partition: event.loss
            for event in reversed(events)
            if event.loss.action is Action.HOLD
        }
    return tuple(held.values())


def _checkpoint(
    context: LandingContext,
    finished: Sequence[CommittedPlan],
    losses: Sequence[Sequence[LossEvent]],
    draft: PlanDraft | None,
) -> Mapping[Partition, LogMark] | None:
    """The job's checkpoint after its last plan. If none was finished, table and ledger are as they
    were when the last draft was made, so a draft without effect already has the checkpoint. To read
    it again takes half a second with ten thousand partitions."""
    if not context.kind.traits.moves_checkpoint:
        return None
    application = context.job.application
    for one, events in zip(reversed(finished), reversed(losses), strict=True):
        if one.plan.application == application:
            return checkpoint_after(one.plan.checkpoint, [event.loss for event in events])
    if draft is not None and draft.is_without_effect and draft.plan.application == application:
        return draft.plan.checkpoint
    return context.target.history.position(application).checkpoint


def _range_results(landed: Iterable[CommittedPlan]) -> tuple[RangeResult, ...]:
    return tuple(one for f in landed for one in f.outcome.ranges)


def _replaced_rows(landed: Iterable[CommittedPlan]) -> ReplacedRange | None:
    """The changes that replacements have made, if these are known for any of them."""
    changes = [f.replaced for f in landed if f.replaced is not None]
    return sum(changes, ReplacedRange()) if changes else None


def _added_columns(landed: Sequence[CommittedPlan]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for one in landed for name in one.landed.added))


def _schemas(context: LandingContext, landed: Sequence[CommittedPlan]) -> tuple[WriterSchema, ...]:
    """The schemas that the landed records were written with. If a subject cannot be determined,
    that is a warning."""
    total = sum_by_key(pair for one in landed for pair in one.outcome.schema_ids)
    schemas = []
    for schema_id, count in sorted(total.items()):
        registered: SubjectVersion | None = None
        try:
            lookup = schemas_of(context.job, context.row_format)
            registered = registered_as(lookup, context.row_format, schema_id)
        except RangelandError as error:  # what has landed is safe
            context.warn(f"the subject of schema {schema_id} is unknown: {error}")
        name = (registered.subject, registered.version) if registered else ()
        schemas.append(WriterSchema(schema_id, count, *name))
    return tuple(schemas)
