"""Reads a plan together with the other drivers of its group.

Each driver reads the slices that ``planning.slice_assignment`` gives it and writes them to the
ledger as a part of the plan. The driver that finds the plan complete returns what all of them have
read, to be proved and prepared as an outcome. A driver that has to give up its partitions first
stops its tasks and writes what they have finished; the new owners of the partitions read the rest.

The first part with a slice counts: slices that another driver has written meanwhile are dropped
here, and their files are never committed. So a driver that has lost its lease without knowing it,
or works without a group, only costs time.

A driver whose range covers more than the plan continues with its own plan afterwards: it may have
been started for another interval.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import replace

from rangeland.deadline import Deadline
from rangeland.delta.ledger.events import OutcomeEvent, PartEvent
from rangeland.job_group.lease import GroupLease
from rangeland.landing.execution.final_log_check import LogsChanged
from rangeland.landing.execution.plan_settings import look_up_plan_settings
from rangeland.landing.execution.shared_reader_interface import (
    PlanReceipts,
    PlanToRead,
    SharedReading,
)
from rangeland.landing.execution.slice_tasks import FinishedTasks
from rangeland.planning.file_proof import prove_files
from rangeland.planning.proof import prove_part
from rangeland.planning.slice_assignment import (
    PlanComplete,
    ReadSlices,
    SliceOwners,
    WaitForOthers,
    drop_done,
    member_step,
)
from rangeland.planning.slice_receipt import Receipt, TaskResult
from rangeland.progress_events import Progress

logger = logging.getLogger(__name__)

POLL_S = 1.0
STALLED_S = 600.0
"""How long to wait for drivers that own partitions but write nothing. A driver without executors,
for example, may never write although it still sends heartbeats. Then its slices are read here as
well."""


class SharedRead:
    """One plan, read by one driver of several."""

    def __init__(self, work: PlanToRead, lease: GroupLease, progress: Progress) -> None:
        self._with_others = False
        """Whether other members held partitions while this one worked."""
        self._work = work
        self._plan = work.plan
        self._writer = work.context.target.writer
        self._lease = lease
        self._progress = progress
        self._partitions = frozenset(s.partition for s in work.plan.slices)
        self._waits_for = ""
        self._last_parts = 0
        self._stalled_at = Deadline(STALLED_S)

    def read(self) -> SharedReading | LogsChanged:
        """Reads until the plan is complete, another driver has recorded its outcome, or its logs
        have changed."""
        while True:
            parts, outcome = self._handed_in()
            result = outcome or self._step(parts)
            if isinstance(result, LogsChanged):
                return result
            if result is not None:
                return SharedReading(result, self._with_others)

    def _handed_in(self) -> tuple[list[PartEvent], OutcomeEvent | None]:
        parts, outcome = self._writer.parts_so_far(self._plan)
        # A plan with a transform is read as a whole, so any parts were read without the transform.
        return ([] if self._work.is_transformed else parts), outcome

    def _step(self, parts: Sequence[PartEvent]) -> PlanReceipts | OutcomeEvent | LogsChanged | None:
        done = _receipts(parts)
        self._lease.join_rebalance()
        if self._lease.must_stop:  # a rebalance is due and the backend did not answer; try again
            self._wait()
            return None
        with self._lease.hold_assignment():
            slice_owners = self._lease.slice_owners(self._partitions)
            if self._is_stalled(len(parts)):
                slice_owners = SliceOwners.alone(slice_owners.me, self._partitions)
            self._note_others(slice_owners)
            step = member_step(
                self._plan.slices, done, slice_owners, whole=self._work.is_transformed
            )
            if isinstance(step, ReadSlices):
                results, error = self._read_slices(step, done)
        if isinstance(step, PlanComplete):
            return self._receipts_of_all(parts, [])
        if isinstance(step, WaitForOthers):
            self._wait(step.describe(slice_owners))
            return None
        if self._work.is_transformed and results:
            return self._receipts_of_all([], results)
        result = self._hand_in(results)
        if result is None and error is not None:
            raise error
        return result

    def _is_stalled(self, parts: int) -> bool:
        if parts != self._last_parts:
            self._last_parts = parts
            self._stalled_at = Deadline(STALLED_S)
        return self._stalled_at.has_passed

    def _note_others(self, slice_owners: SliceOwners) -> None:
        if any(owner != slice_owners.me for owner in slice_owners.owners.values()):
            self._with_others = True

    def _read_slices(self, step: ReadSlices, done: dict[int, Receipt]) -> FinishedTasks:
        self._waits_for = ""
        before = {index: r.until_offset - r.from_offset for index, r in done.items()}
        settings = look_up_plan_settings(self._work.context, self._plan)
        finished = self._work.tasks.read_until_stopped(
            self._plan, settings, step.slices, self._must_stop, before
        )
        self._stalled_at = Deadline(STALLED_S)  # the wait for other drivers starts now
        return finished

    def _must_stop(self) -> bool:
        if not self._lease.must_stop:
            return False
        if not self._work.is_transformed:
            return True
        # Stopping would lose everything that was read, so join the rebalance while reading, and
        # stop only if another driver owns the plan now.
        self._lease.join_rebalance()
        slice_owners = self._lease.slice_owners(self._partitions)
        return not slice_owners.reads(self._plan.slices[0].partition)

    def _wait(self, what: str = "") -> None:
        if what and what != self._waits_for:
            self._waits_for = what
            self._progress.step(what)
        time.sleep(POLL_S)

    # --- parts and the whole --------------------------------------------------------------

    def _hand_in(
        self, results: Sequence[TaskResult]
    ) -> PlanReceipts | OutcomeEvent | LogsChanged | None:
        """Writes the slices read here as a part of the plan, unless its logs have changed. Returns
        what all drivers have read if nothing is missing, or the outcome if there is one."""
        while True:
            parts, outcome = self._handed_in()
            if outcome is not None:
                return outcome
            done = _receipts(parts)
            kept = drop_done(results, done)
            receipts = {r.slice_index: r for result in kept for r in result.receipts}
            if len(done) + len(receipts) == len(self._plan.slices):
                return self._receipts_of_all(parts, kept)
            if not kept:
                return None
            files = self._work.tasks.files_of(self._plan, kept)
            # A part that does not add up, or that is from other logs, would block the plan forever.
            prove_part(self._plan, receipts)
            prove_files(self._plan, receipts, files, are_transformed=self._work.is_transformed)
            before = self._work.before
            if (changed := self._work.find_change(before, receipts.values())) is not None:
                return changed
            self._progress.step(f"handing in {len(receipts)} slices")
            part = (self._lease.member_id, len(parts) + 1)
            if self._writer.append_part(self._plan, *part, kept, files, before.fingerprints):
                logger.info("Handed in part %d of plan %s", part[1], self._plan.id)
                return None

    def _receipts_of_all(
        self, parts: Sequence[PartEvent], results: Sequence[TaskResult]
    ) -> PlanReceipts | LogsChanged:
        """These parts and results, combined, unless the logs have changed."""
        receipts = _receipts(parts)
        receipts |= {r.slice_index: r for result in results for r in result.receipts}
        files = [file for part in parts for file in part.files]
        files += self._work.tasks.files_of(self._plan, results)
        before = replace(self._work.before, parts=tuple(part.read for part in parts))
        changed = self._work.find_change(before, receipts.values())
        return changed or PlanReceipts(receipts, files)


def _receipts(parts: Sequence[PartEvent]) -> dict[int, Receipt]:
    return {receipt.slice_index: receipt for part in parts for receipt in part.receipts}
