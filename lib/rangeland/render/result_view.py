"""The result of a run as text: what became of every offset, and that the counts add up.

The largest partitions are shown one by one, the others on one line. Classes without any offsets
have no column. ``text_drawing`` makes strings from outside safe.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from rangeland.model import COUNT_NAMES, Counts
from rangeland.planning.table_audit import ReplacedRange
from rangeland.render.loss_view import loss_lines
from rangeland.render.text_drawing import (
    MAX_ROWS,
    biggest,
    list_lines,
    rest_name,
    safe_text,
    shorten_name,
    table_of,
    title_of,
)
from rangeland.results import AdoptResult, RedriveResult, RunResult, WriterSchema
from rangeland.wording import count_noun, duration, number, size

COUNT_STYLES = {"landed": "green", "quarantined": "yellow", "lost": "bold red"}


def render_result(result: RunResult) -> RenderableType:
    """Draws the result of a run: the classes of its offsets, their sum, and where the rows are."""
    parts: list[RenderableType] = [_result_title(result)]
    if result.ranges:
        parts += [Text(), _result_table(result), Text(), closing_sum(result), _landing(result)]
    if result.replaced is not None:
        parts.append(_replaced_text(result.replaced))
    columns = [", ".join(result.added_columns)] if result.added_columns else []
    parts += list_lines("columns added to the table", columns, "green")
    parts += list_lines(
        "schemas of the values", [_schema(schema) for schema in result.schemas or ()], "dim"
    )
    plans = [f"plan {sequence}" for sequence in result.recovered]
    parts += list_lines("finished from an earlier run", plans, "yellow")
    parts += list_lines("already landed, left out", result.already_landed, "cyan")
    listed_below = {event.loss for event in result.losses}
    held = [str(loss) for loss in result.held_losses if loss not in listed_below]
    parts += list_lines("held where they are", held, "red")
    parts += loss_lines(result.losses)
    parts += list_lines("warning", result.warnings, "yellow")
    return Group(*parts)


def render_redrive(result: RedriveResult) -> RenderableType:
    """Draws the landing, if there was one, and the quarantine: each range with the landing that put
    it there, the reason, and whether it can be decoded."""
    parts: list[RenderableType] = []
    if result.done is not None:
        parts += [render_result(result.done), Text()]
    parts.append(title_of(result.job, f"quarantine of {result.table}"))
    if not result.still_quarantined:
        parts.append(safe_text("Nothing is in quarantine.", "green"))
        return Group(*parts)
    table = table_of("partition", ">from", ">until", ">size", ">landing", "decodes", "why")
    for attempt in result.still_quarantined[:MAX_ROWS]:
        r = attempt.batch.range
        batch = attempt.batch
        ends = [Text(number(r.from_offset)), Text(number(r.until_offset))]
        more = [Text(size(batch.size_bytes)), Text(number(batch.sequence))]
        decodes = Text("yes", "green") if attempt.decodes else Text("no", "yellow")
        table.add_row(
            shorten_name(r.partition),
            *ends,
            *more,
            decodes,
            safe_text(attempt.why or batch.reason),
        )
    if len(result.still_quarantined) > MAX_ROWS:
        table.add_row(rest_name(result.still_quarantined[MAX_ROWS:]))
    ready = sum(1 for attempt in result.still_quarantined if attempt.decodes)
    last = (
        f"{count_noun(len(result.still_quarantined), 'range')}, {number(ready)} can be decoded now"
    )
    parts += [Text(), table, Text(), Text(last, "bold")]
    return Group(*parts, *_without_bytes(result))


def _without_bytes(result: RedriveResult) -> list[RenderableType]:
    """What is gone from the quarantine, and what to do."""
    ranges = [one.batch.range for one in result.without_bytes]
    if not ranges:
        return []
    files = sorted({file for one in result.without_bytes for file in one.gone_files or ()})
    width = sum(r.width for r in ranges)
    heading = f"the quarantine no longer has the bytes of {count_noun(width, 'offset')}"
    advice = (
        "Restore the folder _rangeland/quarantine beside the table's files, or land what the log "
        "still has: rangeland redrive JOB.yaml --from-log"
    )
    return [
        *list_lines(heading, ranges, "bold red"),
        *list_lines("files that are gone from the quarantine", files, "bold red"),
        Text(advice, "bold"),
    ]


def _schema(schema: WriterSchema) -> str:
    """``12, version 3 of orders-value: 1,000 records``."""
    version = "" if schema.version is None else f"version {schema.version} of "
    subject = f", {version}{schema.subject}" if schema.subject else ""
    return f"{schema.id}{subject}: {count_noun(schema.records, 'record')}"


def render_adopt(result: AdoptResult) -> RenderableType:
    """Draws the ranges that count as landed after a table is adopted."""
    title = title_of(result.job, f"adopted {result.table}", "bold green")
    if result.table_version is not None:
        title.append_text(safe_text(f" (version {result.table_version})"))
    if not result.ranges:
        return Group(title, safe_text("all of its rows are in its ledger"))
    return Group(title, *list_lines("landed from now on", result.ranges, "cyan"))


def _result_title(result: RunResult) -> Text:
    details = [] if result.table_version is None else [f"version {result.table_version}"]
    if result.state != "landed":  # The last line says how long a landing took.
        details.append(duration(result.seconds))
    where = f" in {result.table}" + (f" ({', '.join(details)})" if details else "")
    words, style = "nothing to land", "bold"
    if result.state == "landed":
        words, style = f"landed {count_noun(result.counts.landed, 'record')}", "bold green"
    elif result.state == "already-landed":
        words = "already landed"
        style = "bold cyan"
        where = f", nothing new{where}"
    return title_of(result.job, words, style).append_text(safe_text(where))


def _result_table(result: RunResult) -> Table:
    total = result.counts
    names = [name for name in COUNT_NAMES if getattr(total, name) or name == "landed"]
    table = table_of("partition", ">from", ">until", *(f">{name}" for name in names))
    shown, hidden = biggest(result.ranges, lambda entry: entry.range.width)
    for entry in sorted(shown, key=lambda o: (o.range.partition, o.range.from_offset)):
        r = entry.range
        ends = [Text(number(r.from_offset)), Text(number(r.until_offset))]
        table.add_row(shorten_name(r.partition), *ends, *_count_cells(entry.counts, names))
    if hidden:
        sums = Counts.sum(entry.counts for entry in hidden)
        table.add_row(rest_name(hidden), "", "", *_count_cells(sums, names))
    return table


def _count_cells(counts: Counts, names: Sequence[str]) -> list[Text]:
    values = [(name, getattr(counts, name)) for name in names]
    return [Text(number(n), COUNT_STYLES.get(name, "") if n else "dim") for name, n in values]


def closing_sum(result: RunResult) -> Text:
    """``1,000,000 offsets = 999,990 landed + 10 control``."""
    counts = result.counts
    width = sum(entry.range.width for entry in result.ranges)
    classes = [(n, name) for name in COUNT_NAMES if (n := getattr(counts, name))]
    text = Text(count_noun(width, "offset"), style="bold")
    in_bytes = any(entry.offsets_are_bytes for entry in result.ranges)
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
        count_noun(result.files, "file"),
        size(result.bytes_written),
        duration(result.seconds),
        f"{number(rate)} records/s",
    ]
    if result.rows != result.counts.landed:
        parts.insert(1, count_noun(result.rows, "row"))
    return Text(", ".join(parts), style="dim")


def _replaced_text(replaced: ReplacedRange) -> Text:
    """``against the rows that were there: 990 the same, 10 changed``."""
    text = Text("against the rows that were there: ", style="dim")
    styles = {"same": "green", "added": "green", "changed": "yellow", "missing": "bold red"}
    words = {"same": "the same", "missing": "no longer there"}
    classes = [(name, count) for name in styles if (count := getattr(replaced, name))]
    for index, (name, count) in enumerate(classes or [("same", 0)]):
        text.append(", " if index else "")
        text.append(f"{number(count)} {words.get(name, name)}", style=styles[name])
    return text
