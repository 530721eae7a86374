"""Losses and the quarantine as text."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Group, RenderableType
from rich.text import Text

from rangeland.delta.ledger.events import LossEvent
from rangeland.landing.redrive_result import RedriveResult
from rangeland.planning.plan import PlanKind
from rangeland.planning.policy import Action
from rangeland.render.text_drawing import MAX_ROWS, listed, named, safe_text, table_of
from rangeland.wording import counted, number, size

ACTIONS = {
    "fail": ("ended a run", "bold red"),
    "skip": ("lost, as the policy allows", "bold red"),
    "hold": ("held where they are", "yellow"),
    "reread": ("damaged in the log as well", "yellow"),
    "quarantine": ("in quarantine", "yellow"),
}
"""What was done about a loss, in the order of the lists. ``reread`` is a hold while quarantined
offsets are read from the log again: they stay in quarantine."""


def loss_lines(losses: Iterable[LossEvent]) -> list[RenderableType]:
    """A list for each action that was taken on losses, with the evidence."""
    found: dict[str, list[str]] = {action: [] for action in ACTIONS}
    for event in losses:
        loss = event.loss
        evidence = loss.evidence.removeprefix(f"{loss.partition}: ")
        kind = PlanKind.of_application(event.job, event.application)
        is_reread = kind is PlanKind.REREAD and loss.action is Action.HOLD
        action = "reread" if is_reread else loss.action
        found[action].append(f"{loss.range} {loss.verdict}: {evidence}")
    parts: list[RenderableType] = []
    for action, lines in found.items():
        words, style = ACTIONS[action]
        parts += listed(words, lines, style)
    return parts


def redrive_picture(result: RedriveResult, landed: RenderableType | None = None) -> RenderableType:
    """What is in quarantine: where, since which landing, why, and whether it can be decoded."""
    parts: list[RenderableType] = [] if landed is None else [landed, Text()]
    title = safe_text(result.job, "bold").append_text(safe_text(f": quarantine of {result.table}"))
    parts.append(title)
    if not result.left:
        parts.append(safe_text("Nothing is in quarantine.", "green"))
        return Group(*parts)
    table = table_of("partition", ">from", ">until", ">size", ">landing", "decodes", "why")
    for one in result.left[:MAX_ROWS]:
        r, batch = one.batch.range, one.batch
        ends = [Text(number(r.from_offset)), Text(number(r.until_offset))]
        more = [Text(size(batch.size_bytes)), Text(number(batch.sequence))]
        decodes = Text("yes", "green") if one.decodes else Text("no", "yellow")
        table.add_row(named(r.partition), *ends, *more, decodes, safe_text(one.why or batch.reason))
    if len(result.left) > MAX_ROWS:
        table.add_row(Text(f"+ {number(len(result.left) - MAX_ROWS)} more", "dim"))
    ready = sum(1 for one in result.left if one.decodes)
    last = f"{counted(len(result.left), 'piece')}, {number(ready)} can be decoded now"
    parts += [Text(), table, Text(), Text(last, "bold")]
    return Group(*parts)
