"""Which field of a job file a misspelt one probably means."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from typing import Final, get_args, get_origin

from pydantic import BaseModel

from rangeland.job.located_values import FieldPath

MIN_SIMILARITY: Final = 0.7


def fields_of(model: type[BaseModel], prefix: FieldPath = ()) -> Iterator[FieldPath]:
    """All fields of a job file, each by its path."""
    for name, field in model.model_fields.items():
        path = (*prefix, field.alias or name)
        yield path
        members = () if get_origin(field.annotation) is dict else get_args(field.annotation)
        for kind in (field.annotation, *members):
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                yield from fields_of(kind, path)


def suggestion(path: FieldPath, fields: list[FieldPath]) -> FieldPath | None:
    """A field of the same section with a similar name, or one with the same name: in a section of
    that one, or in the only other section that has it."""
    *section, name = path
    siblings = [str(field[-1]) for field in fields if list(field[:-1]) == section]
    similar = get_close_matches(str(name), siblings, n=1, cutoff=MIN_SIMILARITY)
    if similar:
        return (*section, similar[0])
    elsewhere = [field for field in fields if field[-1] == name]
    below = [field for field in elsewhere if section and list(field[: len(section)]) == section]
    if below:
        return below[0]
    return elsewhere[0] if len(elsewhere) == 1 else None
