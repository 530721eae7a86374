"""The results of ``verify`` and ``find`` as text."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from rangeland.grouping import by_partition
from rangeland.model import Partition, Range
from rangeland.query_results import Finding, FindState, VerifyResult
from rangeland.render.text_drawing import (
    Legend,
    LogBar,
    biggest,
    list_lines,
    plain,
    rest_name,
    safe_text,
    shorten_name,
    table_of,
    title_of,
)
from rangeland.wording import count_noun, duration, number

_WORDS = {
    "before": "not landed",
    "land": "landed, each offset once",
    "twice": "more rows than landed",
    "lost": "missing",
    "unproved": "cannot be proved",
}
_STATES = {
    FindState.LANDED: "landed",
    FindState.NO_ROW: "accounted for without a row: a marker, an aborted or compacted record, "
    "or inside an entry that begins before it",
    FindState.QUARANTINED: "in quarantine; `rangeland redrive JOB.yaml` lands it once it can be "
    "decoded",
    FindState.LOST: "left out by a policy",
    FindState.HOLE: "landed, but its row is missing from the table",
    FindState.NO_ROW_OR_HOLE: "landed without a row, or its row is missing: the ledger only has "
    "counts",
    FindState.NOT_LANDED: "not landed in this table",
    FindState.UNKNOWN_ROW: "in the table, but not landed by this library",
}


def render_verify(result: VerifyResult) -> RenderableType:
    """Draws the coverage of each partition as a bar, and everything that is wrong."""
    if not result.landings:
        title = title_of(result.job, f"table {result.table}")
        return Group(title, Text("nothing has landed yet, so there is nothing to verify", "green"))
    audit = result.audit
    records = sum(landed_range.landed or 0 for landed_range in result.landed_ranges)
    title = title_of(result.job, f"table {result.table}, version {result.table_version}")
    parts: list[RenderableType] = [title, Text(), _coverage_table(result), Text()]
    if result.is_well and not audit.unproved:
        parts.append(
            Text(
                f"{count_noun(records, 'landed record')}, each in the table exactly once",
                "bold green",
            )
        )
    parts += list_lines("missing", _lines(audit.holes), "bold red")
    parts += list_lines("more rows than were landed", _lines(audit.duplicates), "bold red")
    parts += list_lines("rows that no landing wrote", _lines(audit.unknown_rows), "yellow")
    if audit.suspect:
        doubt = (
            "the ledger only has counts for some missing ranges, so offsets in them may have no row"
        )
        parts += list_lines("not sure", [doubt], "yellow")
    parts += list_lines(
        "cannot be proved: the ledger does not know which offsets had rows, nor how many",
        _lines(audit.unproved),
        "yellow",
    )
    parts += list_lines("files that are gone from the store", result.gone_files, "bold red")
    never = "passed over: never landed, and before the checkpoint; a backfill lands it"
    parts += list_lines(never, _lines(result.passed_over), "yellow")
    if audit.holes:
        parts.append(Text("Land what is missing: rangeland backfill JOB.yaml --missing", "bold"))
    took = f"{count_noun(result.landings, 'landing')}, {duration(result.seconds)}"
    return Group(*parts, Text(took, style="dim"))


def _coverage_table(result: VerifyResult) -> Group:
    ranges = by_partition(entry.range for entry in result.landed_ranges)
    table = table_of("partition", "log", ">from", ">until", ">missing", ">too many")
    shown, hidden = biggest(sorted(ranges), lambda p: sum(r.width for r in ranges[p]))
    bars = {p: _bar(result, p, ranges[p]) for p in shown}
    for p in shown:
        bar = bars[p]
        cells = _wrong_cells(result, {p})
        table.add_row(shorten_name(p), bar, number(bar.first), number(bar.last), *cells)
    if hidden:
        table.add_row(rest_name(hidden), "", "", "", *_wrong_cells(result, set(hidden)))
    return Group(table, Legend.of(bars.values(), _WORDS))


def _bar(result: VerifyResult, partition: Partition, ranges: Sequence[Range]) -> LogBar:
    intervals = [(*r.interval, "land") for r in ranges]
    audit = result.audit
    of_kinds = {"unproved": audit.unproved, "lost": audit.holes, "twice": audit.duplicates}
    for kind, wrong_ranges in of_kinds.items():
        intervals += [(*r.interval, kind) for r in wrong_ranges if r.partition == partition]
    first, last = min(s[0] for s in intervals), max(s[1] for s in intervals)
    return LogBar(first, last, tuple(intervals))


def _wrong_cells(result: VerifyResult, partitions: set[Partition]) -> list[Text]:
    """How many offsets of these partitions are missing, and how many are duplicated."""
    kinds = (result.audit.holes, result.audit.duplicates)
    counts = [sum(r.width for r in ranges if r.partition in partitions) for ranges in kinds]
    return [Text(number(n), "bold red" if n else "dim") for n in counts]


def _lines(ranges: Sequence[Range]) -> list[str]:
    return [f"{r}, {count_noun(r.width, 'offset')}" for r in ranges]


def render_find(finding: Finding) -> RenderableType:
    """Draws one offset: which landing brought it, when, from where, and where it is now."""
    good = finding.state in (FindState.LANDED, FindState.NO_ROW)
    title = safe_text(f"{finding.partition} offset {finding.offset}: ", "bold")
    title.append(_STATES[finding.state], "bold green" if good else "bold yellow")
    if finding.why:
        title.append_text(safe_text(f": {finding.why}", "yellow"))
    version = finding.table_version
    lines = {
        "landing": None
        if finding.sequence is None
        else f"{finding.application} {finding.sequence}",
        "range": finding.range,
        "landed at": finding.landed_at,
        "version": version if version is not None else "no longer in the table's log",
        "leader": finding.leader,
        "file": f"\n{'':11}".join(finding.files),
        "before": ", ".join(map(str, finding.earlier)),
    }
    shown = [name for name, value in lines.items() if value not in (None, "")]
    if finding.sequence is None:
        shown = [name for name in shown if name == "file"]
    text = Text(no_wrap=True, overflow="ignore")  # A path broken across lines cannot be copied.
    for name in shown:
        text.append(f"{name:<11}", "dim").append(f"{plain(lines[name])}\n")
    text.rstrip()
    return Group(title, text) if text else title
