"""Warnings about records that landed without a day or an hour to partition by."""

from __future__ import annotations

from collections.abc import Sequence

from rangeland.delta.ledger.events import FileEntry
from rangeland.delta.partition_values import NULL_FOLDER
from rangeland.delta.table_metadata import Function, TableLayout


def without_time(files: Sequence[FileEntry], layout: TableLayout) -> list[str]:
    """A warning for each column of days or hours that is null in some records."""
    found = []
    for column in layout.partition_by:
        rows = sum(
            f.file.rows for f in files if f.file.partition_values.get(column.key, "") is None
        )
        if rows and column.function is not Function.VALUE:
            records = "1 record has" if rows == 1 else f"{rows} records have"
            found.append(
                f"{records} no {column.source}, or one outside the years 1 to 9999: landed with "
                f"{column.name} = NULL (folder {column.name}={NULL_FOLDER})"
            )
    return found
