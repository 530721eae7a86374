"""The table a job lands in, and the ledger beside it, as one thing to ask.

It knows where the table is, whether it is there, how rows fit into it, what the ledger says
about this job, and which plans still have to be finished. It enters plans and lands
outcomes through ``delta``; it reads no log and decides no ranges.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import pyarrow as pa

from rangeland.delta import commit
from rangeland.delta.entries import FileEntry, OutcomeEntry, PartEntry, PlanEntry, RangeEntry
from rangeland.delta.facts import AddedFile, Layout, StoreKind, TableFacts
from rangeland.delta.files import strangers_in
from rangeland.delta.fit import fit, new_table
from rangeland.delta.kernel import Kernel, Snapshot
from rangeland.delta.ledger import Ledger
from rangeland.delta.storage import StoreSettings
from rangeland.errors import Bug, Conflict, TableRefused
from rangeland.job import Job
from rangeland.model import DataFile, Partition, TaskResult
from rangeland.planning.audit import Replaced
from rangeland.planning.coverage import Coverage
from rangeland.planning.draft import Standing
from rangeland.planning.plan import Plan, RangeOutcome
from rangeland.spark.names import LEDGER_SUFFIX, literal, quoted
from rangeland.spark.offsets import has_rows, table_frame
from rangeland.spark.swap import compare, condition, prepared_frame, swap


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A plan that is in the ledger and not in the table. ``outcome`` is set once prepared."""

    plan: Plan
    table_version: int | None
    outcome: OutcomeEntry | None


class Target:
    """See the head of this file. Reads are of the moment of the last ``refresh``."""

    def __init__(self, spark: Any, job: Job) -> None:
        self._spark = spark
        self._job = job
        self.kernel = Kernel(spark)
        self.name = job.sink.table
        self._snapshot: Snapshot | None = None
        self._ledger: Ledger | None = None
        self._entered = 0
        self.path = self._locate()
        self.refresh()

    def _locate(self) -> str | None:
        """The table's URI; None for a catalog table that is not there yet."""
        if not self._job.sink.is_catalog_name:
            return self.kernel.resolve(self.name)
        name = quoted(self.name)
        if not self._spark.catalog.tableExists(name):
            return None
        detail = self._spark.sql(f"DESCRIBE DETAIL {name}").select("location").first()
        return str(detail.location)

    def refresh(self) -> None:
        """The next answers are of now. The ledger is looked at before the table: what the
        table says it has landed is then never older than what the ledger knows of."""
        self._ledger = self._look_for_ledger()
        self._entered = 0 if self._ledger is None else self._ledger.entered()
        self._snapshot = self.kernel.load(self.path) if self.path else None

    def _look_for_ledger(self) -> Ledger | None:
        if self.path is None:
            return None
        ledger = Ledger(self.kernel, self.path)
        return ledger if ledger.exists() else None

    @property
    def facts(self) -> TableFacts | None:
        """None where there is no table yet."""
        return None if self._snapshot is None else self._snapshot.facts

    @property
    def version(self) -> int | None:
        return None if self._snapshot is None else self._snapshot.version

    # --- rows -------------------------------------------------------------------------

    def layout(self, rows: pa.Schema) -> Layout:
        """How these rows are written. Raises TableRefused where they do not fit."""
        if self._snapshot is None or self._snapshot.is_own:
            # A table that was made here fits: that its facts say so is held by a test.
            return new_table(rows, self._job.sink.partition_by).layout
        return fit(self._snapshot.facts, rows, self._job.sink.partition_by).layout

    def notes(self, rows: pa.Schema) -> tuple[str, ...]:
        """What a person should know about how these rows fit."""
        facts, partition_by = self.facts, self._job.sink.partition_by
        found = () if facts is None else fit(facts, rows, partition_by).notes
        store = None if self.path is None else self.kernel.store(self.path)
        return (*found, *([store.note] if store and store.kind is StoreKind.SINGLE_DRIVER else []))

    def warning(self) -> str:
        """What a run should say each time: nobody has yet decided who may write here."""
        store = None if self.path is None else self.kernel.store(self.path)
        undecided = store and store.kind is StoreKind.SINGLE_DRIVER and not store.log_store
        return store.note if store and undecided else ""

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
        if self._job.sink.is_catalog_name:
            self._name_ledger(self._ledger)

    def refuse_strangers(self) -> None:
        """Before anything is written: other people's files are no place for a table."""
        if self.path is None:
            return
        if strangers := strangers_in(self.kernel.storage(self.path)):
            raise TableRefused(
                f"the folder {self.name} is no Delta table and not empty",
                why=f"it holds {', '.join(strangers[:3])}",
                do="name a new folder in sink.table, or make a Delta table of this one first",
            )

    def _table(self, path: str, rows: pa.Schema) -> Snapshot | None:
        if self._snapshot is not None:
            return self._snapshot
        made = new_table(rows, self._job.sink.partition_by)
        created = self.kernel.create(path, made.schema_json, made.partition_columns)
        if not created.is_own:  # somebody was first: theirs has to fit before a plan is entered
            fit(created.facts, rows, self._job.sink.partition_by)
        return created

    def _opened_ledger(self, path: str) -> Ledger:
        return self._ledger or Ledger(self.kernel, path).open_or_create()

    def _create_in_catalog(self, rows: pa.Schema) -> None:
        from pyspark.sql.types import StructType

        made = new_table(rows, self._job.sink.partition_by)
        schema = StructType.fromJson(json.loads(made.schema_json))
        writer = self._spark.createDataFrame([], schema).writeTo(quoted(self.name)).using("delta")
        if made.partition_columns:
            writer = writer.partitionedBy(*[_column(name) for name in made.partition_columns])
        try:
            writer.create()
        except Exception as error:
            if not self._spark.catalog.tableExists(quoted(self.name)):
                raise Conflict(
                    f"the table {self.name} could not be created", why=str(error)[:300]
                ) from error
        self.path = self._locate()

    def _name_ledger(self, ledger: Ledger) -> None:
        """In a catalog the ledger has a name of its own beside the table's."""
        self._spark.sql(
            f"CREATE TABLE IF NOT EXISTS {quoted(self.name, LEDGER_SUFFIX)} "
            f"USING DELTA LOCATION {literal(ledger.path)}"
        )

    # --- where the job stands -----------------------------------------------------------

    def landed_sequence(self, application: str) -> int:
        """The last sequence of an application that is in the table, 0 for none."""
        if self._snapshot is None:
            return 0
        return self._snapshot.transaction_version(application) or 0

    def standing(self, application: str) -> Standing:
        """Where the next plan of an application begins: always after a ``refresh``."""
        sequence = self.landed_sequence(application)
        newest = self._plan_entry(
            self._job.application, self.landed_sequence(self._job.application)
        )
        checkpoint = _plan_of(newest).checkpoint if newest is not None else {}
        return Standing(dict(checkpoint), self._coverage(), sequence + 1)

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
            if self.landed_sequence(application) >= sequence:
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

    def dead_files(self) -> list[AddedFile]:
        """The files that the table names and its store no longer has. Those that a shallow
        clone shares with another table are taken to be there."""
        if self._snapshot is None:
            return []
        own = [f for f in self._snapshot.files() if ":/" not in f.path]
        asked = [DataFile(f.path, f.size_bytes, 0, "", f.modified_at_ms) for f in own]
        gone = set(commit.missing_files(self.storage(), asked))
        return [f for f in own if f.path in gone]

    def checkpoints(self, application: str, limit: int) -> set[tuple[Partition, int]]:
        """Where the newest plans of an application begin and end: a group may have stood at
        either, since a first run may begin where the group was."""
        if self._ledger is None:
            return set()
        plans = [_plan_of(entry) for entry in islice(self._ledger.plans(application), limit)]
        ends = {(p, mark.until_offset) for plan in plans for p, mark in plan.checkpoint.items()}
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

    # --- writing ------------------------------------------------------------------------

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
        self, plan: Plan, outcomes: Iterable[RangeOutcome], files: Iterable[FileEntry]
    ) -> tuple[OutcomeEntry, bool]:
        """Writes the outcome of a plan. The outcome that counts, and whether it is this one."""
        ledger = self._open_ledger()
        leaders = {s.partition: str(s.leader) for s in plan.slices if s.leader}
        mine = OutcomeEntry(
            application=plan.application,
            job=plan.job,
            sequence=plan.sequence,
            plan_hash=plan.hash,
            ranges=tuple(
                RangeEntry(
                    o.range,
                    o.counts,
                    o.leader or leaders.get(o.range.partition),
                    o.gaps,
                    o.in_bytes,
                )
                for o in outcomes
            ),
            files=tuple(files),
            written_at_ms=_now_ms(),
        )
        if ledger.prepare(mine):
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
        self, old: OutcomeEntry, outcomes: Iterable[RangeOutcome], files: Iterable[FileEntry]
    ) -> OutcomeEntry:
        """A new attempt in place of an outcome whose files are gone; the one that counts."""
        ledger = self._open_ledger()
        counts = tuple(
            RangeEntry(o.range, o.counts, o.leader or entry.leader, o.gaps, o.in_bytes)
            for o, entry in zip(outcomes, old.ranges, strict=True)
        )
        mine = replace(
            old,
            attempt=old.attempt + 1,
            ranges=counts,
            files=tuple(files),
            written_at_ms=_now_ms(),
        )
        if ledger.prepare(mine):
            return mine
        ledger.refresh()
        theirs = ledger.outcome(old.application, old.sequence)
        return theirs if theirs is not None else mine

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

    def storage(self) -> StoreSettings:
        """How the table's files are reached."""
        return self.kernel.storage(self._there())

    def missing(self, outcome: OutcomeEntry) -> tuple[str, ...]:
        """The paths of prepared files that are gone."""
        return commit.missing_files(self.storage(), [entry.file for entry in outcome.files])

    def differences(self, plan: Plan, outcome: OutcomeEntry) -> Replaced:
        """What putting this outcome in the place of the table's rows would change."""
        table, new, where = self._swap(plan, outcome)
        by_broker = any(r.partition.broker for r in plan.ranges)
        return compare(table.where(where), new, by_broker=by_broker)

    def has_rows_of(self, plan: Plan) -> bool:
        """True where the table has rows of a plan's ranges."""
        table = table_frame(self._spark, self._there())
        return has_rows(self._spark, table, condition(table, plan.ranges))

    def refuse_replace(self) -> None:
        """Raises TableRefused where rows of this table cannot be replaced: before a plan is
        entered that could never be finished."""
        if self._snapshot is None:
            return
        if self._snapshot.facts.configuration.get("delta.appendOnly", "").lower() == "true":
            raise TableRefused(
                f"rows of {self.name} cannot be replaced",
                why="its property delta.appendOnly is true",
                do="unset it, or land the range into another table",
            )
        table_frame(self._spark, self._there())

    def refuse_strays(self, plan: Plan, files: Sequence[FileEntry]) -> None:
        """Raises TableRefused where new rows lie outside the ranges that they are to replace:
        a transform has changed what names their offsets."""
        path = self._there()
        table = table_frame(self._spark, path)
        new = prepared_frame(self._spark, table, path, [entry.file for entry in files])
        inside = f"coalesce({condition(table, plan.ranges)}, false)"
        if strays := new.where(f"NOT ({inside})").count():
            raise TableRefused(
                f"{strays} of the new rows are not of the range that is to be replaced",
                why="the transform has changed their topic, partition or offset",
                do="let the transform keep these columns as they are",
            )

    def replace(
        self, plan: Plan, outcome: OutcomeEntry, since: int | None
    ) -> commit.Landed | commit.FilesMissing:
        """One commit that puts an outcome in the place of the table's rows of its ranges."""
        path, (application, sequence) = self._there(), (outcome.application, outcome.sequence)
        anew = self.landed_sequence(application) < sequence
        if anew:
            if gone := self.missing(outcome):
                return commit.FilesMissing(gone)
            _, new, where = self._swap(plan, outcome)
            with self.kernel.locked(path):
                swap(new, path, where, (application, sequence))
            self._snapshot = self.kernel.load(path)
        version = commit.landed_at(self.kernel, path, application, sequence, since or 0)
        return commit.Landed(version, anew=anew)

    def _swap(self, plan: Plan, outcome: OutcomeEntry) -> tuple[Any, Any, str]:
        """The table, the new rows, and which of the table's they stand in for."""
        path = self._there()
        table = table_frame(self._spark, path)
        files = [entry.file for entry in outcome.files]
        return table, prepared_frame(self._spark, table, path, files), condition(table, plan.ranges)

    def _there(self) -> str:
        if self.path is None:
            raise Bug(f"an outcome is to be landed in {self.name}, which is not there")
        return self.path

    def _open_ledger(self) -> Ledger:
        if self._ledger is None:
            raise Bug(f"the ledger of {self.name} is not open")
        return self._ledger


def _plan_of(entry: PlanEntry) -> Plan:
    return Plan.from_json(json.loads(entry.document))


def _column(name: str) -> Any:
    from pyspark.sql.functions import col

    return col(name)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
