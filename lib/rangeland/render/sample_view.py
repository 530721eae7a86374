"""A sample of records: formats, fields of JSON, and the first values."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from rangeland.queries.payload_sample import SampleResult, shown_rows
from rangeland.render.text_drawing import safe_text, table_of
from rangeland.wording import counted, number


def sample_picture(result: SampleResult) -> RenderableType:
    kinds = ", ".join(f"{number(count)} {name}" for name, count in result.formats.items())
    parts: list[RenderableType] = [
        Text(counted(result.records, "record"), style="bold").append(f": {kinds or 'none'}")
    ]
    for one in result.schemas:
        subject = safe_text(f" of {one.subject}" if one.subject else "")
        parts.append(
            Text(f"schema {one.id}").append(subject).append(f": {counted(one.records, 'record')}")
        )
    if result.undecodable:
        parts.append(Text(f"undecodable: {counted(result.undecodable, 'record')}", style="red"))
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
    parts += [Text(), *(safe_text(line, "dim") for line in shown_rows(result))]
    return Group(*parts)
