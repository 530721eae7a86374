"""Determines what an error says about the data, by the stage of the plan that it interrupts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from rangeland.errors import (
    ALL_OR_NOTHING,
    AccessDenied,
    JobFileError,
    MissingRequirement,
    RangelandError,
    StorageFailed,
    UsageError,
)

PLAN_STAYS = (
    "no rows from this run were landed; its plan is in the ledger for the next run to finish"
)
FOUND_BEFORE_PLANS = (UsageError, JobFileError, AccessDenied, MissingRequirement)
"""Errors that are usually found before a plan is entered."""


class PlanStage(Enum):
    """The stages of a plan in which some errors need a different answer than that of their
    class."""

    READING = auto()
    """The plan is in the ledger, but its outcome is not prepared."""
    COMMITTING = auto()
    """The plan's outcome is being committed, provided that the table is unchanged."""
    UNCONFIRMED = auto()
    """A commit may have gone through, and nothing has shown yet whether it did."""


@dataclass(frozen=True, slots=True)
class StageAnswer:
    """The answer about the data that these kinds of errors give."""

    kinds: tuple[type[RangelandError], ...]
    data: str


ANSWERS: Final[Mapping[PlanStage, StageAnswer]] = {
    PlanStage.READING: StageAnswer(FOUND_BEFORE_PLANS, PLAN_STAYS),
    PlanStage.COMMITTING: StageAnswer((StorageFailed,), ALL_OR_NOTHING),
    PlanStage.UNCONFIRMED: StageAnswer((RangelandError,), ALL_OR_NOTHING),
}
"""All other errors give the answer of their class, as do errors between these stages.
``after_landing`` adds what has landed before."""


@contextmanager
def at_stage(stage: PlanStage) -> Iterator[None]:
    """A context in which errors get the answer for a plan at this stage."""
    answer = ANSWERS[stage]
    try:
        yield
    except answer.kinds as error:
        raise error.with_answers(data=answer.data) from error.__cause__
