"""Losses and the quarantine as text."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import RenderableType

from rangeland.delta.ledger.events import LossEvent
from rangeland.loss import Action
from rangeland.planning.plan_kind import PlanKind
from rangeland.render.text_drawing import list_lines

ACTIONS = {
    "fail": ("ended a run", "bold red"),
    "skip": ("lost, as the policy allows", "bold red"),
    "hold": ("held where they are", "yellow"),
    "reread": ("damaged in the log as well", "yellow"),
    "quarantine": ("in quarantine", "yellow"),
}
"""The actions on losses, in the order in which they are listed. ``reread`` is a hold while
quarantined offsets are read from the log again: they stay in quarantine."""


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
