"""Where a job stands while other drivers prepare and commit, over Delta in a few lines."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rangeland.cluster_access.job_survey import survey_of
from rangeland.delta.ledger.event_codec import SCHEMA, missing_columns_sql
from rangeland.delta.ledger.events import OutcomeEvent
from rangeland.delta.stores.store_access import StoreSettings
from rangeland.delta.table_metadata import CommitMetadata
from rangeland.delta.table_schema.table_constraints import RecordPlace, TableConstraint
from rangeland.delta.transaction_log.table_snapshot import (
    AlreadyCommitted,
    CommitRequest,
    Committed,
    NotReady,
)
from rangeland.errors import (
    BadRecord,
    Conflict,
    Damage,
    DamagedLog,
    RangeLost,
    StorageFailed,
    TableRefused,
)
from rangeland.job import Job
from rangeland.landing.execution import constraint_check
from rangeland.landing.execution.committer import PlanCommitter
from rangeland.landing.execution.final_log_check import FinalLogCheck, LogsBefore, LogsChanged
from rangeland.landing.execution.shared_reader_interface import (
    PlanReceipts,
    PlanToRead,
    SharedReading,
)
from rangeland.landing.execution.spark_plan_reader import SparkPlanReader
from rangeland.landing.landing_context import LandingContext
from rangeland.landing.plan_surveys import PlanSurveys
from rangeland.landing.target import table_location
from rangeland.landing.target import target_schema as schema_module
from rangeland.landing.target.landing_target import LandingTarget, open_target
from rangeland.loss import Action, DecidedLoss, Loss, LossKind
from rangeland.model import Counts, DataFile, Isolation, Partition, Range, Slice
from rangeland.planning.incarnation import LogMark
from rangeland.planning.loss_errors import range_lost_error
from rangeland.planning.plan import Plan, PlanId
from rangeland.planning.plan_kind import PlanKind
from rangeland.planning.proof import prove
from rangeland.planning.retention_risk import ReadSpeed
from rangeland.planning.slice_receipt import Receipt, WrittenFile
from rangeland.planning.table_audit import ReplacedRange
from rangeland.progress_events import NoProgress, Progress
from tests.fakes.landing import landing_context
from tests.unit.test_ledger_lost_responses import TableInMemory, Version

P0 = Partition("orders", 0)
APP = "rangeland/orders"


class LakeInMemory:
    """Stands for the kernel over any number of tables. ``looking`` is called once, before
    the next look at the path it is for."""

    def __init__(self) -> None:
        self.tables: dict[str, TableInMemory] = {}
        self.looking: tuple[str, Callable[[], None]] | None = None

    def resolve(self, path: str) -> str:
        return path

    def storage(self, path: str) -> StoreSettings:
        return StoreSettings(path)

    def load(self, path: str) -> Version | None:
        if self.looking is not None and self.looking[0] == path:
            (_, act), self.looking = self.looking, None
            act()
        return self.tables[path].load(path) if path in self.tables else None

    def create(self, path: str, *about: object) -> Version:
        table = self.tables.setdefault(path, TableInMemory())
        return table.load(path) or table.create(path)

    def commit(
        self,
        snapshot: Version,
        request: CommitRequest,
        is_ready: Callable[[], bool] = lambda: True,
    ) -> Committed | AlreadyCommitted | NotReady:
        if not is_ready():
            return NotReady()
        return self.tables[snapshot.path].commit(snapshot, request)

    def commits(self, path: str, since: int) -> list[CommitMetadata]:
        """All that are there now, whichever version was read before."""
        versions = self.tables[path].versions[since:]
        return [CommitMetadata(v.version, 0, "WRITE", v.transactions) for v in versions]


@pytest.fixture
def lake(monkeypatch: pytest.MonkeyPatch) -> LakeInMemory:
    made = LakeInMemory()
    monkeypatch.setattr(table_location, "DeltaKernel", lambda spark: made)
    return made


class Drivers:
    """Targets of one job's table, each as another driver has it."""

    def __init__(self, lake: LakeInMemory, path: str) -> None:
        source = {"servers": ["b:1"], "topics": ["orders"]}
        document = {"job": "orders", "source": source, "sink": {"table": path}}
        self.job = Job.parse(json.dumps(document))
        self.path = path
        lake.create(path)
        lake.create(f"{path}/_rangeland/ledger")

    def another(self) -> LandingTarget:
        return open_target(None, self.job)


@pytest.fixture
def drivers(lake: LakeInMemory, tmp_path: Path) -> Drivers:
    return Drivers(lake, str(tmp_path / "orders"))


def plan(sequence: int = 1, first: int = 0, until: int = 100, **more: Any) -> Plan:
    return Plan(
        "orders",
        more.pop("application", APP),
        sequence,
        "kafka",
        Isolation.READ_COMMITTED,
        (Range(P0, first, until, "id"),),
        (Slice(0, P0, first, until, topic_id="id"),),
        checkpoint={P0: LogMark(until, "id")},
        **more,
    )


def land_until_30(target: LandingTarget, of: Plan, *files: WrittenFile) -> None:
    held = DecidedLoss(P0, 30, 100, LossKind.CORRUPT, "its checksum is wrong", action=Action.HOLD)
    receipts = {0: Receipt(0, P0, 0, 30, Counts(landed=30), losses=(held,))}
    prepared = target.writer.prepare_outcome(of, prove(of, receipts), files, receipts)
    assert prepared.is_mine
    target.writer.commit_outcome(prepared.outcome)


def columns_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    lacking = "rangeland.delta.ledger.ledger_table.Ledger.missing_columns_sql"
    monkeypatch.setattr(lacking, lambda self: [])


@pytest.mark.parametrize("application", [APP, f"{APP}/backfill/0123"])
def test_what_is_landed_between_two_looks_counts_with_what_it_has_held_back(
    lake: LakeInMemory, drivers: Drivers, monkeypatch: pytest.MonkeyPatch, application: str
) -> None:
    columns_are_there(monkeypatch)
    first, entered = drivers.another(), plan()
    assert first.writer.enter(entered, [])
    second = drivers.another()
    # The second has looked at the ledger, and the table comes next.
    lake.looking = (drivers.path, lambda: land_until_30(first, entered))
    second.ledger.refresh()
    assert lake.looking is None
    position = second.history.position(application)
    assert position.checkpoint[P0].until_offset == 30
    assert position.covered.of(P0, "id") == [(0, 30)]
    assert second.history.unfinished_plans() == []
    assert second.writer.enter(plan(2, 30, 100, application=application), [])


def test_a_plan_that_is_landed_and_never_gets_an_outcome_ends_the_looking(
    lake: LakeInMemory, drivers: Drivers
) -> None:
    target = drivers.another()
    assert target.writer.enter(plan(), [])
    table = lake.tables[drivers.path]
    table.commit(table.versions[-1], CommitRequest(APP, 1))
    target.ledger.refresh()
    assert target.history.position(APP).sequence == 2


# --- a replacement that meets a loss -----------------------------------------------------------


class UnchangedLogs(FinalLogCheck):
    """There is no broker."""

    def logs_before(self, settings: object, plan: Plan, *more: object) -> LogsBefore:
        return LogsBefore(plan)

    def find_change(self, before: LogsBefore, receipts: object) -> None: ...


class Failing(SparkPlanReader):
    """Reads nothing: its log has damage at 40, or has lost what the receipts say."""

    error: Exception | None = None
    receipts: dict[int, Receipt]
    files: tuple[WrittenFile, ...] = ()

    def __init__(self, *about: Any) -> None:
        super().__init__(*about)
        self._tasks = cast(Any, self)
        self.log_check = UnchangedLogs(self._context.job, lambda plan: cast(Any, None), list)

    def read_all(self, *_: object, is_new: bool) -> Any:
        if self.error is not None:
            raise self.error
        return self.receipts, self.files

    def read_shared(self, plan: Plan) -> SharedReading | LogsChanged | None:
        return None


class Sharing(Failing):
    """Reads as ``Failing``, but for plans that a group reads."""

    def read_shared(self, plan: Plan) -> SharedReading | LogsChanged | None:
        return SparkPlanReader.read_shared(self, plan)


def context_of(target: LandingTarget, progress: Progress) -> LandingContext:
    job = target.writer._job
    surveys = PlanSurveys(job, target.history, progress, survey_of, ReadSpeed())
    return landing_context(target, job, surveys=surveys, progress=progress)


def reading_of(target: LandingTarget, progress: Progress | None = None) -> Failing:
    said = progress or NoProgress()
    return Failing(context_of(target, said), lambda: None)


def finisher_of(reading: SparkPlanReader) -> PlanCommitter:
    return PlanCommitter(reading._context, reading)


DAMAGED = BadRecord("bad", why="its checksum is wrong", damage=Damage(40), log=DamagedLog(P0))
EXPIRED = range_lost_error([Loss(P0, 0, 40, LossKind.EXPIRED, "it begins at 40")])


@pytest.mark.parametrize("error", [DAMAGED, EXPIRED, None])
def test_a_replacement_that_meets_a_loss_ends_and_is_in_nobodys_way(
    drivers: Drivers, monkeypatch: pytest.MonkeyPatch, error: Exception | None
) -> None:
    columns_are_there(monkeypatch)
    target = drivers.another()
    application = f"{APP}/replace/0123"
    replacing = plan(application=application, kind=PlanKind.REPLACE)
    assert target.writer.enter(replacing, [])
    reading = reading_of(target)
    reading.error = error
    skipped = (
        Loss(P0, 40, 50, LossKind.CORRUPT, "its checksum is wrong").with_action(Action.SKIP),
    )
    counts = Counts(landed=90, lost=10)
    reading.receipts = {0: Receipt(0, P0, 0, 100, counts, losses=skipped)}
    reading.files = (WrittenFile(DataFile("rows.parquet", 4, 90, "{}", 1)),)
    with pytest.raises((RangeLost, BadRecord)):
        finisher_of(reading).finish_new(replacing)
    target.ledger.refresh()
    assert target.history.unfinished_plans() == []
    assert target.history.position(APP).covered.of(P0, "id") == []
    (loss,) = target.history.losses(PlanId(application, 1))
    assert (loss.loss.action, loss.plan_hash) == ("fail", replacing.hash)
    assert target.writer.enter(plan(), [])


@pytest.mark.parametrize("error", [DAMAGED, EXPIRED])
def test_a_replacement_that_another_driver_gives_up_does_not_end_it(
    drivers: Drivers, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    columns_are_there(monkeypatch)
    target = drivers.another()
    replacing = plan(application=f"{APP}/replace/0123", kind=PlanKind.REPLACE)
    assert target.writer.enter(replacing, [])
    target.ledger.refresh()
    (left,) = target.history.unfinished_plans()
    reading = reading_of(target)
    reading.error = error
    done = finisher_of(reading).finish_entered(left)
    assert (done.outcome.ranges, done.recovered) == ((), True)
    target.ledger.refresh()
    assert target.history.unfinished_plans() == []


def test_a_replacement_that_was_given_up_and_not_landed_takes_no_rows(
    drivers: Drivers, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns_are_there(monkeypatch)
    target = drivers.another()
    replacing = plan(application=f"{APP}/replace/0123", kind=PlanKind.REPLACE)
    assert target.writer.enter(replacing, [])
    target.writer.give_up(replacing, [])
    target.ledger.refresh()
    (left,) = target.history.unfinished_plans()
    done = finisher_of(reading_of(target)).finish_entered(left)
    assert (done.outcome.ranges, done.landed.is_new) == ((), True)
    target.ledger.refresh()
    assert target.history.unfinished_plans() == []


def test_a_replacement_that_fails_lands_what_another_driver_has_prepared_meanwhile(
    drivers: Drivers, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns_are_there(monkeypatch)
    target, other = drivers.another(), drivers.another()
    replacing = plan(application=f"{APP}/replace/0123", kind=PlanKind.REPLACE)
    assert target.writer.enter(replacing, [])
    theirs = whole_reading(drivers, other, "theirs.parquet")
    finisher = finisher_of(whole_reading(drivers, target, "mine.parquet"))
    tried: list[int] = []

    def land(_plan: Plan, outcome: OutcomeEvent) -> Any:
        tried.append(outcome.attempt)
        if outcome.attempt:
            return target.writer.commit_outcome(outcome)
        other.ledger.refresh()
        proved = prove(replacing, theirs.receipts)
        other.writer.prepare_outcome(
            replacing, proved, theirs.files, theirs.receipts, earlier_outcome=outcome
        )
        raise StorageFailed("the table's file old.parquet cannot be read")

    monkeypatch.setattr(target.table, "gone_files", lambda: [SimpleNamespace(path="old.parquet")])
    fake = SimpleNamespace(
        check_rows_inside=lambda *_: None,
        unfit=lambda *_: None,
        differences=lambda _, outcome: ReplacedRange(same=100, changed=outcome.attempt),
        commit_outcome=land,
    )
    finisher._replacement = finisher._outcomes._replacement = cast(Any, fake)
    done = finisher.finish_new(replacing)
    assert (tried, done.landed.is_new, done.outcome.attempt) == ([0, 1], True, 1)
    assert done.replaced == ReplacedRange(same=100, changed=1), (
        "of the rows that landed, not of each try"
    )
    assert [entry.file.path for entry in done.outcome.files] == ["theirs.parquet"]


class Steps(NoProgress):
    def __init__(self) -> None:
        self.said: list[str] = []

    def step(self, text: str) -> None:
        self.said.append(text)


@pytest.mark.parametrize(("count", "said"), [(1, "committing 1 file"), (2, "committing 2 files")])
def test_files_are_counted_as_people_do(drivers: Drivers, count: int, said: str) -> None:
    target, steps = drivers.another(), Steps()
    assert target.writer.enter(plan(), [])
    reading = reading_of(target, steps)
    reading.receipts = {0: Receipt(0, P0, 0, 100, Counts(landed=100))}
    names = [f"{number}.parquet" for number in range(count)]
    for name in names:
        (Path(drivers.path) / name).write_bytes(b"rows")
    rows = 100 // count
    reading.files = tuple(WrittenFile(DataFile(name, 4, rows, "{}", 1)) for name in names)
    finisher_of(reading).finish_new(plan())
    assert said in steps.said


def test_files_that_another_driver_landed_and_somebody_deleted_since_are_not_read_again(
    drivers: Drivers, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns_are_there(monkeypatch)
    target, other = drivers.another(), drivers.another()
    assert target.writer.enter(plan(), [])
    reading = whole_reading(drivers, target, "rows.parquet")
    record = target.writer.prepare_outcome

    def recorded(*about: Any, **more: Any) -> Any:
        found = record(*about, **more)
        other.ledger.refresh()
        other.writer.commit_outcome(found.outcome)
        (Path(drivers.path) / "rows.parquet").unlink()
        return found

    monkeypatch.setattr(target.writer, "prepare_outcome", recorded)
    done = finisher_of(reading).finish_new(plan())
    assert (done.landed.is_new, done.outcome.attempt) == (False, 0)
    assert other.ledger.view.outcome(PlanId(APP, 1)) == done.outcome


@pytest.fixture
def refused_rows(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The files with a row that the table's constraint does not allow."""
    constraint = TableConstraint("small", "offset < 9", "CHECK (offset < 9)")
    refused: set[str] = set()

    def first_violation(paths: list[str], *_: object) -> tuple[TableConstraint, RecordPlace] | None:
        place = RecordPlace(P0, 9)
        return (constraint, place) if refused & set(paths) else None

    def frame(spark: object, path: str, files: Sequence[DataFile], schema: str) -> list[str]:
        return [file.path for file in files]

    monkeypatch.setattr(schema_module.TargetSchema, "constraints", lambda self: (constraint,))
    monkeypatch.setattr(constraint_check, "prepared_frame", frame)
    monkeypatch.setattr(constraint_check, "first_violation", first_violation)
    return refused


def whole_reading(drivers: Drivers, target: LandingTarget, name: str) -> Failing:
    reading = reading_of(target)
    reading.receipts = {0: Receipt(0, P0, 0, 100, Counts(landed=100))}
    (Path(drivers.path) / name).write_bytes(b"rows")
    reading.files = (WrittenFile(DataFile(name, 4, 100, "{}", 1)),)
    return reading


def test_rows_that_a_constraint_refuses_get_no_outcome(
    drivers: Drivers, refused_rows: set[str]
) -> None:
    target = drivers.another()
    assert target.writer.enter(plan(), [])
    reading = whole_reading(drivers, target, "bad.parquet")
    refused_rows.add("bad.parquet")
    with pytest.raises(TableRefused, match="orders/0 at offset 9 violates the constraint small"):
        finisher_of(reading).finish_new(plan())
    target.ledger.refresh()
    (left,) = target.history.unfinished_plans()
    assert left.outcome is None


class Gathering:
    """Stands for a group whose drivers have handed in all of a plan."""

    def __init__(self, receipts: dict[int, Receipt], files: Sequence[WrittenFile]) -> None:
        self.receipts, self.files = receipts, files

    def __call__(self, work: PlanToRead) -> SharedReading:
        return SharedReading(PlanReceipts(self.receipts, self.files), with_others=True)


def sharing(drivers: Drivers, target: LandingTarget, name: str) -> Sharing:
    alone = whole_reading(drivers, target, name)
    group = Gathering(alone.receipts, alone.files)
    reading = Sharing(context_of(target, NoProgress()), lambda: group)
    reading.receipts, reading.files = alone.receipts, alone.files
    return reading


def test_a_shared_plan_whose_rows_violate_a_constraint_gets_no_outcome(
    drivers: Drivers, refused_rows: set[str]
) -> None:
    target = drivers.another()
    assert target.writer.enter(plan(), [])
    reading = sharing(drivers, target, "bad.parquet")
    refused_rows.add("bad.parquet")
    with pytest.raises(TableRefused, match="orders/0 at offset 9 violates the constraint small"):
        finisher_of(reading).finish_new(plan())
    target.ledger.refresh()
    (left,) = target.history.unfinished_plans()
    assert left.outcome is None


def test_a_shared_plan_whose_rows_a_constraint_allows_lands(
    drivers: Drivers, refused_rows: set[str]
) -> None:
    target = drivers.another()
    assert target.writer.enter(plan(), [])
    reading = sharing(drivers, target, "good.parquet")
    done = finisher_of(reading).finish_new(plan())
    assert (done.landed.is_new, done.is_shared) == (True, True)


@pytest.mark.parametrize(
    ("reading_with", "warnings"),
    [(whole_reading, ["another driver has read the same plan"]), (sharing, [])],
)
def test_the_outcome_that_was_recorded_first_counts_and_is_news_only_to_a_driver_that_reads_alone(
    drivers: Drivers,
    monkeypatch: pytest.MonkeyPatch,
    reading_with: Callable[[Drivers, LandingTarget, str], Failing],
    warnings: list[str],
) -> None:
    columns_are_there(monkeypatch)
    target, other = drivers.another(), drivers.another()
    assert target.writer.enter(plan(), [])
    theirs = whole_reading(drivers, other, "theirs.parquet")
    other.ledger.refresh()
    other.writer.prepare_outcome(
        plan(), prove(plan(), theirs.receipts), theirs.files, theirs.receipts
    )
    reading = reading_with(drivers, target, "mine.parquet")
    done = finisher_of(reading).finish_new(plan())
    assert [entry.file.path for entry in done.outcome.files] == ["theirs.parquet"]
    told = cast(Any, reading._context).warnings
    assert [text.partition(":")[0] for text in told] == warnings


def test_a_shared_plan_whose_parts_have_lost_files_is_read_again_before_constraints_are_checked(
    drivers: Drivers, refused_rows: set[str]
) -> None:
    target = drivers.another()
    assert target.writer.enter(plan(), [])
    reading = sharing(drivers, target, "lost.parquet")
    (Path(drivers.path) / "lost.parquet").unlink()
    refused_rows.add("lost.parquet")  # nobody reads it
    reading.files = whole_reading(drivers, target, "again.parquet").files
    done = finisher_of(reading).finish_new(plan())
    assert (done.landed.is_new, done.outcome.attempt) == (True, 1)
    assert [entry.file.path for entry in done.outcome.files] == ["again.parquet"]


def test_an_outcome_that_was_prepared_before_a_constraint_is_read_again(
    drivers: Drivers, refused_rows: set[str]
) -> None:
    target = drivers.another()
    assert target.writer.enter(plan(), [])
    old = whole_reading(drivers, target, "old.parquet")
    target.writer.prepare_outcome(plan(), prove(plan(), old.receipts), old.files, old.receipts)
    refused_rows.add("old.parquet")
    target.ledger.refresh()
    (left,) = target.history.unfinished_plans()
    new = whole_reading(drivers, target, "new.parquet")
    done = finisher_of(new).finish_entered(left)
    assert (done.landed.is_new, done.outcome.attempt) == (True, 1)
    assert [entry.file.path for entry in done.outcome.files] == ["new.parquet"]


# --- a ledger of an earlier version ------------------------------------------------------------


class Altering:
    """Stands for Spark: adds the columns, or fails, having added them or not."""

    def __init__(self) -> None:
        self.lacking = missing_columns_sql(SCHEMA.names[:-3])
        self.asked: list[str] = []
        self.error: Exception | None = None
        self.adds = True

    def sql(self, text: str) -> None:
        self.asked.append(text)
        if self.adds:
            self.lacking = []
        if self.error is not None:
            raise self.error


@pytest.fixture
def old_ledger(
    drivers: Drivers, lake: LakeInMemory, monkeypatch: pytest.MonkeyPatch
) -> tuple[LandingTarget, Altering]:
    spark = Altering()
    monkeypatch.setattr(
        "rangeland.delta.ledger.ledger_table.Ledger.missing_columns_sql", lambda self: spark.lacking
    )
    return open_target(spark, drivers.job), spark


class Locked:
    """A lock that another driver has held, and what that one has done."""

    def __init__(self, until_then: Callable[[], None]) -> None:
        self._until_then = until_then

    def __call__(self, path: str) -> Locked:
        return self

    def __enter__(self) -> None:
        self._until_then()

    def __exit__(self, *about: object) -> None: ...


LOSS = [DecidedLoss(P0, 0, 40, LossKind.EXPIRED, "it begins at 40", action=Action.FAIL)]


def test_a_ledger_gets_its_new_columns_from_one_driver(
    old_ledger: tuple[LandingTarget, Altering], monkeypatch: pytest.MonkeyPatch
) -> None:
    target, spark = old_ledger
    monkeypatch.setattr(
        "rangeland.landing.target.target_ledger.lock_table", Locked(lambda: spark.lacking.clear())
    )
    target.writer.record_losses(1, LOSS)
    assert (spark.asked, len(target.history.losses())) == ([], 1)


def test_columns_that_another_host_has_added_meanwhile_are_no_error(
    old_ledger: tuple[LandingTarget, Altering], monkeypatch: pytest.MonkeyPatch
) -> None:
    target, spark = old_ledger
    monkeypatch.setattr("rangeland.landing.target.target_ledger.lock_table", Locked(lambda: None))
    spark.error = RuntimeError("[FIELD_ALREADY_EXISTS] seen_at")
    target.writer.record_losses(1, LOSS)
    assert (len(spark.asked), len(target.history.losses())) == (1, 1)


def test_columns_that_cannot_be_added_are_an_error_of_ours(
    old_ledger: tuple[LandingTarget, Altering], monkeypatch: pytest.MonkeyPatch
) -> None:
    target, spark = old_ledger
    monkeypatch.setattr("rangeland.landing.target.target_ledger.lock_table", Locked(lambda: None))
    spark.error, spark.adds = RuntimeError("no such grant\n\tat Alter"), False
    with pytest.raises(Conflict, match="no such grant") as caught:
        target.writer.record_losses(1, LOSS)
    assert caught.value.facts["columns"] == list(SCHEMA.names[-3:])
