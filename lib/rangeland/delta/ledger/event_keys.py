"""The keys of the ledger's events, each with the file that contains the row."""

from __future__ import annotations

from dataclasses import dataclass

from rangeland.planning.plan import PlanId


@dataclass(frozen=True, slots=True)
class EventKey:
    """The identity of an event, and the file that contains its row. ``entered`` is 0 except for
    plans; ``attempt`` is the number if the event is a part. A file of losses has a single key for
    all of its rows."""

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
    return EventKey(
        event=event,
        application=application,
        job=job,
        sequence=sequence,
        entered=entered,
        path=path,
        attempt=attempt,
    )
