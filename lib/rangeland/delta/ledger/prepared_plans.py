"""Which plans of a ledger have an outcome, and which of its attempts counts."""

from __future__ import annotations

from collections.abc import Iterable

from rangeland.delta.ledger.events import LedgerEvent, OutcomeEvent, PlanEvent


def prepared_plans(events: Iterable[LedgerEvent]) -> list[tuple[PlanEvent, OutcomeEvent]]:
    """The plans with an outcome in the order they were entered, each with its last attempt."""
    outcomes: dict[tuple[str, int], OutcomeEvent] = {}
    plans: dict[tuple[str, int], PlanEvent] = {}
    for event in events:
        key = (event.application, event.sequence)
        if isinstance(event, PlanEvent):
            plans[key] = event
        elif isinstance(event, OutcomeEvent) and (
            key not in outcomes or outcomes[key].attempt < event.attempt
        ):
            outcomes[key] = event
    entered = sorted(plans.items(), key=lambda item: item[1].entered)
    return [(plan, outcomes[key]) for key, plan in entered if key in outcomes]
