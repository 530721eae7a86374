"""Losses and the quarantine as text."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import RenderableType

from rangeland.delta.ledger.events import LossEvent
from rangeland.loss import Action, LossKind
from rangeland.planning.intervals import width
from rangeland.planning.plan_kind import PlanKind
from rangeland.query_results import PartitionStatus
from rangeland.render.text_drawing import list_lines
from rangeland.wording import count_noun

ACTIONS = {
    "fail": ("ended a run", "bold red"),
    "skip": ("lost, as the policy allows", "bold red"),
    "hold": ("held where they are", "yellow"),
    "reread": ("damaged in the log as well", "yellow"),
    "quarantine": ("in quarantine", "yellow"),
}
"""The actions on losses, in the order in which they are listed. ``reread`` is a hold while
quarantined offsets are read from the log again: they stay in quarantine."""

SUSPICIONS = {
    LossKind.RECREATED: "is not the one that was landed: its topic seems to be a new one",
    LossKind.TRUNCATED: "ends before the checkpoint: it was truncated, or its leader lags",
    LossKind.EXPIRED: "begins after the checkpoint: {gone} left it before they were landed",
}
"""What a log does in which a run would find losses of these kinds."""


def suspicion(status: PartitionStatus, unit: str = "offset") -> str:
    """What the log of a partition does if no run can simply continue in it, or an empty text.
    ``unit``: what its offsets count."""
    kind = status.suspected_loss
    gone = count_noun(width(status.gone), unit)
    return "" if kind is None else SUSPICIONS[kind].format(gone=gone)


def loss_lines(losses: Iterable[LossEvent]) -> list[RenderableType]:
    """A list of losses for each action, with the evidence."""
    by_action: dict[str, list[str]] = {action: [] for action in ACTIONS}
    for event in losses:
        loss = event.loss
        evidence = loss.evidence.removeprefix(f"{loss.partition}: ")
        by_action[action_of(event)].append(f"{loss.range} {loss.kind}: {evidence}")
    parts: list[RenderableType] = []
    for action, lines in by_action.items():
        words, style = ACTIONS[action]
        parts += list_lines(words, lines, style)
    return parts


def action_of(event: LossEvent) -> str:
    """The key in ``ACTIONS`` of what was done about a loss."""
    kind = PlanKind.of_application(event.job, event.application)
    is_reread = kind.traits.holds_all and event.loss.action is Action.HOLD
    return "reread" if is_reread else event.loss.action
