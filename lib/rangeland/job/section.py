"""The base class of a job file's sections, and an error that names one of their fields."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class MisplacedKey(ValueError):
    """A mistake that only shows when a whole section is checked. ``field`` is the path of the
    field within that section."""

    def __init__(self, expected: str, *field: str) -> None:
        self.field = field
        super().__init__(expected)


class UnneededKey(MisplacedKey):
    """A field that has no meaning beside the others; the text says why."""


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)
