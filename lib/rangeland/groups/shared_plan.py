"""Reading a plan together with the other drivers of its group.

Each driver reads what ``planning.sharing`` gives it and hands that in as a part of the
plan, in the ledger. Whoever sees the plan complete proves all of it and prepares the
outcome. A driver that is to give up its partitions stops its tasks first and hands in
what they have finished; what is left is read by whoever owns the partitions then.

Handing in is first come, first served: what another has handed in meanwhile is dropped here
and its files are never named. So a driver that has lost its place without knowing it, or
that works without a group, costs time and nothing else.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import replace

from rangeland.delta.ledger.events import OutcomeEvent, PartEvent
from rangeland.groups.lease import GroupLease
from rangeland.landing.plan_reader import FinishedTasks, PlanToRead, SharedOutcome
from rangeland.model import Range, Receipt, TaskResult
from rangeland.planning.proof import prove
from rangeland.planning.slice_assignment import (
    PlanComplete,
    ReadSlices,
    SliceOwners,
    WaitForOthers,
    next_step,
    not_handed_in,
)
from rangeland.progress import Progress

log = logging.getLogger(__name__)

POLL_SECONDS = 1.0
STALLED_SECONDS = 600.0
"""Others that hold partitions, and have handed in nothing for so long, may never do: a driver
without executors, say, whose heartbeat goes on. What they were to read is then read here, too."""


class SharedPlanReader:
    """The ``PlanReader`` of a driver that holds a lease in its job's group."""

    def __init__(self, lease: GroupLease, progress: Progress) -> None:
        self._lease = lease
        self._progress = progress

    @property
    def is_available(self) -> bool:
        return self._lease.is_member

    def read(self, work: PlanToRead) -> SharedOutcome:
        reading = SharedReading(work, self._lease, self._progress)
        return SharedOutcome(reading.outcome(), reading.with_others)


class SharedReading:
    """One plan, read by one driver of several."""

    def __init__(self, work: PlanToRead, lease: GroupLease, progress: Progress) -> None:
        self.with_others = False
        """Other members held partitions while this one worked."""
        self._work = work
        self._plan = work.plan
        self._target = work.target
        self._lease = lease
        self._progress = progress
        self._partitions = frozenset(s.partition for s in work.plan.slices)
        self._waits_for = ""
        self._seen = 0
        self._since = time.monotonic()

    def outcome(self) -> OutcomeEvent:
        """The outcome of the plan, prepared here or by another driver."""
        while True:
            parts, outcome = self._handed_in()
            outcome = outcome or self._step(parts)
            if outcome is not None:
                return outcome

    def _handed_in(self) -> tuple[list[PartEvent], OutcomeEvent | None]:
        parts, outcome = self._target.handed_in(self._plan)
        # Parts of a plan that is not split were read without the transform that it has now.
        return ([] if self._work.whole else parts), outcome

    def _step(self, parts: Sequence[PartEvent]) -> OutcomeEvent | None:
        done = _receipts(parts)
        self._lease.settle()
        if self._lease.must_stop:  # the home did not answer; until it is gone it may yet
            time.sleep(POLL_SECONDS)
            return None
        with self._lease.reading():
            seats = self._lease.seats(self._partitions)
            if self._is_stalled(len(parts)):
                seats = SliceOwners(seats.me, self._partitions, {}, (seats.me,))
            self._note_others(seats)
            step = next_step(self._plan.slices, done, seats, whole=self._work.whole)
            if isinstance(step, ReadSlices):
                found = self._read_slices(step, done)
        if isinstance(step, PlanComplete):
            return self._prepare(parts, [])
        if isinstance(step, WaitForOthers):
            self._wait(step, seats)
            return None
        units, error = found
        if self._work.whole and units:
            return self._prepare([], units)
        outcome = self._hand_in(units)
        if outcome is None and error is not None:
            raise error
        return outcome

    def _is_stalled(self, parts: int) -> bool:
        if parts != self._seen:
            self._seen, self._since = parts, time.monotonic()
        return time.monotonic() - self._since > STALLED_SECONDS

    def _note_others(self, seats: SliceOwners) -> None:
        others = {owner for owner in seats.owners.values() if owner != seats.me}
        self.with_others = self.with_others or bool(others)

    def _read_slices(self, step: ReadSlices, done: dict[int, Receipt]) -> FinishedTasks:
        self._waits_for = ""
        before = {index: r.until_offset - r.from_offset for index, r in done.items()}
        found = self._work.read(step.slices, self._must_stop, before)
        self._since = time.monotonic()  # others are waited for from now on
        return found

    def _must_stop(self) -> bool:
        if not self._lease.must_stop:
            return False
        if not self._work.whole:
            return True
        # All that was read would be lost, so it goes on beside the rebalance, and ends only
        # where somebody else is to read it now.
        self._lease.settle()
        seats = self._lease.seats(self._partitions)
        return not seats.reads(self._plan.slices[0].partition)

    def _wait(self, step: WaitForOthers, seats: SliceOwners) -> None:
        if (text := step.told(seats)) != self._waits_for:
            self._waits_for = text
            self._progress.step(text)
        time.sleep(POLL_SECONDS)

    # --- writing it down ------------------------------------------------------------------

    def _hand_in(self, units: Sequence[TaskResult]) -> OutcomeEvent | None:
        """Makes what was read here everybody's. The outcome where there is one by then."""
        while True:
            parts, outcome = self._handed_in()
            if outcome is not None:
                return outcome
            done = _receipts(parts)
            kept = not_handed_in(units, done)
            if len(done) + sum(len(unit.receipts) for unit in kept) == len(self._plan.slices):
                return self._prepare(parts, kept)
            if not kept:
                return None
            self._refuse_unproved(kept)
            self._progress.step(f"handing in {sum(len(u.receipts) for u in kept)} slices")
            part = (self._lease.member_id, len(parts) + 1)
            if self._target.append_part(self._plan, *part, kept, self._work.files_of(kept)):
                name = (self._plan.application, self._plan.sequence)
                log.info("Handed in part %d of plan %s %d", part[1], *name)
                return None

    def _refuse_unproved(self, units: Sequence[TaskResult]) -> None:
        """A part that does not add up would be in the way of the plan for ever."""
        receipts = {r.slice_index: r for unit in units for r in unit.receipts}
        slices = tuple(s for s in self._plan.slices if s.index in receipts)
        ranges = tuple(Range(s.partition, s.from_offset, s.until_offset) for s in slices)
        prove(replace(self._plan, ranges=ranges, slices=slices, losses=()), receipts)
        self._work.confirm(receipts)

    def _prepare(self, parts: Sequence[PartEvent], units: Sequence[TaskResult]) -> OutcomeEvent:
        receipts = _receipts(parts)
        receipts |= {r.slice_index: r for unit in units for r in unit.receipts}
        files = [entry for part in parts for entry in part.files]
        outcomes = prove(self._plan, receipts)
        self._work.confirm(receipts)
        self._progress.step("preparing the outcome")
        outcome, _ = self._target.prepare(
            self._plan, outcomes, [*files, *self._work.files_of(units)], receipts
        )
        return outcome


def _receipts(parts: Sequence[PartEvent]) -> dict[int, Receipt]:
    return {receipt.slice_index: receipt for part in parts for receipt in part.receipts}
