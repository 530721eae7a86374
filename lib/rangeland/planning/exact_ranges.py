"""Makes plans for given ranges, such as holes and quarantined offsets, without resolving bounds.

As in ``plan_builder``, this is pure arithmetic on a survey and a position.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from rangeland.loss import Action, Loss, LossKind
from rangeland.model import Range, Survey
from rangeland.planning.absent_partitions import as_lagging_replica
from rangeland.planning.bound_resolution import apply_policy, losses_outside
from rangeland.planning.incarnation import may_be_same
from rangeland.planning.job_position import JobPosition
from rangeland.planning.loss_errors import FailingLosses
from rangeland.planning.plan_builder import PlanTerms, make_plan, move_checkpoint
from rangeland.planning.plan_draft import PlanDraft, skipped_loss_warnings
from rangeland.planning.planned_ranges import (
    PlannedRanges,
    losses_inside,
    with_estimate,
    without_losses,
)
from rangeland.planning.policy import Policy


def draft_exact_ranges(
    terms: PlanTerms,
    survey: Survey,
    position: JobPosition,
    ranges: Sequence[Range],
    overwritten: Sequence[Loss] = (),
) -> PlanDraft:
    """Drafts a plan of exactly these ranges, whether they have landed before or not. It is empty if
    the log no longer has them and the policy is to fail; skipped offsets are recorded as lost.
    At ``overwritten`` offsets, the log's present records are landed.
    Leaves out partitions that are not in the survey. Applies no limits."""
    policy = terms.request.policy
    surveyed = _surveyed(ranges, survey)
    gone = [loss for r in surveyed for loss in _find_losses(r, survey)]
    rewritten = [policy.decide_loss(loss) for loss in losses_inside(surveyed, overwritten)]
    resolved = apply_policy(policy, surveyed, [*gone, *rewritten])
    skipped = tuple(x for x in resolved.losses if x in rewritten)
    lost = [x for x in resolved.losses if x.kind.traits.is_for_good]
    # Offsets that may still appear are not recorded as gone: they remain missing.
    still_missing = [
        x for x in resolved.losses if not x.kind.traits.is_for_good and x not in skipped
    ]
    planned = PlannedRanges.of(
        _with_estimates(without_losses(resolved.ranges, still_missing), survey), lost
    )
    # A plan that is finished later must find these logs as they are now.
    in_logs = [r for r in planned.ranges if _is_in_log(r, survey)]
    checkpoint = move_checkpoint(position.checkpoint, in_logs, survey)
    missing_notes = [f"{loss}: {loss.evidence}; it stays missing" for loss in still_missing]
    return PlanDraft(
        plan=make_plan(terms, survey, position.sequence, planned, checkpoint),
        requested=tuple(surveyed),
        held=resolved.held,
        notes=(*missing_notes, *skipped_loss_warnings(skipped)),
        skipped_losses=skipped,
        failing=resolved.failing,
    )


def draft_ranges_in_log(
    terms: PlanTerms, survey: Survey, position: JobPosition, ranges: Iterable[Range]
) -> PlanDraft:
    """Drafts a plan of the parts of these ranges that the logs have, whatever the policy; the rest
    is ``held``. The ranges do not depend on each other: a loss in one leaves the partition's other
    ranges in the plan."""
    with_losses = [(r, _find_losses(r, survey)) for r in _surveyed(ranges, survey)]
    readable = [part for r, losses in with_losses for part in without_losses([r], losses)]
    draft = draft_exact_ranges(terms, survey, position, readable)
    held = tuple(loss.with_action(Action.HOLD) for _, losses in with_losses for loss in losses)
    return replace(draft, held=held)


def permanent_failures(
    ranges: Sequence[Range], survey: Survey, policy: Policy
) -> FailingLosses | None:
    """The permanent losses in the logs of these ranges that the policy does not allow. A log that
    is too short may grow again, and is ignored here."""
    failing = tuple(
        decided
        for r in _surveyed(ranges, survey)
        for loss in _find_losses(r, survey)
        if loss.kind.traits.is_for_good or loss.kind.traits.is_whole_log
        if (decided := policy.decide_loss(loss)).action is Action.FAIL
    )
    return FailingLosses(failing) if failing else None


def _surveyed(ranges: Iterable[Range], survey: Survey) -> list[Range]:
    """The ranges without those of partitions that the job leaves out."""
    return [r for r in ranges if r.partition not in survey.absent.excluded]


def _with_estimates(ranges: Iterable[Range], survey: Survey) -> list[Range]:
    return [
        with_estimate(r, survey.logs[r.partition]) if r.partition in survey.logs else r
        for r in ranges
    ]


def _is_in_log(r: Range, survey: Survey) -> bool:
    """Whether the survey has the log of a range, as far as topic ids show."""
    log = survey.logs.get(r.partition)
    return log is not None and may_be_same(r.topic_id, log.leader.topic_id)


def _find_losses(r: Range, survey: Survey) -> list[Loss]:
    """The offsets of a range that its log no longer has, or that have no leader now."""
    log, whole = survey.logs.get(r.partition), (r.partition, *r.interval)
    if log is None:
        silence = survey.absent.why_unreachable(r.partition)
        if silence is not None:
            return [Loss(*whole, LossKind.UNREACHABLE, silence)]
        return [Loss(*whole, LossKind.VANISHED, "the cluster no longer names this partition")]
    if not may_be_same(r.topic_id, log.leader.topic_id):
        evidence = (
            f"the topic was deleted and created again: its id was {r.topic_id} and is "
            f"{log.leader.topic_id} now"
        )
        return [Loss(*whole, LossKind.RECREATED, evidence)]
    losses = losses_outside(log, *r.interval, needed_until=r.until_offset)
    return [as_lagging_replica(loss) for loss in losses] if log.leader.is_replica else losses
