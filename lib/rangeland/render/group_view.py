"""A consumer group as text: its members in ``status``, its offsets after ``mirror``."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from rangeland.query_results import GroupStatus, MirrorResult
from rangeland.render.text_drawing import (
    biggest,
    list_lines,
    number_or_dash,
    rest_name,
    safe_text,
    shorten_name,
    table_of,
    title_of,
)
from rangeland.wording import count_noun, duration, number

MAX_MEMBERS = 5


def group_lines(group: GroupStatus | None) -> list[RenderableType]:
    """The group in one line, and its members below; nothing if the job has none."""
    if group is None:
        return []
    title = safe_text(f"group {group.id}: ", "bold")
    if group.why:
        return [title.append_text(safe_text(f"unavailable: {group.why}", "yellow"))]
    members = count_noun(len(group.members), "member")
    title.append_text(safe_text(f"{group.state}, {members}, kept by {group.backend}", ""))
    lines: list[RenderableType] = [title]
    for member in group.members[:MAX_MEMBERS]:
        remark = "" if member.is_ours else ", not a driver of this job"
        where = f" at {member.host}" if member.host else ""
        partitions = count_noun(len(member.partitions), "partition")
        style = "" if member.is_ours else "yellow"
        lines.append(safe_text(f"  {member.member_id}{where}: {partitions}{remark}", style))
    if len(group.members) > MAX_MEMBERS:
        lines.append(Text(f"  and {number(len(group.members) - MAX_MEMBERS)} more", "dim"))
    return lines


def render_mirror(result: MirrorResult) -> RenderableType:
    """The group's offsets before and after, next to the checkpoint and the end of each log."""
    if result.state == "nothing-landed":
        title = title_of(result.job, "nothing has landed yet", "bold")
        return title.append_text(
            safe_text(f", so there are no offsets to commit to group {result.group}")
        )
    left_out = list_lines(
        "left out",
        [f"{p.partition} at {number(p.checkpoint)}: {p.why}" for p in result.left_out],
        "yellow",
    )
    if not result.partitions:
        title = title_of(result.job, f"no offset is committed to group {result.group}", "bold")
        return Group(title, Text(), *left_out)
    where = "at the checkpoint" if not left_out else "at the checkpoint of what could be looked at"
    count = sum(1 for p in result.partitions if p.before != p.after)
    title = title_of(result.job, f"group {result.group} is {where}", "bold green")
    change = f"{count_noun(count, 'offset')} written" if count else "as it was before"
    title.append_text(safe_text(f", {change} ({duration(result.seconds)})"))
    table = table_of("partition", ">checkpoint", ">group before", ">group after", ">end", ">lag")
    shown, hidden = biggest(result.partitions, lambda p: p.lag)
    for p in shown:
        offsets = [number_or_dash(o) for o in (p.checkpoint, p.before, p.after, p.end)]
        lag = Text(number(p.lag), "yellow" if p.lag else "")
        table.add_row(shorten_name(p.partition), *offsets, lag)
    if hidden:
        lag = Text(number(sum(p.lag for p in hidden)))
        table.add_row(rest_name(hidden), "", "", "", "", lag)
    backend = safe_text(f"kept by {result.backend}", "dim")
    return Group(title, Text(), table, Text(), *left_out, backend)
