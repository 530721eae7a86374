"""Whether an error says the truth about the rows of its run."""

from __future__ import annotations

import re
from collections.abc import Mapping

from rangeland.errors import ALL_OR_NOTHING, RangelandError
from tests.simulation.invariants import LedgerRows
from tests.simulation.world import Violation

LANDED = re.compile(r"(\d+) plans? had been landed completely")


def check_answer(
    error: RangelandError, ledger: LedgerRows, before: Mapping[str, int], after: Mapping[str, int]
) -> None:
    """For a driver that was alone. ``before`` and ``after`` are the table's transactions."""
    new = [
        (application, number)
        for application, last in after.items()
        for number in range(before.get(application, 0) + 1, last + 1)
        if (outcome := ledger.outcomes.get((application, number))) and outcome["ranges"]
    ]
    said = LANDED.match(error.data)
    most = (int(said[1]) if said else 0) + error.data.endswith(ALL_OR_NOTHING)
    if len(new) > most:
        raise Violation("answer", f"{new} landed, and {error} says: {error.data}") from error
