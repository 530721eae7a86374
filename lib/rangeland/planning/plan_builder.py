"""Makes a plan from a survey: resolve, leave out what has landed, limit, estimate, cut.

Pure arithmetic: the same inputs always give the same plan. The caller has surveyed the cluster and
read the ledger.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from rangeland.grouping import by_partition
from rangeland.loss import Action, DecidedLoss, Loss, LossKind
from rangeland.model import (
    Earliest,
    FromCheckpoint,
    Isolation,
    LogState,
    Partition,
    Range,
    Slice,
    Survey,
)
from rangeland.planning.absent_partitions import as_lagging_replica
from rangeland.planning.bound_resolution import (
    RangeRequest,
    apply_policy,
    losses_outside,
    resolve,
)
from rangeland.planning.coverage import Coverage, covered_parts, uncovered_parts
from rangeland.planning.incarnation import LogMark, may_be_same
from rangeland.planning.intervals import subtract
from rangeland.planning.job_position import JobPosition
from rangeland.planning.loss_errors import FailingLosses
from rangeland.planning.passed_over_ranges import (
    new_beginnings,
    passed_over_warnings,
    ranges_passed_over,
)
from rangeland.planning.plan import Plan, advance
from rangeland.planning.plan_draft import PlanDraft
from rangeland.planning.plan_kind import PlanKind
from rangeland.planning.policy import Policy
from rangeland.planning.retention_risk import at_risk
from rangeland.planning.run_limits import Limits, apply_limits
from rangeland.planning.slices import Slicing, cut_slices, share_of


@dataclass(frozen=True, slots=True)
class PlanTerms:
    """The parts of a job that decide its plans."""

    job: str
    application: str
    dialect: str
    isolation: Isolation
    request: RangeRequest
    limits: Limits
    slicing: Slicing
    kind: PlanKind
    """The checkpoint of a run moves to where it begins, even without new records."""
    tags: tuple[str, ...] = ()
    schema_json: str = ""


def draft_new(
    terms: PlanTerms,
    survey: Survey,
    position: JobPosition,
    damaged: Sequence[DecidedLoss] = (),
    overwritten: Sequence[Loss] = (),
) -> PlanDraft:
    """Drafts a plan of the job's request, which is empty if losses fail. Raises as ``resolve``
    does. Leaves out empty ranges, and partitions that a policy holds because their log is
    ``damaged``."""
    resolved = resolve(terms.request, survey, position, overwritten)
    damaged_partitions = {loss.partition for loss in damaged}
    sound = [r for r in resolved.ranges if r.partition not in damaged_partitions]
    requested = [r for r in sound if r.width > 0]
    ranges = _ranges_to_land(requested, terms.limits, survey, position.landed)
    # Other losses are not recorded as gone, since those offsets may still appear.
    expired = [kind for kind in LossKind if kind.traits.is_before_log_start]
    losses = _losses_inside(ranges, resolved.losses, expired)
    readable = _without_losses(ranges, losses)
    risks = at_risk(readable, survey)
    slices = cut_slices(readable, terms.slicing, survey.logs, risks)
    first_marks = _first_marks(terms.request, resolved.ranges, survey, position)
    moved_starts = (
        new_beginnings(terms.request, sound, survey.logs, position.checkpoint)
        if terms.kind.traits.moves_checkpoint
        else []
    )
    checkpoint = _move_checkpoint(
        {**position.checkpoint, **first_marks}, [*moved_starts, *ranges], survey
    )
    plan = _plan(terms, survey, position.sequence, ranges, slices, losses, checkpoint)
    skipped = tuple(loss for loss in resolved.losses if loss.kind not in expired)
    passed_over = _passed_over(plan, position) if terms.kind.traits.moves_checkpoint else ()
    moved_partitions = {*first_marks, *(r.partition for r in moved_starts)}
    return PlanDraft(
        plan=plan,
        requested=tuple(requested),
        already_landed=tuple(covered_parts(requested, position.landed)),
        held=(*resolved.held, *damaged),
        notes=(
            *passed_over_warnings(passed_over),
            *resolved.notes,
            *skipped_loss_warnings(skipped),
        ),
        skipped_losses=skipped,
        risks=risks,
        moves_without_landing=bool(moved_partitions - {r.partition for r in ranges}),
        passed_over=passed_over,
        failing=resolved.failing,
    )


def _ranges_to_land(
    requested: Sequence[Range], limits: Limits, survey: Survey, landed: Coverage
) -> list[Range]:
    """The requested ranges that have not landed, within the limits of a run."""
    unlanded = [
        with_estimate(r, survey.logs[r.partition]) for r in uncovered_parts(requested, landed)
    ]
    return [r for r in apply_limits(unlanded, limits, survey.logs) if r.width > 0]


def _first_marks(
    request: RangeRequest, ranges: Sequence[Range], survey: Survey, position: JobPosition
) -> dict[Partition, LogMark]:
    """The beginnings of partitions to which ``first_run`` applies. It is resolved once: in the next
    run the end of a log, or the first offset of a time, may have changed."""
    if isinstance(request.first_run, Earliest):
        return {}
    first = {
        r.partition: r
        for r in ranges
        if isinstance(request.from_bounds.of(r.partition), FromCheckpoint)
        and r.partition not in position.checkpoint
        and (not position.checkpoint or r.partition in position.held_at_first)
    }
    starts = [replace(r, until_offset=r.from_offset) for r in first.values()]
    return _move_checkpoint({}, starts, survey)


def _move_checkpoint(
    checkpoint: Mapping[Partition, LogMark], ranges: Sequence[Range], survey: Survey
) -> dict[Partition, LogMark]:
    """The checkpoint once these ranges have landed, in the leader epochs of the survey."""
    epochs = {r.partition: survey.logs[r.partition].leader.epoch for r in ranges}
    return advance(checkpoint, tuple(ranges), epochs, _with_later_epoch(ranges, survey))


def _with_later_epoch(ranges: Sequence[Range], survey: Survey) -> set[Partition]:
    """Partitions whose leader epoch was read from a batch after all of their ranges, which may
    belong to an earlier epoch."""
    ends = {r.partition: r.until_offset for r in sorted(ranges)}
    logs = {p: survey.logs[p] for p in ends}
    return {p for p, log in logs.items() if log.epoch_is_read and ends[p] < log.end_offset}


def draft_exact_ranges(
    terms: PlanTerms,
    survey: Survey,
    position: JobPosition,
    ranges: Sequence[Range],
    overwritten: Sequence[Loss] = (),
) -> PlanDraft:
    """Drafts a plan of exactly these ranges, whether they have landed before or not. It is empty if
    the log no longer has them and the policy is to fail; what a policy skips is recorded as lost.
    Where offsets are ``overwritten``, the log's present records are landed.
    Leaves out partitions that are not in the survey. Applies no limits."""
    surveyed = [r for r in ranges if r.partition not in survey.absent.excluded]
    policy = terms.request.policy
    inside = _losses_inside(surveyed, overwritten, (LossKind.TRUNCATED,))
    decided = [policy.decide_loss(loss) for loss in inside]
    losses = [loss for r in surveyed for loss in _find_losses(r, survey)]
    resolved = apply_policy(policy, surveyed, [*losses, *decided])
    skipped = [loss for loss in resolved.losses if loss in decided]
    # Offsets that may still appear are not recorded as gone: they stay missing.
    still_missing = [
        loss for loss in resolved.losses if not loss.kind.traits.is_for_good and loss not in skipped
    ]
    planned = [
        with_estimate(r, survey.logs[r.partition]) if r.partition in survey.logs else r
        for r in _without_losses(list(resolved.ranges), still_missing)
    ]
    for_good = [kind for kind in LossKind if kind.traits.is_for_good]
    lost = _losses_inside(planned, resolved.losses, for_good)
    slices = cut_slices(_without_losses(planned, lost), terms.slicing, survey.logs)
    # A plan that is finished later must find these logs as they are now.
    in_logs = [
        r
        for r in planned
        if (log := survey.logs.get(r.partition)) and may_be_same(r.topic_id, log.leader.topic_id)
    ]
    checkpoint = _move_checkpoint(position.checkpoint, in_logs, survey)
    plan = _plan(terms, survey, position.sequence, planned, slices, lost, checkpoint)
    notes = [f"{loss}: {loss.evidence}; it stays missing" for loss in still_missing]
    notes += skipped_loss_warnings(skipped)
    return PlanDraft(
        plan=plan,
        requested=tuple(surveyed),
        held=resolved.held,
        notes=tuple(notes),
        skipped_losses=tuple(skipped),
        failing=resolved.failing,
    )


def draft_ranges_in_log(
    terms: PlanTerms, survey: Survey, position: JobPosition, ranges: Iterable[Range]
) -> PlanDraft:
    """Drafts a plan of what the logs have of these ranges, whatever the policy; the rest is
    ``held``. The ranges do not depend on each other: a loss in one leaves others of its partition
    in the plan."""
    surveyed = [r for r in ranges if r.partition not in survey.absent.excluded]
    with_losses = [(r, _find_losses(r, survey)) for r in surveyed]
    readable = [part for r, losses in with_losses for part in _without_losses([r], losses)]
    draft = draft_exact_ranges(terms, survey, position, readable)
    held = tuple(loss.with_action(Action.HOLD) for _, losses in with_losses for loss in losses)
    return replace(draft, held=held)


def _plan(
    terms: PlanTerms,
    survey: Survey,
    sequence: int,
    ranges: Iterable[Range],
    slices: Iterable[Slice],
    losses: Iterable[Loss],
    checkpoint: Mapping[Partition, LogMark],
) -> Plan:
    return Plan(
        job=terms.job,
        application=terms.application,
        sequence=sequence,
        dialect=terms.dialect,
        isolation=terms.isolation,
        tags=terms.tags,
        ranges=tuple(ranges),
        slices=tuple(slices),
        losses=tuple(losses),
        checkpoint=checkpoint,
        made_at_ms=survey.taken_at_ms,
        kind=terms.kind,
        schema_json=terms.schema_json,
        cluster=survey.cluster,
    )


def _find_losses(r: Range, survey: Survey) -> list[Loss]:
    """The offsets of a range that its log no longer has, or that have no leader now."""
    log, whole = survey.logs.get(r.partition), (r.partition, *r.interval)
    if log is None:
        silence = survey.absent.why_unreachable(r.partition)
        if silence is not None:
            return [Loss(*whole, LossKind.UNREACHABLE, silence)]
        return [Loss(*whole, LossKind.VANISHED, "the cluster no longer names this partition")]
    topic_id = log.leader.topic_id
    if r.topic_id is not None and topic_id is not None and r.topic_id != topic_id:
        evidence = (
            f"the topic was deleted and created again: its id was {r.topic_id} and is "
            f"{topic_id} now"
        )
        return [Loss(*whole, LossKind.RECREATED, evidence)]
    losses = losses_outside(log, *r.interval, needed_until=r.until_offset)
    return [as_lagging_replica(loss) for loss in losses] if log.leader.is_replica else losses


def rebuild_draft(
    plan: Plan,
    unplanned_losses: Sequence[DecidedLoss],
    position: JobPosition,
    notes: Sequence[str],
    *,
    moves_checkpoint: bool,
) -> PlanDraft:
    """Reconstructs the draft of an existing plan. ``unplanned_losses`` are the draft's losses that
    are not part of the plan."""
    held = tuple(loss for loss in unplanned_losses if loss.action is Action.HOLD)
    skipped = tuple(loss for loss in unplanned_losses if loss.action is Action.SKIP)
    passed_over = _passed_over(plan, position) if moves_checkpoint else ()
    notes = (*passed_over_warnings(passed_over), *skipped_loss_warnings(skipped), *notes)
    return PlanDraft(
        plan=plan,
        requested=plan.ranges,
        held=held,
        notes=notes,
        skipped_losses=skipped,
        moves_without_landing=plan.checkpoint != position.checkpoint,
        passed_over=passed_over,
    )


def _passed_over(plan: Plan, position: JobPosition) -> tuple[Range, ...]:
    return ranges_passed_over(position.checkpoint, plan.checkpoint, plan.ranges, position.landed)


def permanent_failures(
    ranges: Sequence[Range], survey: Survey, policy: Policy
) -> FailingLosses | None:
    """The permanent losses in the logs of these ranges that the policy does not allow. A log that
    is too short may grow again, and is ignored here."""
    surveyed = [r for r in ranges if r.partition not in survey.absent.excluded]
    failing = tuple(
        decided
        for r in surveyed
        for loss in _find_losses(r, survey)
        if loss.kind.traits.is_for_good or loss.kind.traits.is_whole_log
        if (decided := policy.decide_loss(loss)).action is Action.FAIL
    )
    return FailingLosses(failing) if failing else None


def skipped_loss_warnings(losses: Sequence[Loss]) -> list[str]:
    """The warnings about a draft's ``skipped_losses``."""
    return [f"{loss}: {loss.evidence}; skipped, as policy.{loss.kind} is skip" for loss in losses]


def _losses_inside(
    ranges: Sequence[Range], losses: Sequence[Loss], kinds: Sequence[LossKind]
) -> list[Loss]:
    """The losses of these kinds inside the ranges of a plan: part of its proof. A plan skips all
    of its losses, so none has an action."""
    of_kinds = by_partition(loss for loss in losses if loss.kind in kinds)
    return [
        Loss(
            loss.partition,
            max(r.from_offset, loss.from_offset),
            min(r.until_offset, loss.until_offset),
            loss.kind,
            loss.evidence,
            loss.is_sure,
            loss.topic_id,
        )
        for r in ranges
        for loss in of_kinds.get(r.partition, ())
        if max(r.from_offset, loss.from_offset) < min(r.until_offset, loss.until_offset)
    ]


def _without_losses(ranges: Sequence[Range], losses: Sequence[Loss]) -> list[Range]:
    """The readable parts of the ranges."""
    lost = by_partition(losses)
    return [
        Range(r.partition, start, end, r.topic_id, share_of(r, start, end))
        for r in ranges
        for start, end in subtract(r.interval, [x.interval for x in lost.get(r.partition, ())])
    ]


ASSUMED_RECORD_BYTES = 1024
MAX_ESTIMATED_BYTES = 1 << 50
"""More than any broker stores: a larger estimate is meaningless."""


def with_estimate(r: Range, log: LogState) -> Range:
    """The range with ``estimated_bytes``: its share of the size of its log. If the size is unknown
    (an old broker, no permission), each record is assumed to take ``ASSUMED_RECORD_BYTES``. No
    proof depends on this: it only decides where slices are cut."""
    log_width = log.end_offset - log.start_offset
    if log.size_bytes is None or log_width <= 0:
        return replace(r, estimated_bytes=_within(r.width * ASSUMED_RECORD_BYTES))
    return replace(r, estimated_bytes=_within(log.size_bytes * r.width // log_width))


def _within(estimate: int) -> int:
    return max(0, min(estimate, MAX_ESTIMATED_BYTES))
