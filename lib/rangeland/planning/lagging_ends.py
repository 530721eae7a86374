"""Decides whether a log seems to end too early only because its leader lags.

The high watermark of a new leader may be below the checkpoint or a requested offset for a moment; a
log that is really shorter remains so. Pure: the caller surveys again as long as
``must_survey_again`` says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from rangeland.loss import Loss, LossKind
from rangeland.model import Partition, Survey
from rangeland.planning.incarnation import LogMark, may_be_behind

if TYPE_CHECKING:
    # Tasks compare logs, and need nothing that drafts need.
    from rangeland.planning.plan_draft import PlanDraft

LAGGING_S = 10
"""How long a new leader's high watermark may lag before its log counts as too short."""
RESURVEY_POLL_S = 0.5


def must_survey_again(
    draft: PlanDraft, checkpoint: Mapping[Partition, LogMark], survey: Survey, waited_s: float
) -> bool:
    """Whether another survey is needed, because a later one may not show the losses of this draft.
    False if the draft counts, whether its losses end the run or its plan can be entered, and also
    once ``LAGGING_S`` have been spent on surveys. Losses that do not end the run matter here only
    if the log ends before them."""
    if draft.failing is not None:
        losses = draft.failing.losses
    else:
        allowed = (*draft.skipped_losses, *draft.held)
        losses = tuple(loss for loss in allowed if is_beyond_end(loss, survey))
    return waited_s <= LAGGING_S and may_lag(losses, checkpoint, survey)


def may_lag(
    losses: Iterable[Loss], checkpoint: Mapping[Partition, LogMark], survey: Survey
) -> bool:
    """Whether a later survey may not show some of these losses."""
    short = [loss for loss in losses if loss.kind in (LossKind.TRUNCATED, LossKind.RECREATED)]
    if any(loss.kind is LossKind.TRUNCATED and is_beyond_end(loss, survey) for loss in short):
        return True
    logs = ((checkpoint[p], log) for p, log in survey.logs.items() if p in checkpoint)
    return bool(short) and any(may_be_behind(mark, log) for mark, log in logs)


def is_beyond_end(loss: Loss, survey: Survey) -> bool:
    """Whether the log does not reach the end of the loss, and its replicas determine how far it can
    be read. Brokers before 2.2 report an end that lags; newer ones report none until the leader has
    caught up."""
    log = survey.logs.get(loss.partition)
    return log is not None and log.leader.copies > 1 and loss.until_offset > log.end_offset
