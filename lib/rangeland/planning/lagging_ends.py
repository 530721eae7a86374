"""Whether a log that seems to end too early may only have a leader that lags.

For a moment the high watermark of a new leader may be below the checkpoint or a requested offset;
the end of another log stays there. Pure: the caller surveys again as long as ``judge_draft`` asks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rangeland.loss import Loss, LossKind
from rangeland.model import Partition, Survey
from rangeland.planning.incarnation import LogMark, may_be_behind
from rangeland.planning.plan_draft import PlanDraft

LAGGING_S = 10
"""How long a new leader's high watermark may lag before its log counts as too short."""
RESURVEY_POLL_S = 0.5


@dataclass(frozen=True, slots=True)
class SurveyAgain:
    """Losses may be gone in a later survey: take one after ``pause_s``, and draft again."""

    pause_s: float


def judge_draft(
    draft: PlanDraft, checkpoint: Mapping[Partition, LogMark], survey: Survey, waited_s: float
) -> SurveyAgain | None:
    """What a draft that was made from this survey still needs: another survey, if its losses may
    pass. None if it counts, whether losses fail or the plan can be entered; it does once
    ``LAGGING_S`` have been spent on surveys. Losses that do not fail are only waited for if the log
    ends before them."""
    if draft.failing is not None:
        losses = draft.failing.losses
    else:
        allowed = (*draft.skipped_losses, *draft.held)
        losses = tuple(loss for loss in allowed if is_beyond_end(loss, survey))
    if waited_s > LAGGING_S or not may_lag(losses, checkpoint, survey):
        return None
    return SurveyAgain(RESURVEY_POLL_S)


def may_lag(
    losses: Iterable[Loss], checkpoint: Mapping[Partition, LogMark], survey: Survey
) -> bool:
    """Whether some of these losses may be gone in a later survey."""
    short = [loss for loss in losses if loss.kind in (LossKind.TRUNCATED, LossKind.RECREATED)]
    if any(loss.kind is LossKind.TRUNCATED and is_beyond_end(loss, survey) for loss in short):
        return True
    logs = ((checkpoint[p], log) for p, log in survey.logs.items() if p in checkpoint)
    return bool(short) and any(may_be_behind(mark, log) for mark, log in logs)


def is_beyond_end(loss: Loss, survey: Survey) -> bool:
    """Whether the log does not reach the end of the loss, and has replicas that decide how far it
    can be read. Brokers before 2.2 report an end that lags; newer ones none until it has caught
    up."""
    log = survey.logs.get(loss.partition)
    return log is not None and log.leader.copies > 1 and loss.until_offset > log.end_offset
