"""What is redriven, and when: never more than a plan may hold."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest

from rangeland.cluster_settings import ClusterSettings
from rangeland.delta.ledger.events import LossEvent, OutcomeEvent, PlanEvent
from rangeland.delta.quarantine import quarantine_table as quarantine_module
from rangeland.delta.quarantine.quarantine_table import (
    FOLDER,
    IsWanted,
    Quarantine,
    QuarantinedBatch,
)
from rangeland.delta.quarantine.quarantine_writer import (
    RECORD,
    SCHEMA,
    QuarantineWriter,
    QuarantineWriterSettings,
)
from rangeland.delta.transaction_log.delta_kernel import DeltaKernel
from rangeland.errors import Conflict, StorageFailed
from rangeland.fetch.read_settings import ReadSettings
from rangeland.fetch.slice_chunks import LostChunk, ReadChunk
from rangeland.job.decode_section import Decode
from rangeland.landing import landing_steps
from rangeland.landing.landing_context import LandingContext
from rangeland.landing.special_plans import redrive
from rangeland.loss import Action, DamagedBytes, DecidedLoss, Loss, LossKind
from rangeland.model import (
    Address,
    Bounds,
    Counts,
    DataFile,
    Earliest,
    FromCheckpoint,
    Isolation,
    Latest,
    Leader,
    LogState,
    Partition,
    Range,
    Slice,
    Survey,
)
from rangeland.planning.bound_resolution import RangeRequest
from rangeland.planning.coverage import Coverage, coverage_of
from rangeland.planning.exact_ranges import draft_ranges_in_log
from rangeland.planning.job_position import JobPosition
from rangeland.planning.loss_errors import FailingLosses
from rangeland.planning.plan import Plan, PlanId
from rangeland.planning.plan_builder import PlanTerms
from rangeland.planning.plan_draft import PlanDraft
from rangeland.planning.plan_kind import PlanKind
from rangeland.planning.policy import Policy
from rangeland.planning.run_limits import Limits
from rangeland.planning.slice_receipt import Receipt
from rangeland.planning.slices import Slicing
from rangeland.results import QuarantinedRange, ReadFilter
from tests.fakes.landing import landing_context
from tests.unit.test_ledger_lost_responses import TableInMemory, Version

P0 = Partition("orders", 0)
APP = "rangeland/orders"
MIB = 1 << 20


def plan(*ranges: Range, sequence: int = 1) -> Plan:
    slices = (
        Slice(i, r.partition, r.from_offset, r.until_offset, topic_id=r.topic_id)
        for i, r in enumerate(ranges)
    )
    how = ("kafka", Isolation.READ_COMMITTED)
    return Plan("orders", APP, sequence, *how, tuple(ranges), tuple(slices))


def ten(first: int, topic_id: str = "id") -> Range:
    return Range(P0, first, first + 10, topic_id)


class Keeping:
    """Stands for a target with batches in quarantine, all of one plan."""

    def __init__(self, *batches: QuarantinedBatch) -> None:
        self.kept = batches
        self.read: list[Range] = []

    def batches(self, wanted: IsWanted) -> Iterator[QuarantinedBatch]:
        for batch in self.kept:
            if wanted(batch.plan_id, batch.range):
                self.read.append(batch.range)
                yield batch

    def losses(self, plan_id: PlanId | None = None) -> list[LossEvent]:
        return [
            LossEvent(
                *(APP, "orders", 1),
                DecidedLoss(
                    *(batch.range.partition, batch.range.from_offset, batch.range.until_offset),
                    *(LossKind.CORRUPT, "evidence"),
                    action=Action.QUARANTINE,
                    topic_id=batch.range.topic_id,
                ),
                *(1, 1, "hash"),
            )
            for batch in self.kept
        ]

    def landings(self) -> list[tuple[PlanEvent, OutcomeEvent]]:
        document = json.dumps(replace(plan(), tags=self.tags).to_json())
        entry = PlanEvent(APP, "orders", 1, "hash", (), document, 1)
        return [(entry, OutcomeEvent(APP, "orders", 1, "hash", (), (), 1))]

    tags: tuple[str, ...] = ()


def kept(where: Range, size_bytes: int, at_ms: int = 1, text: bytes = b"bytes") -> QuarantinedBatch:
    return QuarantinedBatch(
        where, APP, 1, "bad", "b:1", size_bytes, DamagedBytes(text, (), "bad"), at_ms
    )


@pytest.fixture
def all_decodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redrive, "_why_not", lambda *about: "")


JOB = SimpleNamespace(
    name="orders",
    application=APP,
    source=SimpleNamespace(dialect="kafka", max_batch_bytes=300 * MIB),
    decode=Decode(),
)


def redriving(target: Keeping | None) -> LandingContext:
    schema = SimpleNamespace(schema_to_merge=lambda rows: "")
    table = SimpleNamespace(schema=schema)
    parts = SimpleNamespace(history=target, quarantine=target, table=table)
    return landing_context(parts, JOB)


@pytest.mark.usefixtures("all_decodes")
def test_a_plan_takes_what_it_may_carry_and_no_more_is_read() -> None:
    target = Keeping(*(kept(ten(first), 30 * MIB) for first in (40, 30, 20, 10, 0)))
    position = JobPosition({}, Coverage(), 2)
    found = redrive.draft_from_quarantine(redriving(target), position, 5)
    assert found.plan.ranges == tuple(
        replace(ten(first), estimated_bytes=30 * MIB) for first in (30, 40)
    )
    assert target.read == [ten(40), ten(30), ten(20)]


@pytest.mark.usefixtures("all_decodes")
def test_what_is_in_quarantine_is_landed_by_the_tags_that_it_was_read_by() -> None:
    target = Keeping(kept(ten(0), 1))
    target.tags = ("A",)
    context = redriving(target)
    position = JobPosition({}, Coverage(), 2)
    assert redrive.draft_from_quarantine(context, position, 5).plan.tags == ("A",)
    (found,) = redrive.quarantined_ranges(context)
    assert found.read_filter == (Isolation.READ_COMMITTED, ("A",))


@pytest.mark.usefixtures("all_decodes")
def test_a_plan_of_kept_bytes_has_one_kind_of_tags(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [
        replace(one, why="", tags=tags)
        for one, tags in zip(in_quarantine(0, 10, 20), [("A",), (), ("A",)], strict=True)
    ]
    monkeypatch.setattr(redrive, "_try_batches", lambda *about: iter(found))
    position = JobPosition({}, Coverage(), 2)
    made = redrive.draft_from_quarantine(redriving(None), position, 5).plan
    assert ([r.from_offset for r in made.ranges], made.tags) == ([0, 20], ("A",))


@pytest.mark.usefixtures("all_decodes")
@pytest.mark.parametrize(
    ("transform", "planned"),
    [(None, ["new", "new", "old"]), (cast(Any, "a transform"), ["new", "new"])],
)
def test_rows_of_a_transform_are_of_one_incarnation_which_they_do_not_name(
    transform: Any, planned: list[str]
) -> None:
    target = Keeping(*(kept(ten(*where), 1) for where in ((0, "new"), (0, "old"), (10, "new"))))
    context = replace(redriving(target), transform=transform)
    made = redrive.draft_from_quarantine(context, JobPosition({}, Coverage(), 2), 5)
    assert sorted(r.topic_id or "" for r in made.plan.ranges) == planned
    assert made.leaves_more


@pytest.mark.usefixtures("all_decodes")
def test_what_is_listed_holds_no_bytes() -> None:
    target = Keeping(kept(ten(10), 30), kept(ten(0), 20))
    found = redrive.quarantined_ranges(redriving(target))
    assert [(one.batch.range, one.batch.size_bytes) for one in found] == [
        (ten(0), 20),
        (ten(10), 30),
    ]
    assert {one.batch.quarantined_bytes.size_bytes for one in found} == {0}


def test_tasks_take_the_bytes_that_were_kept_last_of_their_own_slices() -> None:
    other_life = kept(ten(0, "old"), 1, text=b"another life")
    target = Keeping(
        kept(ten(0), 1, 9, b"newer"), kept(ten(0), 1, 5, b"older"), kept(ten(50), 1), other_life
    )
    wanted = plan(Range(P0, 2, 4, "id"), Range(P0, 6, 10, "id"))
    found = redrive.settings_of(redriving(target), wanted).quarantined_bytes
    assert found is not None
    assert found == dict.fromkeys((0, 1), DamagedBytes(b"newer", (), "bad"))
    assert target.read == [ten(0), ten(0)]
    with pytest.raises(Conflict, match="no bytes of"):
        redrive.settings_of(redriving(target), plan(ten(30)))


def test_kept_bytes_are_decoded_as_their_plan_and_the_memory_budget_of_the_job_say() -> None:
    target = Keeping(kept(ten(0), 1))
    wanted = replace(plan(ten(0)), tags=("A",), isolation=Isolation.READ_UNCOMMITTED)
    settings = redrive.settings_of(redriving(target), wanted)
    assert (settings.tags, settings.isolation) == (("A",), Isolation.READ_UNCOMMITTED)
    assert settings.cluster.max_batch_bytes == 300 * MIB


# --- from the log ------------------------------------------------------------------------------


LOG = ReadSettings(ClusterSettings("kafka", ()))


def in_quarantine(*firsts: int) -> list[QuarantinedRange]:
    how = (Isolation.READ_COMMITTED, "its checksum is wrong")
    return [QuarantinedRange(kept(ten(first), 1), *how) for first in firsts]


def whole(ranges: list[Range], kind: ReadFilter) -> PlanDraft:
    made = replace(plan(*ranges), isolation=kind[0], tags=kind[1])
    return PlanDraft(plan=made, requested=tuple(ranges))


def landed(slice_: Slice) -> ReadChunk:
    return ReadChunk(slice_.index, *slice_.interval, Counts(landed=slice_.width))


def lost(slice_: Slice, loss: Loss) -> LostChunk:
    return LostChunk(slice_.index, loss.with_action(Action.SKIP), "", offsets_are_bytes=False)


def test_the_log_is_read_again_by_the_tags_and_isolation_of_then_one_kind_a_plan(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, second, third, fourth = in_quarantine(0, 10, 20, 30)
    of_all = replace(first, isolation=Isolation.READ_UNCOMMITTED)
    left = [of_all, replace(second, tags=("A",)), third, replace(fourth, tags=("A",))]
    asked: list[tuple[int, ReadFilter]] = []

    def read(slices: tuple[Slice, ...], settings: ReadSettings) -> Iterator[Any]:
        for s in slices:
            asked.append((s.from_offset, (settings.isolation, settings.tags)))
            bad = Loss(P0, s.from_offset, s.until_offset, LossKind.CORRUPT, "bad")
            yield lost(s, bad) if s.from_offset == 0 else landed(s)

    monkeypatch.setattr(redrive, "read_slices", read)
    today = replace(LOG, tags=("B",))
    found = redrive.draft_from_log(left, today, whole)
    assert found.leaves_more
    # What is still damaged keeps no other kind from being landed.
    assert (found.plan.ranges, found.plan.tags) == ((ten(10), ten(30)), ("A",))
    assert asked == [
        (one.batch.range.from_offset, one.read_filter) for one in (of_all, left[1], left[3])
    ]
    assert found.notes == ("orders/0 [0, 10) is corrupt: bad; it stays in quarantine",)
    found = redrive.draft_from_log([of_all, third], today, whole)
    assert (found.plan.ranges, found.plan.tags, found.leaves_more) == ((ten(20),), (), False)
    assert found.notes == ("orders/0 [0, 10) is corrupt: bad; it stays in quarantine",)


def test_losses_that_fail_are_not_taken_for_a_kind_without_anything_to_land() -> None:
    first, second = in_quarantine(0, 10)
    left = [replace(first, tags=("A",)), second]
    gone = Loss(P0, 0, 10, LossKind.EXPIRED, "the log begins at 10").with_action(Action.FAIL)
    nothing = PlanDraft(plan=plan(), requested=(), failing=FailingLosses((gone,)))
    found = redrive.draft_from_log(left, LOG, lambda *about: nothing)
    assert found.failing == nothing.failing
    assert found.leaves_more


def test_no_plan_has_what_the_log_does_not_give(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[tuple[int, Policy]] = []

    def read(slices: tuple[Slice, ...], settings: ReadSettings) -> Iterator[Any]:
        for s in slices:
            asked.append((s.from_offset, settings.policy))
            bad = Loss(P0, s.from_offset + 4, s.until_offset, LossKind.CORRUPT, "bad")
            yield lost(s, bad) if s.from_offset == 10 else landed(s)
            if s.from_offset == 20:
                yield lost(s, Loss(P0, 20, 22, LossKind.MISSING, "a gap"))

    monkeypatch.setattr(redrive, "read_slices", read)
    found = redrive.draft_from_log(in_quarantine(0, 10, 20), LOG, whole)
    assert not found.leaves_more
    assert [r.interval for r in found.plan.ranges] == [(0, 10), (10, 14), (22, 30)]
    assert asked == [(first, redrive.READ_ON) for first in (0, 10, 20)]
    # Nothing is held: a row of the ledger would say so each time.
    assert (found.held, found.unplanned_losses({})) == ((), ())
    assert found.notes == (
        "orders/0 [14, 20) is corrupt: bad; it stays in quarantine",
        "orders/0 [20, 22) is missing: a gap; it stays in quarantine",
    )


def test_what_the_log_has_lost_meanwhile_stays_in_quarantine() -> None:
    gone = Loss(P0, 0, 10, LossKind.EXPIRED, "the log begins at 10")
    held = (gone.with_action(Action.HOLD),)
    nothing = PlanDraft(plan=plan(), requested=(), held=held)
    found = redrive.draft_from_log(in_quarantine(0), LOG, lambda *about: nothing)
    assert (found.plan.ranges, found.held) == ((), ())
    (said,) = found.notes
    assert said == "orders/0 [0, 10) is expired: the log begins at 10; it stays in quarantine"


def test_what_has_expired_keeps_nothing_that_the_log_has_in_quarantine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(redrive, "read_slices", lambda *about: (x for x in ()))
    request = RangeRequest(Bounds(FromCheckpoint()), Bounds(Latest()), Earliest(), Policy())
    terms = PlanTerms(
        *("orders", APP, "kafka", Isolation.READ_COMMITTED, request, Limits(), Slicing()),
        PlanKind.REREAD,
    )
    survey = Survey(7, {P0: LogState(P0, Leader(Address("b", 1), 3, "id"), 15, 40)})

    def draft_ranges(ranges: list[Range], kind: ReadFilter) -> PlanDraft:
        return draft_ranges_in_log(terms, survey, JobPosition({}, Coverage(), 2), ranges)

    found = redrive.draft_from_log(in_quarantine(0, 10, 20, 30), LOG, draft_ranges)
    assert [r.interval for r in found.plan.ranges] == [(15, 20), (20, 30), (30, 40)]
    assert (found.plan.losses, found.held) == ((), ())
    assert found.notes == tuple(
        f"orders/0 {lost} is expired: the log begins at 15 on b:1; it stays in quarantine"
        for lost in ("[0, 10)", "[10, 15)")
    )


# --- the files ---------------------------------------------------------------------------------


class KeepingInMemory(TableInMemory):
    def create(self, path: str, *about: object) -> Version:
        self.versions.append(Version(path, 0))  # tasks have made the folder
        return self.versions[-1]


def fill(quarantine: Quarantine, sequence: int, *ranges: Range) -> None:
    """One plan's outcome with a file of what it has kept."""
    digest = f"{sequence:064d}"
    writer = QuarantineWriter(
        QuarantineWriterSettings(quarantine.storage(), "orders", APP, sequence, digest)
    )
    for r in ranges:
        writer.add(0, r, DamagedBytes(b"%d" % r.from_offset, (), "bad"), "b:1")
    receipt = Receipt(0, P0, 0, 10, Counts(quarantined=10))
    files: tuple[DataFile, ...] = writer.close([receipt])[0].quarantine_files
    quarantine.commit(
        OutcomeEvent(APP, "orders", sequence, digest, (), (), 1, quarantine_files=files)
    )


def test_bytes_of_files_that_hold_nothing_wanted_are_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quarantine = Quarantine(cast(DeltaKernel, KeepingInMemory()), str(tmp_path / "orders"))
    fill(quarantine, 1, ten(0), ten(10), ten(20))
    fill(quarantine, 2, ten(30))
    whole = []
    read_table = pq.read_table

    def reading(path: str, **how: Any) -> Any:
        whole.extend([path] if how.get("columns") is None else [])
        return read_table(path, **how)

    monkeypatch.setattr(quarantine_module.pq, "read_table", reading)
    found = list(quarantine.batches(lambda plan_id, r: plan_id.sequence == 1 and r != ten(10)))
    assert [(one.range, one.quarantined_bytes) for one in found] == [
        (ten(0), DamagedBytes(b"0", (), "bad")),
        (ten(20), DamagedBytes(b"20", (), "bad")),
    ]
    assert len(whole) == 1


def test_bytes_in_files_that_are_gone_are_left_out_and_others_are_not(tmp_path: Path) -> None:
    lake = KeepingInMemory()
    quarantine = Quarantine(cast(DeltaKernel, lake), str(tmp_path / "orders"))
    fill(quarantine, 1, ten(0))
    (first,) = lake.versions[-1].files()
    fill(quarantine, 2, ten(30))
    (tmp_path / "orders" / FOLDER / first.path).unlink()
    (left,) = quarantine.batches(lambda plan_id, r: True)
    assert left.range == ten(30)
    assert quarantine.gone_named_files() == (first.path,)


def test_a_file_of_another_size_is_not_gone(tmp_path: Path) -> None:
    lake = KeepingInMemory()
    quarantine = Quarantine(cast(DeltaKernel, lake), str(tmp_path / "orders"))
    fill(quarantine, 1, ten(0))
    (file,) = lake.versions[-1].files()
    with (tmp_path / "orders" / FOLDER / file.path).open("ab") as stored:
        stored.write(b"more")
    assert quarantine.gone_named_files() == ()


def test_a_file_that_a_newer_version_does_not_name_is_no_loss_of_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OPTIMIZE has put its rows into another file, and VACUUM has removed it."""
    lake = KeepingInMemory()
    quarantine = Quarantine(cast(DeltaKernel, lake), str(tmp_path / "orders"))
    fill(quarantine, 1, ten(0))
    (file,) = lake.versions[-1].files()
    (tmp_path / "orders" / FOLDER / file.path).unlink()
    old = lake.versions[-1]
    versions = iter([old, replace(old, added=())])
    monkeypatch.setattr(lake, "load", lambda path: next(versions))
    with pytest.raises(StorageFailed, match="could not read the quarantine"):
        list(quarantine.batches(lambda plan_id, r: True))


@pytest.mark.parametrize("year", [2026, 2400, 75039])
def test_times_are_read_from_files_that_spark_has_compacted(tmp_path: Path, year: int) -> None:
    """As INT96, which Arrow reads as nanoseconds: those end in 2262."""
    micros = (year - 1970) * 365 * 86_400_000_000
    record = {"key": None, "value": b"v", "offset": 0, "timestamp": micros, "timestampType": 0}
    row = {"topic": "orders", "partition": 0, "undecodable": [record]}
    table = pa.Table.from_pylist([row], SCHEMA)
    pq.write_table(table, tmp_path / "q", use_deprecated_int96_timestamps=True)
    (found,) = quarantine_module._read(pafs.LocalFileSystem(), str(tmp_path / "q"), None)
    records = cast(pa.StructArray, found["undecodable"])
    assert records.type == RECORD
    assert records.field("timestamp").cast(pa.int64()).to_pylist() == [micros]


# --- the turns of a run ------------------------------------------------------------------------


@pytest.fixture
def agreeing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(landing_steps, "check_table_and_ledger_agree", lambda context: None)


class Turning(landing_steps.LandingSteps):
    """A redrive of so many plans; another driver comes first as often as ``outrun`` says."""

    def __init__(self, plans: int, outrun: int = 0, kind: PlanKind = PlanKind.REDRIVE) -> None:
        job = SimpleNamespace(name="orders", application=APP)
        surveys = SimpleNamespace(last=Survey(0, {}), speed=None, forget_early=lambda: None)
        context = landing_context(_Still(), job, kind, surveys=surveys)
        super().__init__(context)
        self.left, self.outrun = plans, outrun
        self._planner = cast(Any, self)
        self._committer = cast(Any, SimpleNamespace(finish_new=self._finish))

    def _finish(self, plan: Plan) -> Any:
        self.left -= 1
        return plan

    def draft(self) -> Any:
        found = plan(ten(self.left * 10)) if self.left else plan()
        return PlanDraft(plan=found, requested=(), leaves_more=True)

    def _enter(self, plan: Plan, *about: object) -> bool:
        self.outrun -= 1
        return self.outrun < 0


class _Still:
    covered = Coverage()

    def __init__(self) -> None:
        self.ledger = self.history = self.identity = self.writer = self

    def refresh(self) -> None: ...

    def unfinished_plans(self) -> list[Any]:
        return []

    def record_losses(self, *about: object) -> None: ...

    def position(self, application: str) -> JobPosition:
        return JobPosition(covered=self.covered)

    def landed_sequence(self, application: str) -> int:
        return 0


@pytest.mark.usefixtures("agreeing")
def test_a_redrive_of_many_plans_comes_to_its_end() -> None:
    driver = Turning(plans=3 * landing_steps.MAX_LOST_RACES)
    draft = driver.land_until_done()
    assert len(driver._finished) == 3 * landing_steps.MAX_LOST_RACES
    assert draft.is_empty


@pytest.mark.usefixtures("agreeing")
def test_a_redrive_from_the_log_ends_with_the_last_kind_of_what_is_in_quarantine() -> None:
    driver = Turning(plans=3, kind=PlanKind.REREAD)
    drafts = iter([True, True, False])
    make = driver.draft

    def draft() -> Any:
        return replace(make(), leaves_more=next(drafts))

    driver.draft = draft  # type: ignore[method-assign]
    driver.land_until_done()
    assert len(driver._finished) == 3


@pytest.mark.usefixtures("agreeing")
def test_who_is_outrun_again_and_again_gives_up() -> None:
    driver = Turning(1, outrun=landing_steps.MAX_LOST_RACES - 1)
    driver.land_until_done()
    assert len(driver._finished) == 1
    with pytest.raises(Conflict, match="could not enter a plan"):
        Turning(1, outrun=landing_steps.MAX_LOST_RACES).land_until_done()


class Outrun(Turning):
    """Another driver enters a plan first, after which this one has nothing to land."""

    def _enter(self, plan: Plan, *about: object) -> bool:
        self.left = 0
        return False


@pytest.mark.usefixtures("agreeing")
@pytest.mark.parametrize("landed", [(10, 20), (12, 15), None], ids=str)
def test_after_a_lost_race_only_what_has_landed_is_already_landed(
    landed: tuple[int, int] | None,
) -> None:
    driver = Outrun(1)
    (planned,) = driver.draft().plan.ranges
    assert planned == ten(10)
    ranges = [Range(P0, *landed, planned.topic_id)] if landed else []
    cast(Any, driver._context.target.history).covered = coverage_of(ranges)
    assert list(driver.land_until_done().already_landed) == ranges
