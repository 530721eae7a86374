"""A plan as text: a bar for each log, the totals, and everything that is left out, with the
reasons.

To keep a thousand partitions readable, only the largest are shown one by one, and the others on one
line. The legend explains only the signs that are drawn. ``text_drawing`` makes strings from outside
safe; they are never passed to rich as plain ``str``.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from rangeland.grouping import by_partition
from rangeland.model import LogState, Partition, Range, Slice
from rangeland.render.text_drawing import (
    KINDS,
    MAX_ROWS,
    Legend,
    LogBar,
    biggest,
    list_lines,
    rest_name,
    safe_text,
    shorten_name,
    table_of,
    title_of,
)
from rangeland.render.unfinished_view import unfinished_lines
from rangeland.results import PlanPreview
from rangeland.wording import count_noun, number, size


def render_plan(preview: PlanPreview) -> RenderableType:
    """Draws what a run would do now: a bar per log, the totals, and everything that is left out."""
    plan = preview.draft.plan
    draft = preview.draft
    parts: list[RenderableType] = [_plan_title(preview)]
    parts += unfinished_lines(preview.unfinished_plans)
    if plan.ranges:
        parts += [Text(), _plan_table(preview), Text()]
        parts.append(_plan_totals(preview))
    else:
        parts.append(_nothing_to_land(preview))
    parts += list_lines("already landed, left out", draft.already_landed, "cyan")
    lost = [f"{loss}: {loss.evidence}" for loss in plan.losses]
    parts += list_lines("lost, as the policy allows", lost, "bold red")
    parts += list_lines(
        "held where they are", [f"{loss}: {loss.evidence}" for loss in draft.held], "red"
    )
    at_risk = f"may expire before it is read, at {preview.speed}"
    parts += list_lines(at_risk, draft.risks, "bold red")
    parts += list_lines("note", draft.notes, "yellow")
    return Group(*parts)


def _plan_title(preview: PlanPreview) -> Text:
    plan = preview.draft.plan
    title = title_of(plan.job, f"plan {plan.sequence} for table {preview.table}")
    kind = plan.kind.traits.title
    return title.append(f" ({kind})" if kind else "")


def _nothing_to_land(preview: PlanPreview) -> Text:
    draft = preview.draft
    if draft.already_landed and not draft.held:
        return safe_text("Nothing to land: everything in the range is already landed.", "green")
    if draft.held:
        return safe_text("Nothing to land: the policy holds what is new.", "yellow")
    of = count_noun(len(preview.logs), "partition")
    return safe_text(f"Nothing to land: no new offsets in {of}.", "green")


def _plan_table(preview: PlanPreview) -> Group:
    plan = preview.draft.plan
    ranges = by_partition(plan.ranges)
    slices = by_partition(plan.slices)
    logs = {log.partition: log for log in preview.logs}
    rows = sorted({*logs, *ranges}) if len(logs) <= MAX_ROWS else sorted(ranges)
    shown, hidden = biggest(rows, lambda p: sum(r.width for r in ranges.get(p, [])))
    table = table_of("partition", "log", ">from", ">until", ">offsets", ">est. size", ">slices")
    bars = {p: _plan_bar(preview, p, logs.get(p)) for p in shown}
    for p in shown:
        table.add_row(shorten_name(p), bars[p], *_plan_cells(ranges.get(p, []), slices.get(p, [])))
    if hidden:
        hidden_ranges = [r for p in hidden for r in ranges.get(p, [])]
        cells = _plan_cells(hidden_ranges, [s for p in hidden for s in slices.get(p, [])])
        table.add_row(rest_name(hidden), "", "", "", *cells[2:])
    words = {kind: text for kind, (_, _, _, text) in KINDS.items()}
    return Group(table, Legend.of(bars.values(), words))


def _plan_cells(ranges: Sequence[Range], slices: Sequence[Slice]) -> list[Text]:
    if not ranges:
        return [Text("-", "dim")] * 5
    return [
        Text(number(min(r.from_offset for r in ranges))),
        Text(number(max(r.until_offset for r in ranges))),
        Text(number(sum(r.width for r in ranges)), "green"),
        Text(size(sum(s.estimated_bytes for s in slices))),
        Text(number(len(slices))),
    ]


def _plan_bar(preview: PlanPreview, partition: Partition, log: LogState | None) -> LogBar:
    plan = preview.draft.plan
    ranges = [r for r in plan.ranges if r.partition == partition]
    landed = [r for r in preview.draft.already_landed if r.partition == partition]
    first = min([log.start_offset if log else 0, *(r.from_offset for r in ranges)])
    last = max([log.end_offset if log else 0, *(r.until_offset for r in ranges)])
    intervals = [(*r.interval, "land") for r in ranges]
    intervals += [(*r.interval, "already") for r in landed]
    intervals += [(*x.interval, "lost") for x in plan.losses if x.partition == partition]
    mark = plan.checkpoint.get(partition)
    checkpoint = [mark.until_offset] if mark else []
    bounds = [r.until_offset for r in preview.draft.requested if r.partition == partition]
    later = max([first, *checkpoint, *(r.until_offset for r in (*ranges, *landed))])
    if ranges or checkpoint or bounds:
        intervals.append((later, last, "later"))
    return LogBar(first, last, tuple(intervals))


def _plan_totals(preview: PlanPreview) -> Text:
    plan = preview.draft.plan
    partitions = len({r.partition for r in plan.ranges})
    idle = len(preview.logs) - partitions
    text = Text(f"{count_noun(plan.width, 'offset')}", style="bold green")
    text.append(
        f" of {count_noun(partitions, 'partition')}, about {size(plan.estimated_bytes)}, in "
        f"{count_noun(len(plan.slices), 'slice')} read by {count_noun(preview.tasks, 'task')}"
    )
    text.append(f"; nothing to land in {number(idle)} more" if idle > 0 else "")
    return text.append(f"\nhash {plan.hash[:16]}", style="dim")
