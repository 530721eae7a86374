"""The events in one version of the ledger, and what follows from them: coverage, losses, unfinished
plans.

The statistics of the files show which events there are, so many questions are answered without
opening a file. Each event is read only when it is asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import TypeVar

from rangeland.delta.ledger.covered_offsets import (
    with_ranges,
    without_ranges,
    without_still_to_come,
)
from rangeland.delta.ledger.events import (
    CoveredIntervals,
    EventKey,
    EventKind,
    LedgerEvent,
    LossEvent,
    OutcomeEvent,
    PartEvent,
    PlanEvent,
    prepared_plans,
)
from rangeland.delta.ledger.ledger_files import LedgerFiles
from rangeland.errors import Bug
from rangeland.planning.plan import PlanId
from rangeland.planning.slice_receipt import RangeResult

E = TypeVar("E", bound=LedgerEvent)


class LedgerView:
    """One version of the ledger. Without files it has no events, and stands for a ledger that does
    not exist yet. ``keys`` lists the keys of all events: first of plans, in the order they were
    entered, then of everything else."""

    def __init__(self, keys: Iterable[EventKey] = (), files: LedgerFiles | None = None) -> None:
        self.keys = tuple(sorted(keys, key=_place))
        self._files = files

    # --- plans and outcomes -------------------------------------------------------------

    def plan(self, plan_id: PlanId) -> PlanEvent | None:
        key = self._key(EventKind.PLAN, plan_id)
        return None if key is None else self._read(key, PlanEvent)

    def outcome(self, plan_id: PlanId) -> OutcomeEvent | None:
        """The outcome of a plan: its last attempt, if there are several."""
        key = self._key(EventKind.OUTCOME, plan_id)
        return None if key is None else self._read(key, OutcomeEvent)

    def plans(
        self, *, application: str | None = None, job: str | None = None
    ) -> Iterator[PlanEvent]:
        """All plans, or those of one application or job, newest first, each read on demand."""
        return (
            self._read(key, PlanEvent)
            for key in reversed(self._plan_keys)
            if application in (None, key.application) and job in (None, key.job)
        )

    def plan_of(self, outcome: OutcomeEvent) -> PlanEvent | None:
        """The plan to which an outcome belongs."""
        plans = (self._read(key, PlanEvent) for key in self._plan_keys_of(outcome.plan_id))
        return next((plan for plan in plans if plan.plan_hash == outcome.plan_hash), None)

    def landed_plan(self, plan_id: PlanId) -> PlanEvent | None:
        """A plan that is in the table. If the table's transactions were lost, another plan may have
        been entered later under the same id: then the result is the plan to which the outcome
        belongs."""
        if len(self._plan_keys_of(plan_id)) < 2:
            return self.plan(plan_id)
        outcome = self.outcome(plan_id)
        return self.plan(plan_id) if outcome is None else self.plan_of(outcome)

    def _plan_keys_of(self, plan_id: PlanId) -> list[EventKey]:
        return [key for key in reversed(self._plan_keys) if key.plan_id == plan_id]

    def outcomes(self, application: str) -> Iterator[OutcomeEvent]:
        """All outcomes of one application, newest first, each read on demand."""
        keys = [k for k in self._keys_of(EventKind.OUTCOME) if k.application == application]
        keys.sort(key=lambda key: key.sequence, reverse=True)
        return (self._read(key, OutcomeEvent) for key in keys)

    def newest(self) -> PlanEvent | None:
        """The plan entered last, of any job."""
        return self._require_files().newest_plan(self._plan_keys[-1]) if self._plan_keys else None

    def applications(self, job: str) -> set[str]:
        """The applications under which plans of a job were entered. Opens no file."""
        return {key.application for key in self._plan_keys if key.job == job}

    def last_sequence(self, application: str) -> int:
        """The sequence of the newest plan of an application, 0 if there is none. Opens no file."""
        sequences = (key.sequence for key in self._plan_keys if key.application == application)
        return max(sequences, default=0)

    def prepared_plans(self) -> list[tuple[PlanEvent, OutcomeEvent]]:
        """All plans that have an outcome, in the order they were entered, each with its last
        outcome. Reads the whole ledger at once."""
        return prepared_plans(self._read_all(self.keys, EventKind.PLAN, EventKind.OUTCOME))

    def parts(self, plan_id: PlanId) -> list[PartEvent]:
        """The parts of a shared plan that drivers have written, by number."""
        keys = [key for key in self._keys_of(EventKind.PART) if key.plan_id == plan_id]
        keys.sort(key=lambda key: key.attempt)
        parts = [self._read(key, PartEvent) for key in keys]
        if [part.number for part in parts] != list(range(1, len(keys) + 1)):
            raise self._require_files().contradiction_error(f"parts of {plan_id} are missing")
        return parts

    # --- losses -------------------------------------------------------------------------

    def losses(self, plan_id: PlanId | None = None) -> list[LossEvent]:
        """All losses, or those of one plan, in the order they were written. Only the last attempt
        at an outcome counts. Opens no file if there are no losses."""
        keys = [k for k in self._keys_of(EventKind.LOSS) if plan_id in (None, k.plan_id)]
        events = self._read_all(keys, EventKind.LOSS)
        losses = [x for x in events if isinstance(x, LossEvent) and self._counts(x)]
        losses = [x for x in losses if plan_id in (None, x.plan_id)]
        return sorted(losses, key=lambda x: (x.written_at_ms, x.loss.range))

    def _counts(self, loss: LossEvent) -> bool:
        if not loss.plan_hash:
            return True
        outcome = self._key(EventKind.OUTCOME, loss.plan_id)
        return outcome is not None and outcome.attempt == loss.attempt

    # --- coverage -----------------------------------------------------------------------

    def without_outcome(self) -> list[PlanId]:
        """The plans that have no outcome and may still get one, oldest first: either they are still
        being worked on, or their run died. An application's outcomes are written in the order of
        their sequences. Opens no file."""
        last: dict[str, int] = {}
        for key in self._keys_of(EventKind.OUTCOME):
            last[key.application] = max(key.sequence, last.get(key.application, 0))
        plan_ids = [key.plan_id for key in self._plan_keys]
        return [p for p in plan_ids if p.sequence > last.get(p.application, 0)]

    def possibly_unfinished(self) -> tuple[PlanId, ...]:
        """All plans that may not be in the table yet: the newest one, and those that were not known
        to be in the table when it was entered."""
        newest = self.newest()
        return () if newest is None else (*newest.unfinished, newest.plan_id)

    def coverage(self, without: Sequence[OutcomeEvent] = ()) -> CoveredIntervals:
        """The offsets that prepared outcomes account for. Reads the newest plan, and the outcomes
        of the plans that were unfinished when it was entered. ``without``: outcomes that can no
        longer land."""
        newest = self.newest()
        if newest is None:
            return {}
        covered: CoveredIntervals = newest.covered
        if without:
            covered = without_ranges(covered, [r for outcome in without for r in outcome.ranges])
        left_out = {outcome.plan_id for outcome in without}
        for plan_id in self.possibly_unfinished():
            if plan_id in left_out:
                continue
            outcome = self.outcome(plan_id)
            if outcome is not None:
                covered = with_ranges(covered, self._covered_by(outcome))
            elif self._key(EventKind.PLAN, plan_id) is None:
                raise self._require_files().contradiction_error(f"plan {plan_id} is missing")
        return covered

    def _covered_by(self, outcome: OutcomeEvent) -> Sequence[RangeResult]:
        losses = [event.loss for event in self.losses(outcome.plan_id) if event.plan_hash]
        return without_still_to_come(outcome.ranges, losses)

    # --- events by their keys -----------------------------------------------------------

    @cached_property
    def _plan_keys(self) -> list[EventKey]:
        return self._keys_of(EventKind.PLAN)

    def _keys_of(self, kind: EventKind) -> list[EventKey]:
        return [key for key in self.keys if key.event == kind]

    @cached_property
    def _last_attempts(self) -> dict[tuple[str, PlanId], EventKey]:
        """The keys by event and plan; if there are several attempts, that of the last."""
        by_attempt = sorted(self.keys, key=lambda key: key.attempt)
        return {(key.event, key.plan_id): key for key in by_attempt}

    def _key(self, event: EventKind, plan_id: PlanId) -> EventKey | None:
        return self._last_attempts.get((event, plan_id))

    def _read(self, key: EventKey, kind: type[E]) -> E:
        return self._require_files().event(key, kind)

    def _read_all(self, keys: Iterable[EventKey], *kinds: EventKind) -> list[LedgerEvent]:
        paths = {key.path for key in keys if key.event in kinds}
        return self._require_files().events_in(paths, kinds) if paths else []

    def _require_files(self) -> LedgerFiles:
        if self._files is None:
            raise Bug("a ledger that does not exist has events")
        return self._files


def _place(key: EventKey) -> tuple[bool, int, str, int]:
    return (key.event != EventKind.PLAN, key.entered, key.application, key.sequence)
