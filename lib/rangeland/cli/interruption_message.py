"""What to say after an interruption: what is in the table, and what to do next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rangeland.wording import count_noun

if TYPE_CHECKING:
    from rangeland.planning.plan import Plan


def interruption_message(writes: bool, plans: Sequence[Plan]) -> str:
    """Says what is in the table after an interruption, and what to do."""
    if not writes:
        return "Interrupted. This command is read-only: the table and its ledger are as before."
    if not plans:
        return (
            "Interrupted before any record was read: nothing was landed. "
            "Run the same command again."
        )
    plan = plans[-1]
    return (
        f"Interrupted during plan {plan.sequence} of {plan.application} "
        f"({count_noun(plan.width, 'offset')}). The plan is in the ledger; the table holds all of "
        "its records or none, never a part. Run the same command again: it finishes that plan, "
        "and no offset is landed twice."
    )
