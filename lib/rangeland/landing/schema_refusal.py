"""Which registered schemas are behind rows that a table cannot take."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rangeland.decode.payload.row_format import RowFormat
from rangeland.decode.payload.subject_formats import SubjectFormats
from rangeland.errors import TableRefused
from rangeland.landing.landing_target import LandingTarget


@contextmanager
def naming_schemas(target: LandingTarget, row_format: RowFormat | None) -> Iterator[None]:
    """A refusal of the table names the schemas of the rows, and those of what landed last."""
    try:
        yield
    except TableRefused as error:
        values = None if row_format is None else row_format.value
        new = values.latest if isinstance(values, SubjectFormats) else {}
        old = _landed_last(target) if new else ()
        if not old or set(old) == set(new.values()):
            raise
        ours = ", ".join(f"schema {number}, the latest of {name}" for name, number in new.items())
        theirs = ", ".join(map(str, old))
        raise TableRefused.of(
            error,
            why=f"{error.why}; they have {ours}, and what landed last was written with {theirs}",
            schema_ids=[*old, *new.values()],
        ) from error


def _landed_last(target: LandingTarget) -> tuple[int, ...]:
    """The ids of the newest landing that has any."""
    for _, outcome in reversed(target.history.landings()):
        if outcome.schema_ids:
            return tuple(schema_id for schema_id, _ in outcome.schema_ids)
    return ()
