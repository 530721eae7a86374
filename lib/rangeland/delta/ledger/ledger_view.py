"""One version of the ledger: which events it has, by the statistics of its files."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from rangeland.delta.ledger.events import OUTCOME, PLAN
from rangeland.delta.ledger.ledger_files import EventKey
from rangeland.delta.transaction_log.table_snapshot import Snapshot


@dataclass(frozen=True)
class LedgerView:
    """``keys``: of all events, in the order of plans entered, outcomes last."""

    snapshot: Snapshot
    keys: tuple[EventKey, ...]

    @cached_property
    def last_attempts(self) -> dict[tuple[str, str, int], EventKey]:
        """The keys by event, application and sequence; of several attempts the last one."""
        return {
            (key.event, key.application, key.sequence): key
            for key in sorted(self.keys, key=lambda key: key.attempt)
        }

    @cached_property
    def without_outcome(self) -> list[EventKey]:
        """The plans without an outcome."""
        return [
            key
            for key in self.keys
            if key.event == PLAN
            and (OUTCOME, key.application, key.sequence) not in self.last_attempts
        ]
