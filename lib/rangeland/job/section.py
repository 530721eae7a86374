"""The base class of a job file's sections, and an error that names one of their fields."""

from __future__ import annotations

from typing import ClassVar

from pydantic import BaseModel, ConfigDict


class MisplacedKey(ValueError):
    """A mistake that shows only when a whole section is checked. ``field`` is the path of the field
    within that section."""

    lead: ClassVar[str] = "expected "

    def __init__(self, expected: str, *field: str) -> None:
        self.field = field
        super().__init__(expected)


class UnneededKey(MisplacedKey):
    """A field that makes no sense together with the others; the text says why."""

    lead = "remove it: "


class FieldConflict(MisplacedKey):
    """A mistake described by a complete sentence, about a field and perhaps ``other``, the path of
    another field in the same section."""

    lead = ""

    def __init__(self, problem: str, *field: str, other: tuple[str, ...] = ()) -> None:
        super().__init__(problem, *field)
        self.other = other


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)
