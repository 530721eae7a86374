"""The report of an interruption: what is in the table, and what to do next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rangeland.errors import ALL_OR_NOTHING, RangelandError
from rangeland.wording import count_noun

if TYPE_CHECKING:
    from rangeland.planning.plan import Plan

NAME = "Interrupted"


@dataclass(frozen=True, slots=True)
class Interruption:
    """The report on an interrupted command. ``data``: whether the data is safe, as in errors."""

    message: str
    data: str

    def json(self, exit_code: int) -> dict[str, Any]:
        """The same keys as ``error_json``."""
        return {
            "error": NAME,
            "message": self.message,
            "exit": exit_code,
            "data": self.data,
            "retry": "yes, with the same command",
            "acts": "the person or the scheduler that ran the command",
            "facts": {},
        }


BEFORE_PLANS = Interruption(
    "Interrupted before any record was read: nothing was landed. Run the same command again.",
    data=RangelandError.data,
)
READ_ONLY = Interruption(
    "Interrupted. This command is read-only: the table and its ledger are as before.",
    data="the table and its ledger are as before",
)
OF_MANY_TABLES = Interruption(
    "Interrupted. Each table has either all records of its plan or none of them. Run the same "
    "command again: it finishes what was started, and no offset is landed twice.",
    data="each table holds all rows of its plan or none",
)
OF_SUBMITTED = Interruption(
    "Interrupted while spark-submit was running. What it has submitted may keep running in the "
    "cluster. The table has either all records of each plan or none of them; `rangeland status` "
    "shows which. Run the same command again: it finishes what was started, and no offset is "
    "landed twice.",
    data="the table holds all rows of each plan or none: `rangeland status` shows which",
)


def interruption_of(writes: bool, plans: Sequence[Plan]) -> Interruption:
    """The interruption of a command that has begun these plans. ``writes``: whether it may land
    them."""
    if not writes:
        return READ_ONLY
    if not plans:
        return BEFORE_PLANS
    plan = plans[-1]
    return Interruption(
        f"Interrupted during plan {plan.sequence} of {plan.application} "
        f"({count_noun(plan.width, 'offset')}). The plan is in the ledger; the table has either "
        "all of its records or none of them. Run the same command again: it finishes that plan, "
        "and no offset is landed twice.",
        data=ALL_OR_NOTHING,
    )
