"""A sample of records as text: formats, fields of JSON, and the first values."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from rangeland.queries.payload_sample import shown_rows
from rangeland.query_results import SampleResult
from rangeland.render.text_drawing import plain, safe_text, table_of
from rangeland.wording import count_noun, number

SHOWN_COLUMNS = 6
CELL_WIDTH = 20


def render_sample(result: SampleResult, written: str = "") -> RenderableType:
    """Draws the formats, the fields and the first values. ``written``: the name of the file that
    contains the fields as DDL."""
    kinds = ", ".join(f"{number(count)} {name}" for name, count in result.formats.items())
    parts: list[RenderableType] = [
        Text(count_noun(result.records, "record"), style="bold").append(f": {kinds or 'none'}")
    ]
    for schema in result.schemas:
        subject = safe_text(f" of {schema.subject}" if schema.subject else "")
        parts.append(
            Text(f"schema {schema.id}")
            .append(subject)
            .append(f": {count_noun(schema.records, 'record')}")
        )
    if result.undecodable:
        parts.append(Text(f"undecodable: {count_noun(result.undecodable, 'record')}", style="red"))
    if result.fields:
        table = table_of("field", "column", ">present", ">null", "types")
        for field in result.fields:
            types = ", ".join(f"{name} {number(n)}" for name, n in field.types.items())
            present = f"{number(field.present)}/{number(field.parents)}"
            table.add_row(
                safe_text(field.path),
                safe_text(field.column or "-"),
                present,
                number(field.nulls),
                types,
            )
        parts += [Text(), table]
    if result.schema:
        parts += [Text(), safe_text(result.schema)]
    records = [row for row in result.rows if isinstance(row, dict)]
    if records:
        parts += [Text(), _values(records)]
    lines = [safe_text(line, "dim") for line in shown_rows(result)]
    parts += [Text(), *lines] if lines else []
    if result.fields and result.undecodable is None:
        parts += [Text(), safe_text(_next_step(written), "dim")]
    return Group(*parts)


def _next_step(written: str) -> str:
    setting = f"  decode: {{value: {{format: json, schema: {written or 'orders.ddl'}}}}}"
    if written:
        return (
            f"{written} now has these fields. To land them as columns, correct it where it is "
            f"wrong, and name it in the job file:\n{setting}"
        )
    return (
        "To land these fields as columns, write them to a file with --out orders.ddl, correct it, "
        f"and name it in the job file:\n{setting}"
    )


def _values(records: Sequence[dict[str, str]]) -> RenderableType:
    """A table of the first fields."""
    names = list(records[0])
    shown, hidden = names[:SHOWN_COLUMNS], len(names) - SHOWN_COLUMNS
    more = [f"+ {number(hidden)} more"] if hidden > 0 else []
    table = table_of(*(plain(name) for name in shown), *more, is_cut=True)
    for record in records:
        cells = [safe_text(_cut(record[name])) for name in shown]
        table.add_row(*cells, *([Text("...", "dim")] if more else []))
    return table


def _cut(text: str) -> str:
    return text if len(text) <= CELL_WIDTH else f"{text[: CELL_WIDTH - 3]}..."
