"""What all sections of a job file have in common: how they are checked, and what a mistake is."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class MisplacedKey(ValueError):
    """What only the whole can tell is wrong with one of its fields: ``field`` is that one's
    path from there."""

    def __init__(self, expected: str, *field: str) -> None:
        self.field = field
        super().__init__(expected)


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)
