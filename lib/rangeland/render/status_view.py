"""The results of ``status``, ``check`` and ``reached`` as text.

Anything that needs attention is coloured. The largest partitions are shown one by one, the others
on one line. ``text_drawing`` makes strings from outside safe.
"""

from __future__ import annotations

from datetime import UTC, datetime

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from rangeland.planning.intervals import Interval, overlap, subtract, width
from rangeland.query_results import CheckResult, PartitionStatus, ReachResult, RecentLanding, Status
from rangeland.render.group_view import group_lines
from rangeland.render.loss_view import loss_lines, suspicion
from rangeland.render.text_drawing import (
    Legend,
    LogBar,
    biggest,
    list_lines,
    number_or_dash,
    rest_name,
    safe_text,
    shorten_name,
    table_of,
    title_of,
)
from rangeland.render.unfinished_view import unfinished_lines
from rangeland.wording import count_noun, duration, number

BAR_WORDS = {
    "before": "before the job's beginning, never landed",
    "later": "not landed yet",
    "waiting": "behind an open transaction: it cannot be read yet",
    "land": "landed",
    "skipped": "passed over: before the checkpoint and never landed",
    "lost": "gone from the log",
}
"""The legend of ``status_bar``."""


def render_status(status: Status) -> RenderableType:
    """Draws how much of each log has landed, and how much is left."""
    version = "" if status.table_version is None else f", version {status.table_version}"
    title = title_of(status.job, f"table {status.table}{version}")
    title.append(f", {count_noun(status.sequence, 'landing')}")
    left = sum(width(p.unlanded) for p in status.partitions)
    behind = Text("everything is landed", "green")
    suspected = [f"{p.partition}: {said}" for p in status.partitions if (said := suspicion(p))]
    if status.warnings or suspected:  # for example about partitions that are not listed here
        behind = Text("all offsets of these partitions are landed", "yellow")
    if not status.partitions:
        behind = Text("the cluster has none of the job's partitions", "yellow")
    if left:
        behind = Text(f"{count_noun(left, 'offset')} not landed yet", "yellow")
    if held_back := sum(p.held_back for p in status.partitions):
        behind.append(f", {number(held_back)} of them behind an open transaction", "yellow")
    if status.partitions:
        behind.append(f", {count_noun(len(status.partitions), 'partition')}", "dim")
    if ahead := sum(width(_landed_ahead(p)) for p in status.partitions):
        behind.append(f"; {count_noun(ahead, 'offset')} of the lag landed already", "dim")
    if over := sum(width(p.passed_over) for p in status.partitions):
        behind.append(
            f"; {count_noun(over, 'offset')} passed over, a backfill lands them", "yellow"
        )
    parts: list[RenderableType] = [title, Text(), _status_table(status)]
    parts += [Text(), behind, *group_lines(status.group)]
    parts += unfinished_lines(status.unfinished_plans)
    parts += list_lines("latest landings", [_recent_line(landing) for landing in status.recent], "")
    parts += list_lines("a log that a run cannot simply continue in", suspected, "yellow")
    held = [p.held for p in status.partitions if p.held is not None]
    waiting = [_waiting_line(p) for p in status.partitions if p.held_back]
    parts += list_lines("held back by an open transaction", waiting, "yellow")
    parts += list_lines(
        "held at its checkpoint", [f"{x.loss}: {x.loss.evidence}" for x in held], "yellow"
    )
    parts += loss_lines(loss for loss in status.losses if loss not in held)
    parts += list_lines("warning", status.warnings, "yellow")
    return Group(*parts)


def _status_table(status: Status) -> Group:
    has_groups = any(p.group_offset is not None for p in status.partitions)
    has_ages = any(p.lag_ms is not None for p in status.partitions)
    has_owners = any(p.owner is not None for p in status.partitions)
    names = ["partition", "log", ">start", ">checkpoint", ">end", ">lag"]
    more = [(">age", has_ages), (">group", has_groups), ("owner", has_owners)]
    table = table_of(*names, *[name for name, is_shown in more if is_shown])
    shown, hidden = biggest(status.partitions, lambda p: p.lag)
    bars = {p.partition: status_bar(p) for p in shown}
    for p in sorted(shown, key=lambda p: p.partition):
        ends = [number(p.start), number_or_dash(p.checkpoint), number(p.end)]
        lag = Text(number(p.lag), "yellow" if p.lag else "green")
        age = [Text("-" if p.lag_ms is None else duration(p.lag_ms / 1000))] if has_ages else []
        group = [number_or_dash(p.group_offset)] if has_groups else []
        owner = [shorten_name(p.owner or "-")] if has_owners else []
        table.add_row(
            shorten_name(p.partition), bars[p.partition], *ends, lag, *age, *group, *owner
        )
    if hidden:
        lag = Text(number(sum(p.lag for p in hidden)))
        table.add_row(rest_name(hidden), "", "", "", "", lag)
    return Group(table, Legend.of(bars.values(), BAR_WORDS))


def _landed_ahead(status: PartitionStatus) -> list[Interval]:
    """What backfills and other jobs have landed after the checkpoint, which the lag includes."""
    mark = status.start if status.checkpoint is None else status.checkpoint
    return overlap((mark, status.end + status.held_back), status.landed)


def _waiting_line(status: PartitionStatus) -> str:
    """``orders/0: 5,000 offsets from 12 on, open for 3 h; producer 7, epoch 0``."""
    transaction = status.open_transaction
    line = (
        f"{status.partition}: {count_noun(status.held_back, 'offset')} from {number(status.end)} on"
    )
    if status.open_for_ms is not None:
        line += f", open for {duration(status.open_for_ms / 1000)}"
    if transaction is not None and transaction.producer_id is not None:
        line += f"; producer {transaction.producer_id}, epoch {transaction.producer_epoch}"
    return line


def status_bar(status: PartitionStatus) -> LogBar:
    """A log, from its start or the checkpoint, whichever is earlier, to its end."""
    mark = status.start if status.checkpoint is None else status.checkpoint
    # Offsets that landed before they left the log are not lost.
    first = min(status.start, mark)
    last = status.end + status.held_back
    intervals = [
        *((start, end, "land") for start, end in overlap((status.start, last), status.landed)),
        *((start, end, "later") for start, end in subtract((mark, status.end), status.landed)),
        *((start, end, "skipped") for start, end in status.passed_over),
        (first, status.start, "lost"),
        (status.end, last, "waiting"),
    ]
    return LogBar(first, last, tuple(intervals))


def _recent_line(landing: RecentLanding) -> str:
    """``landing 12, 2026-01-31 06:00:00 UTC, 33,985 records in 4 files``."""
    moment = datetime.fromtimestamp(landing.prepared_at_ms // 1000, UTC)
    sizes = f"{count_noun(landing.landed, 'record')} in {count_noun(landing.files, 'file')}"
    return f"landing {number(landing.sequence)}, {moment:%Y-%m-%d %H:%M:%S} UTC, {sizes}"


def render_check(check: CheckResult) -> RenderableType:
    """Draws each item that was checked, whether it passed, and the details."""
    table = Table.grid(padding=(0, 1))
    for finding in check.findings:
        mark = Text("ok ", "green") if finding.is_well else Text("FAILED ", "bold red")
        table.add_row(
            mark, safe_text(finding.what), safe_text(finding.seen, "" if finding.is_well else "red")
        )
    failed = sum(not finding.is_well for finding in check.findings)
    last = Text("all checks passed", "bold green")
    if failed:
        last = Text(f"{count_noun(failed, 'check')} failed", "bold red")
    return Group(safe_text(check.job, "bold"), table, last)


def render_reach(result: ReachResult) -> RenderableType:
    """Draws the end of each log and of the range, and names what could not be asked."""
    waiting = sum(1 for p in result.partitions if p.state == "waiting")
    words, style = f"reached in {count_noun(len(result.partitions), 'partition')}", "bold green"
    if waiting:
        words, style = f"not reached yet in {count_noun(waiting, 'partition')}", "yellow"
    elif not result.is_reached:
        silent = count_noun(len(result.unanswered_brokers), "broker")
        words, style = f"unknown for the partitions of {silent}", "yellow"
    table = table_of("partition", "state", ">end", ">until")
    shown, hidden = biggest(result.partitions, lambda p: p.state == "waiting")
    for p in shown:
        style = "yellow" if p.state == "waiting" else "green"
        ends = [number_or_dash(p.end_offset), number_or_dash(p.offset)]
        table.add_row(shorten_name(p.partition), Text(p.state, style), *ends)
    if hidden:
        table.add_row(rest_name(hidden), "", "", "")
    unasked = [f"{p.partition}: {p.why}" for p in result.partitions if p.why]
    unasked += [f"broker {name}: {why}" for name, why in result.unanswered_brokers.items()]
    lines = list_lines("could not be asked", unasked, "yellow")
    return Group(title_of(result.job, words, style), Text(), table, *lines)
