"""The table a job lands in, and the ledger and quarantine beside it, as one thing to ask.

It knows what the ledger says about this job, and which plans still have to be finished. It
enters plans and lands outcomes through ``delta``; it reads no log and decides no ranges.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import pyarrow as pa

from rangeland.delta import commit
from rangeland.delta.entries import (
    FileEntry,
    LossEntry,
    OutcomeEntry,
    PartEntry,
    PlanEntry,
    RangeEntry,
)
from rangeland.delta.facts import AddedFile
from rangeland.delta.ledger import Ledger
from rangeland.errors import Bug, Conflict
from rangeland.job import Job
from rangeland.landing.losing import given_up, losses_of, seen_losses
from rangeland.landing.table import TargetTable
from rangeland.model import DataFile, Partition, Receipt, TaskResult
from rangeland.planning.coverage import Coverage
from rangeland.planning.draft import Standing
from rangeland.planning.lives import Mark
from rangeland.planning.plan import Plan
from rangeland.planning.policy import Action, Loss
from rangeland.planning.proof import RangeOutcome
from rangeland.spark.names import LEDGER_SUFFIX, quoted_path


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A plan that is in the ledger and not in the table. ``outcome`` is set once prepared."""

    plan: Plan
    table_version: int | None
    outcome: OutcomeEntry | None


class Target(TargetTable):
    """See the head of this file. Reads are of the moment of the last ``refresh``."""

    def __init__(self, spark: Any, job: Job) -> None:
        super().__init__(spark, job)
        self._ledger: Ledger | None = None
        self._entered = 0
        self.refresh()

    def refresh(self) -> None:
        """The next answers are of now. The ledger is looked at before the table: what the
        table says it has landed is then never older than what the ledger knows of. An outcome
        may be prepared and committed between the two looks: then both are looked at again."""
        seen: set[tuple[str, int]] = set()
        while True:
            self._ledger = self._look_for_ledger()
            self._entered = 0 if self._ledger is None else self._ledger.entered()
            self.look_again()
            straddled = self._landed_without_outcome()
            if straddled <= seen:
                return
            seen |= straddled

    def _landed_without_outcome(self) -> set[tuple[str, int]]:
        """Plans that the table has landed and the ledger was seen to have no outcome of."""
        live = [] if self._ledger is None else self._ledger.live()
        return {(name, sequence) for name, sequence in live if self._has_landed(name, sequence)}

    def _has_landed(self, application: str, sequence: int) -> bool:
        return self.landed_sequence(application) >= sequence

    def _look_for_ledger(self) -> Ledger | None:
        if self.path is None:
            return None
        ledger = Ledger(self.kernel, self.path)
        return ledger if ledger.exists() else None

    def open_or_create(self, rows: pa.Schema) -> None:
        """Makes table and ledger where they are not there. This is no refresh: what was
        entered since the last one still makes ``enter`` say no."""
        if self.path is None:
            self._create_in_catalog(rows)
        path = self.path
        if path is None:
            raise Bug(f"the table {self.name} was created and has no location")
        if self._snapshot is None:
            self.refuse_strangers()
        # Two creations, each mostly waiting for the JVM and the store.
        with ThreadPoolExecutor(2) as both:
            table = both.submit(self._table, path, rows)
            ledger = both.submit(self._opened_ledger, path)
            self._snapshot = table.result()
            self._ledger = ledger.result()
        self._name(LEDGER_SUFFIX, self._ledger.path)

    def _opened_ledger(self, path: str) -> Ledger:
        return self._ledger or Ledger(self.kernel, path).open_or_create()

    # --- where the job stands ----------------------------------------------------------

    def standing(self, application: str) -> Standing:
        """Where the next plan of an application begins: always after a ``refresh``."""
        sequence = self.landed_sequence(application)
        newest = self._plan_entry(
            self._job.application, self.landed_sequence(self._job.application)
        )
        checkpoint = self._checkpoint(newest) if newest is not None else {}
        return Standing(checkpoint, self._coverage(), sequence + 1, self._held_at_first(checkpoint))

    def _held_at_first(self, checkpoint: Mapping[Partition, Mark]) -> frozenset[Partition]:
        """What the job's first run has held back, and none has landed since."""
        first = self.losses(self._job.application, 1) if checkpoint else []
        held = {loss.range.partition for loss in first if loss.action == Action.HOLD}
        return frozenset(held - checkpoint.keys())

    def _checkpoint(self, landed: PlanEntry) -> dict[Partition, Mark]:
        """Where a landed plan has brought its job: what its outcome holds stays where it is."""
        marks = dict(_plan_of(landed).checkpoint)
        for loss in self.losses(landed.application, landed.sequence):
            mark = marks.get(loss.range.partition)
            held = loss.action == Action.HOLD and loss.plan_hash
            if held and mark is not None and mark.until_offset > loss.range.from_offset:
                at, is_known = loss.range.from_offset, mark.epoch is not None
                marks[loss.range.partition] = replace(
                    mark, until_offset=at, epoch_is_later=is_known
                )
        return marks

    def losses(self, application: str = "", sequence: int = 0) -> list[LossEntry]:
        """What the ledger has of losses, of one plan or of all."""
        if self._ledger is None:
            return []
        if application and not self._ledger.has_losses(application, sequence):
            return []
        return self._ledger.losses(application, sequence)

    def _plan_entry(self, application: str, sequence: int) -> PlanEntry | None:
        if self._ledger is None or sequence <= 0:
            return None
        entry = self._ledger.plan(application, sequence)
        if entry is None:
            self._ledger.refresh()
            entry = self._ledger.plan(application, sequence)
        if entry is None:
            raise Conflict(
                f"the table says that {application} has landed {sequence}, and the ledger has "
                "no such plan",
                why="the ledger was deleted, or the table is a copy of another one",
                do="restore the folder _rangeland beside the table's files, or land under "
                "another job name",
            )
        return entry

    def _coverage(self) -> Coverage:
        if self._ledger is None:
            return Coverage()
        spans = self._ledger.coverage().landed
        landed: dict[tuple[Partition, str | None], list[tuple[int, int]]] = {}
        for partition, found in spans.items():
            for span in found:
                key = (partition, span.topic_id)
                landed.setdefault(key, []).append((span.from_offset, span.until_offset))
        return Coverage(landed)

    def unfinished(self) -> list[Unfinished]:
        """Plans of any job that are entered and not in the table, oldest first."""
        if self._ledger is None:
            return []
        found = []
        for application, sequence in self._ledger.recent():
            if self._has_landed(application, sequence):
                continue
            entry = self._ledger.plan(application, sequence)
            if entry is None:
                raise Bug(f"plan {application} {sequence} is named in the ledger and not there")
            outcome = self._ledger.outcome(application, sequence)
            found.append(Unfinished(_plan_of(entry), entry.table_version, outcome))
        return found

    def landed_plan(self, plan: Plan) -> Unfinished | None:
        """This very plan with its outcome, if it has been entered before and has one."""
        if self._ledger is None:
            return None
        outcome = self._ledger.outcome(plan.application, plan.sequence)
        if outcome is None or outcome.plan_hash != plan.hash:
            return None
        return Unfinished(plan, None, outcome)

    def restored(self) -> commit.Restored | None:
        """A RESTORE that may have taken back rows of this job since its newest plan."""
        if self._ledger is None or self._snapshot is None:
            return None
        newest = self._ledger.newest_of(self._job.job)
        if newest is None or newest.table_version is None:
            return None
        return commit.restored(self.kernel, self._snapshot, newest.table_version)

    def refuse_restored(self, found: commit.Restored) -> None:
        """Raises Conflict for rows that a RESTORE has taken back."""
        lost = ", ".join(f"{application} {sequence}" for application, sequence in found.lost)
        raise Conflict(
            f"the table {self.name} was restored to version {found.restored_to}",
            why=f"rows of these landings are gone: {lost}; the checkpoint is ahead of the data, "
            "and landing on top would leave a hole",
            do=f"restore the table to version {found.version - 1}, or land them again with "
            "`rangeland backfill JOB.yaml --missing`",
            restored_to=found.restored_to,
            at_version=found.version,
        )

    def landings(self) -> list[tuple[PlanEntry, OutcomeEntry]]:
        """All plans of all jobs that are in the table, in the order they were entered, each
        with its outcome. Raises Conflict where the table has rows and no ledger."""
        if self._ledger is None:
            raise Conflict(
                f"the table {self.name} has no ledger",
                why="nothing was landed in it by this library, or its folder _rangeland is gone",
                do="land something first, or restore the folder _rangeland",
            )
        sequences: dict[str, int] = {}
        found = []
        for plan, outcome in self._ledger.prepared():
            application = plan.application
            if application not in sequences:
                sequences[application] = self.landed_sequence(application)
            if plan.sequence <= sequences[application]:
                found.append((plan, outcome))
        return found

    def document(self, plan: PlanEntry) -> dict[str, Any]:
        """The whole plan of a ledger row, as JSON values."""
        document: dict[str, Any] = json.loads(plan.document)
        return document

    def checkpoints(self, application: str, limit: int) -> set[tuple[Partition, int]]:
        """Where the newest plans of an application begin and end: a group may have stood at
        either, since a first run may begin where the group was."""
        if self._ledger is None:
            return set()
        entries = list(islice(self._ledger.plans(application), limit))
        plans = [_plan_of(entry) for entry in entries]
        ends = {(p, m.until_offset) for e in entries for p, m in self._checkpoint(e).items()}
        ends |= {(p, mark.until_offset) for plan in plans for p, mark in plan.checkpoint.items()}
        return ends | {(r.partition, r.from_offset) for plan in plans for r in plan.ranges}

    def history(self, application: str, limit: int) -> list[OutcomeEntry]:
        """The newest outcomes of an application, newest first."""
        if self._ledger is None:
            return []
        found = []
        for outcome in self._ledger.outcomes(application):
            found.append(outcome)
            if len(found) == limit:
                break
        return found

    def pace(self, application: str, limit: int = 2) -> list[tuple[int, float]]:
        """(bytes of the log, seconds from plan to outcome) of the newest, newest first."""
        found = []
        for outcome in self.history(application, limit):
            plan = self._open_ledger().plan(application, outcome.sequence)
            if plan is not None:
                size = sum(entry.range.estimated_bytes for entry in outcome.ranges)
                found.append((size, (outcome.written_at_ms - plan.written_at_ms) / 1000))
        return found

    # --- writing -----------------------------------------------------------------------

    def enter(self, plan: Plan, unfinished: Sequence[Unfinished]) -> bool:
        """Enters a plan made on the standing of the last ``refresh``. False when another
        plan came first: then look again."""
        ledger = self._open_ledger()
        entry = PlanEntry(
            application=plan.application,
            job=plan.job,
            sequence=plan.sequence,
            plan_hash=plan.hash,
            ranges=tuple(RangeEntry(r) for r in plan.ranges),
            document=json.dumps(plan.to_json()),
            written_at_ms=_now_ms(),
            table_version=self.version,
        )
        left = [(u.plan.application, u.plan.sequence) for u in unfinished]
        return ledger.enter(entry, self._entered, left)

    def prepare(
        self,
        plan: Plan,
        outcomes: Iterable[RangeOutcome],
        files: Iterable[FileEntry],
        receipts: Mapping[int, Receipt],
    ) -> tuple[OutcomeEntry, bool]:
        """Writes the outcome of a plan, and its losses with it. The outcome that counts, and
        whether it is this one."""
        ledger = self._open_ledger()
        losses = self._with_columns(losses_of(plan, receipts, _now_ms()))
        leaders = {s.partition: str(s.leader) for s in plan.slices if s.leader}
        mine = _outcome(plan, outcomes, files, receipts, leaders)
        if ledger.prepare(mine, losses):
            return mine, True
        ledger.refresh()
        theirs = ledger.outcome(plan.application, plan.sequence)
        if theirs is None:
            raise Bug(f"the outcome of {plan.application} {plan.sequence} is there and unreadable")
        return theirs, False

    def handed_in(self, plan: Plan) -> tuple[list[PartEntry], OutcomeEntry | None]:
        """What drivers have read of a plan by now, and its outcome if it has one."""
        ledger = self._open_ledger()
        ledger.refresh()
        outcome = ledger.outcome(plan.application, plan.sequence)
        parts = [] if outcome is not None else ledger.parts(plan.application, plan.sequence)
        return parts, outcome

    def hand_in(
        self,
        plan: Plan,
        member: str,
        number: int,
        units: Iterable[TaskResult],
        files: Iterable[FileEntry],
    ) -> bool:
        """Writes a part of a plan, False where another has that number: then look again."""
        return self._open_ledger().hand_in(
            PartEntry(
                application=plan.application,
                job=plan.job,
                sequence=plan.sequence,
                plan_hash=plan.hash,
                number=number,
                member=member,
                receipts=tuple(receipt for unit in units for receipt in unit.receipts),
                files=tuple(files),
                written_at_ms=_now_ms(),
            )
        )

    def replace_outcome(
        self,
        old: OutcomeEntry,
        plan: Plan,
        outcomes: Iterable[RangeOutcome],
        files: Iterable[FileEntry],
        receipts: Mapping[int, Receipt],
    ) -> OutcomeEntry:
        """A new attempt in place of an outcome whose files are gone; the one that counts."""
        ledger = self._open_ledger()
        leaders = {entry.range.partition: entry.leader for entry in old.ranges}
        losses = self._with_columns(losses_of(plan, receipts, _now_ms(), old.attempt + 1))
        mine = replace(_outcome(plan, outcomes, files, receipts, leaders), attempt=old.attempt + 1)
        if ledger.prepare(mine, losses):
            return mine
        ledger.refresh()
        theirs = ledger.outcome(old.application, old.sequence)
        return theirs if theirs is not None else mine

    def give_up(self, plan: Plan, losses: Iterable[Loss], attempt: int = 0) -> OutcomeEntry:
        """Writes an outcome that lands nothing, with the losses that were met; the one that
        counts, which may be another driver's."""
        ledger = self._open_ledger()
        entries = self._with_columns(given_up(plan, losses, _now_ms(), attempt))
        mine = replace(_outcome(plan, (), (), {}, {}), attempt=attempt)
        if ledger.prepare(mine, entries):
            return mine
        ledger.refresh()
        theirs = ledger.outcome(plan.application, plan.sequence)
        return theirs if theirs is not None else mine

    def note(
        self,
        sequence: int,
        losses: Iterable[tuple[Loss, Action]],
        topic_ids: Mapping[Partition, str | None],
    ) -> None:
        """Writes down what was seen of losses beside any outcome, each once; nothing where no
        ledger is yet, since whoever is refused writes nothing."""
        if self._ledger is None:
            return
        name = (self._job.application, self._job.job, sequence)
        if entries := seen_losses(*name, losses, topic_ids, _now_ms()):
            self._ledger.refresh()
            self._ledger.note(self._with_columns(entries))

    def _with_columns(self, losses: list[LossEntry]) -> list[LossEntry]:
        """The same losses, once the ledger has columns for them: one made by an earlier version
        has not."""
        ledger = self._open_ledger()
        if losses and ledger.lacks():
            with self.kernel.locked(ledger.path):
                ledger.refresh()  # another driver may have added them until the lock was free
                self._add_columns(ledger)
            ledger.refresh()
        return losses

    def _add_columns(self, ledger: Ledger) -> None:
        lacking = ledger.lacks()
        if not lacking:
            return
        try:
            name = f"delta.{quoted_path(ledger.path)}"
            self._spark.sql(f"ALTER TABLE {name} ADD COLUMNS ({', '.join(lacking)})")
        except Exception as error:  # Spark has many classes for it, of Python and of Java
            ledger.refresh()
            if not ledger.lacks():
                return  # a driver on another host, which no lock holds back, was first
            raise Conflict(
                f"the ledger {ledger.path} could not be given the columns of losses",
                why=(str(error).strip().splitlines() or [type(error).__name__])[0][:300],
                do="see who else alters that table, then run again",
                columns=[column.split("`")[1] for column in lacking],
            ) from error

    def land(
        self, outcome: OutcomeEntry, since: int | None, dead: Sequence[AddedFile] = ()
    ) -> commit.Landed | commit.FilesMissing:
        """One commit for all files of an outcome; what was landed before stays so. ``dead``
        are files that the table names and its store has lost: it names them no longer."""
        table = self._snapshot or self.path
        if table is None:
            raise Bug(f"an outcome is to be landed in {self.name}, which is not there")
        files: list[DataFile] = [entry.file for entry in outcome.files]
        where = (self.kernel, table, outcome.application, outcome.sequence)
        return commit.land(*where, files, since or 0, dead)

    def _open_ledger(self) -> Ledger:
        if self._ledger is None:
            raise Bug(f"the ledger of {self.name} is not open")
        return self._ledger


def _outcome(
    plan: Plan,
    outcomes: Iterable[RangeOutcome],
    files: Iterable[FileEntry],
    receipts: Mapping[int, Receipt],
    leaders: Mapping[Partition, str | None],
) -> OutcomeEntry:
    """``leaders`` are named where nobody has told who served the last of a range."""
    return OutcomeEntry(
        application=plan.application,
        job=plan.job,
        sequence=plan.sequence,
        plan_hash=plan.hash,
        ranges=tuple(
            RangeEntry(
                o.range, o.counts, o.leader or leaders.get(o.range.partition), o.gaps, o.in_bytes
            )
            for o in outcomes
        ),
        files=tuple(files),
        written_at_ms=_now_ms(),
        kept=tuple(file for receipt in receipts.values() for file in receipt.kept),
    )


def _plan_of(entry: PlanEntry) -> Plan:
    return Plan.from_json(json.loads(entry.document))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
