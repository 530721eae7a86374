"""The events in a version of the ledger, and the files with their rows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from rangeland.delta.ledger.events import EventKind
from rangeland.delta.transaction_log.table_snapshot import Snapshot
from rangeland.planning.plan import PlanId


@dataclass(frozen=True, slots=True)
class EventKey:
    """The identity of an event, and the file with its row. ``entered`` is 0 except for plans;
    ``attempt`` is a part's number. A file of losses has one key for all of its rows."""

    event: str
    """An ``EventKind``, or a kind that a later version has added."""
    application: str
    job: str
    sequence: int
    entered: int
    path: str
    attempt: int = 0

    @property
    def plan_id(self) -> PlanId:
        return PlanId(self.application, self.sequence)


def key_of(row: dict[str, object], path: str) -> EventKey:
    numbers = {name: row.get(name) or 0 for name in ("sequence", "entered", "attempt")}
    sequence, entered, attempt = (int(str(number)) for number in numbers.values())
    event, application, job = (str(row[name]) for name in ("event", "application", "job"))
    return EventKey(event, application, job, sequence, entered, path, attempt)


def in_order(keys: list[EventKey]) -> tuple[EventKey, ...]:
    """Plans in the order they were entered, then all others."""
    return tuple(
        sorted(
            keys, key=lambda k: (k.event != EventKind.PLAN, k.entered, k.application, k.sequence)
        )
    )


@dataclass(frozen=True)
class LedgerView:
    """One version of the ledger, with the ``keys`` of all events: plans in the order they were
    entered, then outcomes."""

    snapshot: Snapshot
    keys: tuple[EventKey, ...]

    @cached_property
    def last_attempts(self) -> dict[tuple[str, PlanId], EventKey]:
        """The keys by event and plan, with the last of several attempts."""
        return {
            (key.event, key.plan_id): key for key in sorted(self.keys, key=lambda key: key.attempt)
        }

    @cached_property
    def without_outcome(self) -> list[EventKey]:
        """The plans without an outcome."""
        return [
            key
            for key in self.keys
            if key.event == EventKind.PLAN
            and (EventKind.OUTCOME, key.plan_id) not in self.last_attempts
        ]
