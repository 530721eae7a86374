"""What a person sees: plans, results, status, findings and errors as pictures of text.

Values in, renderables out; nothing is asked, read or printed here. A thousand partitions
must stay readable: the biggest are shown one by one, the others in one line. Strings from
outside are made safe by ``drawing``; here they are never given to rich as ``str``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from rangeland.errors import RangelandError
from rangeland.model import COUNT_NAMES, Counts, LogState, Partition, Range
from rangeland.pictures.drawing import (
    KINDS,
    MAX_LINES,
    MAX_ROWS,
    Legend,
    LogBar,
    biggest,
    counted,
    duration,
    listed,
    named,
    number,
    said,
    shortened,
    size,
    table_of,
)
from rangeland.pictures.groups import group_lines
from rangeland.pictures.losses import loss_lines
from rangeland.planning.audit import Replaced
from rangeland.planning.intervals import width
from rangeland.planning.plan import Plan
from rangeland.results import CheckResult, PartitionStatus, PlanPreview, RunResult, Status
from rangeland.waiting import ReachResult

COUNT_STYLES = {"landed": "green", "quarantined": "yellow", "lost": "bold red"}


# --- the plan ---------------------------------------------------------------------------


def plan_picture(preview: PlanPreview) -> RenderableType:
    """What a run would do now: a bar per log, the totals, and what is left out and why."""
    plan, draft = preview.draft.plan, preview.draft
    parts: list[RenderableType] = [_plan_title(preview)]
    parts += _pending_lines(preview.pending)
    if plan.ranges:
        parts += [Text(), _plan_table(preview), Text()]
        parts.append(_plan_totals(preview))
    else:
        parts.append(_nothing_to_land(preview))
    parts += listed("already landed, left out", [str(r) for r in draft.already], "cyan")
    lost = [f"{loss}: {loss.evidence}" for loss in plan.losses]
    parts += listed("lost, as the policy allows", lost, "bold red")
    parts += listed("held back", [f"{loss}: {loss.evidence}" for loss in draft.held], "red")
    at_risk = f"may expire before it is read, at {preview.speed}"
    parts += listed(at_risk, [str(risk) for risk in draft.risks], "bold red")
    parts += listed("note", draft.notes, "yellow")
    return Group(*parts)


def _plan_title(preview: PlanPreview) -> Text:
    plan = preview.draft.plan
    title = said(plan.job, "bold")
    title.append_text(said(f": plan {plan.sequence} for table {preview.table}"))
    way = plan.application.removeprefix(f"rangeland/{plan.job}").strip("/").partition("/")[0]
    words = {"backfill": "backfill", "missing": "what is missing", "replace": "replacing"}
    return title.append(f" ({words[way]})" if way in words else "")


def _pending_lines(pending: Sequence[Plan]) -> list[RenderableType]:
    return [
        said(
            f"Plan {p.sequence} ({counted(p.width, 'offset')}) was entered and has not landed: "
            "a run finishes it first.",
            "yellow",
        )
        for p in pending[:MAX_LINES]
    ]


def _nothing_to_land(preview: PlanPreview) -> Text:
    draft = preview.draft
    if draft.already and not draft.held:
        return said("Nothing to land: all that was asked for is landed already.", "green")
    if draft.held:
        return said("Nothing to land: what is new is held back by the policy.", "yellow")
    of = counted(len(preview.logs), "partition")
    return said(f"Nothing to land: no new offsets in {of}.", "green")


def _plan_table(preview: PlanPreview) -> Group:
    plan = preview.draft.plan
    pieces = _by_partition(plan.ranges)
    slices = defaultdict(int, {p: len(found) for p, found in _by_partition(plan.slices).items()})
    logs = {log.partition: log for log in preview.logs}
    rows = sorted({*logs, *pieces}) if len(logs) <= MAX_ROWS else sorted(pieces)
    shown, hidden = biggest(rows, lambda p: sum(r.width for r in pieces.get(p, [])))
    table = table_of("partition", "log", ">from", ">until", ">offsets", ">est. size", ">slices")
    bars = {p: _plan_bar(preview, p, logs.get(p)) for p in shown}
    for p in shown:
        table.add_row(named(p), bars[p], *_plan_cells(pieces.get(p, []), slices[p]))
    if hidden:
        rest = [r for p in hidden for r in pieces[p]]
        cells = _plan_cells(rest, sum(slices[p] for p in hidden))
        table.add_row(Text(f"+ {number(len(hidden))} more", "dim"), "", "", "", *cells[2:])
    return Group(table, _plan_legend(bars.values()))


def _plan_cells(ranges: Sequence[Range], slices: int) -> list[Text]:
    if not ranges:
        return [Text("-", "dim")] * 5
    return [
        Text(number(min(r.from_offset for r in ranges))),
        Text(number(max(r.until_offset for r in ranges))),
        Text(number(sum(r.width for r in ranges)), "green"),
        Text(size(sum(r.estimated_bytes for r in ranges))),
        Text(number(slices)),
    ]


def _plan_bar(preview: PlanPreview, partition: Partition, log: LogState | None) -> LogBar:
    plan = preview.draft.plan
    mine = [r for r in plan.ranges if r.partition == partition]
    lost = [(x.from_offset, x.until_offset) for x in plan.losses if x.partition == partition]
    already = [r for r in preview.draft.already if r.partition == partition]
    first = min([log.start_offset if log else 0, *(r.from_offset for r in mine)])
    last = max([log.end_offset if log else 0, *(r.until_offset for r in mine)])
    spans = [(r.from_offset, r.until_offset, "land") for r in mine]
    spans += [(r.from_offset, r.until_offset, "already") for r in already]
    spans += [(start, end, "lost") for start, end in lost]
    mark = plan.checkpoint.get(partition)
    reached = [mark.until_offset] if mark else []
    asked = [r.until_offset for r in preview.draft.asked if r.partition == partition]
    later = max([first, *reached, *(r.until_offset for r in (*mine, *already))])
    if mine or reached or asked:
        spans.append((later, last, "later"))
    return LogBar(first, last, tuple(spans))


def _plan_legend(bars: Iterable[LogBar]) -> Legend:
    """Only what is drawn is explained."""
    used = set().union(*(bar.kinds for bar in bars))
    return Legend(tuple((kind, KINDS[kind][3]) for kind in KINDS if kind in used))


def _plan_totals(preview: PlanPreview) -> Text:
    plan = preview.draft.plan
    partitions = len({r.partition for r in plan.ranges})
    idle = len(preview.logs) - partitions
    text = Text(f"{counted(plan.width, 'offset')}", style="bold green")
    text.append(
        f" of {counted(partitions, 'partition')}, about {size(plan.estimated_bytes)}, in "
        f"{counted(len(plan.slices), 'slice')} read by {counted(preview.tasks, 'task')}"
    )
    text.append(f"; nothing to land in {number(idle)} more" if idle > 0 else "")
    return text.append(f"\nhash {plan.hash[:16]}", style="dim")


# --- the result -------------------------------------------------------------------------


def result_picture(result: RunResult) -> RenderableType:
    """What a run did: what became of every offset, the sum that closes, where it is now."""
    parts: list[RenderableType] = [_result_title(result)]
    if result.ranges:
        parts += [Text(), _result_table(result), Text(), closing_sum(result), _landing(result)]
    if result.replaced is not None:
        parts.append(_replaced(result.replaced))
    recovered = [f"plan {sequence}" for sequence in result.recovered]
    parts += listed("finished what an earlier run had begun", recovered, "yellow")
    parts += listed("already landed, left out", [str(r) for r in result.already], "cyan")
    told = {str(loss) for loss in result.losses}
    parts += listed("held back", [text for text in result.held if text not in told], "red")
    parts += loss_lines(result.losses)
    parts += listed("warning", result.warnings, "yellow")
    return Group(*parts)


def _result_title(result: RunResult) -> Text:
    version = "" if result.table_version is None else f" (version {result.table_version})"
    where = f"in {result.table}{version}"
    took = f" ({duration(result.seconds)})"
    title = said(result.job, "bold").append(": ")
    if result.state == "landed":
        title.append(f"landed {counted(result.counts.landed, 'record')}", style="bold green")
        return title.append_text(said(f" {where}"))
    if result.state == "already-landed":
        title.append("already landed", style="bold cyan")
        return title.append_text(said(f" before, nothing new {where}{took}"))
    title.append("nothing to land", style="bold")
    return title.append_text(said(f" {where}{took}"))


def _result_table(result: RunResult) -> Table:
    total = result.counts
    names = [name for name in COUNT_NAMES if getattr(total, name) or name == "landed"]
    table = table_of("partition", ">from", ">until", *(f">{name}" for name in names))
    shown, hidden = biggest(result.ranges, lambda outcome: outcome.range.width)
    for outcome in sorted(shown, key=lambda o: (o.range.partition, o.range.from_offset)):
        r = outcome.range
        ends = [Text(number(r.from_offset)), Text(number(r.until_offset))]
        table.add_row(named(r.partition), *ends, *_count_cells(outcome.counts, names))
    if hidden:
        rest = Counts.sum(outcome.counts for outcome in hidden)
        name = Text(f"+ {number(len(hidden))} more", "dim")
        table.add_row(name, "", "", *_count_cells(rest, names))
    return table


def _count_cells(counts: Counts, names: Sequence[str]) -> list[Text]:
    values = [(name, getattr(counts, name)) for name in names]
    return [Text(number(n), COUNT_STYLES.get(name, "") if n else "dim") for name, n in values]


def closing_sum(result: RunResult) -> Text:
    """``1,000,000 offsets = 999,990 landed + 10 control``."""
    counts, width = result.counts, sum(outcome.range.width for outcome in result.ranges)
    classes = [(n, name) for name in COUNT_NAMES if (n := getattr(counts, name))]
    text = Text(counted(width, "offset"), style="bold")
    in_bytes = any(outcome.range.partition.broker for outcome in result.ranges)
    unlike = " in bytes: " if in_bytes else " != "
    text.append(" = " if counts.total == width else unlike, style="bold")
    for index, (count, name) in enumerate(classes or [(0, "landed")]):
        text.append(" + " if index else "")
        text.append(f"{number(count)} {name}", style=COUNT_STYLES.get(name, ""))
    return text


def _landing(result: RunResult) -> Text:
    rate = round(result.counts.landed / result.seconds) if result.seconds > 0 else 0
    parts = [
        f"landing {result.sequence}",
        counted(result.files, "file"),
        size(result.bytes_written),
        duration(result.seconds),
        f"{number(rate)} records/s",
    ]
    if result.rows != result.counts.landed:
        parts.insert(1, counted(result.rows, "row"))
    return Text(", ".join(parts), style="dim")


def _replaced(replaced: Replaced) -> Text:
    """``against the rows that were there: 990 the same, 10 changed``."""
    text = Text("against the rows that were there: ", style="dim")
    styles = {"same": "green", "added": "green", "changed": "yellow", "missing": "bold red"}
    words = {"same": "the same", "missing": "no longer there"}
    found = [(name, count) for name in styles if (count := getattr(replaced, name))]
    for index, (name, count) in enumerate(found or [("same", 0)]):
        text.append(", " if index else "")
        text.append(f"{number(count)} {words.get(name, name)}", style=styles[name])
    return text


# --- status and check -------------------------------------------------------------------


def status_picture(status: Status) -> RenderableType:
    """Where a job stands: how far each log is landed, and how much is left."""
    version = "" if status.table_version is None else f", version {status.table_version}"
    title = said(status.job, "bold").append_text(said(f": table {status.table}{version}"))
    title.append(f", {counted(status.sequence, 'landing')}")
    lag = sum(p.lag for p in status.partitions)
    behind = Text("everything is landed", "green")
    if lag:
        behind = Text(f"{counted(lag, 'offset')} not landed yet", "yellow")
    behind.append(f", {counted(len(status.partitions), 'partition')}", "dim")
    if over := sum(width(p.passed_over) for p in status.partitions):
        behind.append(f"; {counted(over, 'offset')} passed over, a backfill lands them", "yellow")
    parts: list[RenderableType] = [title, Text(), _status_table(status)]
    parts += [Text(), behind, *group_lines(status.group)]
    live = [f"plan {p.sequence} of {p.application}, {p.width:,} offsets" for p in status.live_plans]
    parts += listed("entered and not landed yet, the next run finishes it", live, "yellow")
    parts += listed("latest landings", [_recent_line(entry) for entry in status.recent], "")
    held = [p.held for p in status.partitions if p.held is not None]
    parts += listed("held at its checkpoint", [f"{x}: {x.evidence}" for x in held], "yellow")
    parts += loss_lines(loss for loss in status.losses if loss not in held)
    return Group(*parts)


def _status_table(status: Status) -> Group:
    grouped = any(p.group_offset is not None for p in status.partitions)
    aged = any(p.lag_ms is not None for p in status.partitions)
    owned = any(p.owner is not None for p in status.partitions)
    names = ["partition", "log", ">start", ">checkpoint", ">end", ">lag"]
    more = [(">age", aged), (">group", grouped), ("owner", owned)]
    table = table_of(*names, *[name for name, is_shown in more if is_shown])
    shown, hidden = biggest(status.partitions, lambda p: p.lag)
    bars = {p.partition: _status_bar(p) for p in shown}
    for p in sorted(shown, key=lambda p: p.partition):
        ends = [number(p.start), _or_dash(p.checkpoint), number(p.end)]
        lag = Text(number(p.lag), "yellow" if p.lag else "green")
        age = [Text("-" if p.lag_ms is None else duration(p.lag_ms / 1000))] if aged else []
        group = [_or_dash(p.group_offset)] if grouped else []
        owner = [shortened(p.owner or "-")] if owned else []
        table.add_row(named(p.partition), bars[p.partition], *ends, lag, *age, *group, *owner)
    if hidden:
        lag = Text(number(sum(p.lag for p in hidden)))
        table.add_row(Text(f"+ {number(len(hidden))} more", "dim"), "", "", "", "", lag)
    used = set().union(*(bar.kinds for bar in bars.values()))
    words = {
        "later": "not landed yet",
        "land": "landed",
        "skipped": "passed over: before the checkpoint and never landed",
        "lost": "gone from the log",
    }
    return Group(table, Legend(tuple((kind, words[kind]) for kind in words if kind in used)))


def _status_bar(status: PartitionStatus) -> LogBar:
    mark = status.start if status.checkpoint is None else status.checkpoint
    first = min(status.start, mark)
    spans = [(first, mark, "land"), (mark, status.end, "later"), (first, status.start, "lost")]
    if mark >= status.start:  # What was landed before it left the log is no loss.
        first, spans = status.start, spans[:2]
    spans += [(start, end, "skipped") for start, end in status.passed_over]
    return LogBar(first, status.end, tuple(spans))


def _recent_line(entry: dict[str, Any]) -> str:
    """``sequence 12, prepared 2026-01-31 06:00:00 UTC, landed 33,985, files 4``."""
    said_values = []
    for key, value in entry.items():
        if key.endswith("_at_ms"):
            moment = datetime.fromtimestamp(value // 1000, UTC)
            said_values.append(f"{key.removesuffix('_at_ms')} {moment:%Y-%m-%d %H:%M:%S} UTC")
        elif key == "hash":
            said_values.append(f"hash {value[:12]}")
        else:
            said_values.append(f"{key} {number(value) if isinstance(value, int) else value}")
    return ", ".join(said_values)


def _or_dash(value: int | None) -> str:
    return "-" if value is None else number(value)


def check_picture(check: CheckResult) -> RenderableType:
    """Each thing that was looked at, well or not, and what was seen."""
    table = Table.grid(padding=(0, 1))
    for what, well, seen in check.findings:
        mark = Text("ok ", "green") if well else Text("NO ", "bold red")
        table.add_row(mark, said(what), said(seen, "" if well else "red"))
    bad = sum(1 for _, well, _ in check.findings if not well)
    last = Text("all is well", "bold green")
    if bad:
        last = Text(f"{counted(bad, 'finding')} to look at", "bold red")
    return Group(said(check.job, "bold"), table, last)


def reach_picture(result: ReachResult) -> RenderableType:
    """How far each log has come; those that are waited for first."""
    waiting = sum(1 for p in result.partitions if p.state == "waiting")
    title = said(result.job, "bold").append(": ")
    if waiting:
        title.append(f"{counted(waiting, 'partition')} not there yet", "yellow")
    else:
        title.append(f"reached in {counted(len(result.partitions), 'partition')}", "bold green")
    table = table_of("partition", "state", ">end", ">until")
    shown, hidden = biggest(result.partitions, lambda p: p.state == "waiting")
    for p in shown:
        style = "yellow" if p.state == "waiting" else "green"
        ends = [number(p.end_offset), _or_dash(p.offset)]
        table.add_row(named(p.partition), Text(p.state, style), *ends)
    if hidden:
        table.add_row(Text(f"+ {number(len(hidden))} more", "dim"), "", "", "")
    return Group(title, Text(), table)


# --- errors -----------------------------------------------------------------------------


def error_picture(error: RangelandError) -> RenderableType:
    """What, why, what to do; is the data safe, may I retry, who acts."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    answers = [("why", error.why), ("do", error.do), ("data", error.data)]
    for name, answer in [*answers, ("retry", error.retry), ("who acts", error.acts)]:
        if answer:
            grid.add_row(name, said(answer))
    title = Text(f"{type(error).__name__}, exit {error.exit_code}", "bold red")
    content = Group(said(error.what, "bold"), Text(), grid)
    return Panel(content, title=title, title_align="left", border_style="red")


def _by_partition(pieces: Iterable[Any]) -> dict[Partition, list[Any]]:
    found: dict[Partition, list[Any]] = {}
    for piece in pieces:
        found.setdefault(piece.partition, []).append(piece)
    return found
