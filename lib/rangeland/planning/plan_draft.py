"""A plan that is not entered yet, with its warnings and the losses outside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from rangeland.loss import Action, DecidedLoss, Loss
from rangeland.model import LogState, Partition, Range
from rangeland.planning.job_position import JobPosition
from rangeland.planning.loss_errors import FailingLosses
from rangeland.planning.passed_over_ranges import passed_over_warnings, ranges_passed_over
from rangeland.planning.plan import Plan
from rangeland.planning.retention_risk import RetentionRisk


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanDraft:
    """A plan that is not entered yet."""

    plan: Plan
    requested: tuple[Range, ...]
    already_landed: tuple[Range, ...] = ()
    """Requested ranges that are left out because they are in the table."""
    held: tuple[DecidedLoss, ...] = ()
    """Losses at which a policy holds partitions."""
    notes: tuple[str, ...] = ()
    """Warnings about uncertainties."""
    skipped_losses: tuple[DecidedLoss, ...] = ()
    """Losses that a policy skips and no plan records, since their offsets may still appear."""
    risks: tuple[RetentionRisk, ...] = ()
    """Ranges that retention may remove before they are read."""
    moves_without_landing: bool = False
    """Whether the plan moves the checkpoint of a partition without landing anything from it."""
    passed_over: tuple[Range, ...] = ()
    """Ranges that the checkpoint passes over because the job names a later beginning."""
    leaves_more: bool = False
    """The draft leaves work for another plan: quarantined ranges with other isolation or tags, or
    missing rows of a second incarnation at the same offsets."""
    failing: FailingLosses | None = None
    """Losses that prevent any plan from being entered; the draft's plan is then empty."""

    @property
    def is_empty(self) -> bool:
        return not self.plan.ranges

    @property
    def is_without_effect(self) -> bool:
        """Whether entering the plan would land nothing and move no checkpoint."""
        return self.is_empty and not self.moves_without_landing

    def unplanned_losses(self, logs: Mapping[Partition, LogState]) -> tuple[DecidedLoss, ...]:
        """The losses that are not part of the plan, each with the topic id of its log."""
        ids = {partition: log.leader.topic_id for partition, log in logs.items()}
        return tuple(
            replace(loss, topic_id=ids.get(loss.partition))
            for loss in (*self.held, *self.skipped_losses)
        )


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
    passed_over = ranges_passed_over(plan, position) if moves_checkpoint else ()
    return PlanDraft(
        plan=plan,
        requested=plan.ranges,
        held=held,
        notes=(*passed_over_warnings(passed_over), *skipped_loss_warnings(skipped), *notes),
        skipped_losses=skipped,
        moves_without_landing=plan.checkpoint != position.checkpoint,
        passed_over=passed_over,
    )


def skipped_loss_warnings(losses: Sequence[Loss]) -> list[str]:
    """The warnings about a draft's ``skipped_losses``."""
    return [f"{loss}: {loss.evidence}; skipped, as policy.{loss.kind} is skip" for loss in losses]
