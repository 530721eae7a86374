"""The ledger: plans are entered one after the other, outcomes once, coverage stays cheap."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rangeland.delta.ledger import compaction
from rangeland.delta.ledger.events import CoveredInterval, OutcomeEvent, PartEvent, PlanEvent
from rangeland.delta.ledger.ledger_table import Ledger
from rangeland.delta.transaction_log.delta_kernel import DeltaKernel
from rangeland.errors import Bug, Conflict
from rangeland.model import Counts, DataFile, Partition, Range
from rangeland.planning.plan import PlanId
from rangeland.planning.slice_receipt import RangeResult, Receipt, WrittenFile

pytestmark = pytest.mark.spark

P0 = Partition("orders", 0)
APP = "rangeland/orders-hourly"
BACKFILL = "rangeland/orders-hourly/backfill/0123456789abcdef"


def plan(sequence: int, start: int, end: int, application: str = APP) -> PlanEvent:
    ranges = (Range(P0, start, end, "id"),)
    return PlanEvent(application, "orders-hourly", sequence, f"h{sequence}", ranges, "{}", 1_000)


def outcome(of: PlanEvent) -> OutcomeEvent:
    ranges = tuple(RangeResult(r, Counts(landed=r.width), "127.0.0.1:9092") for r in of.ranges)
    file = DataFile(f"part-{of.sequence}.parquet", 10, 1, "{}", 1, {"d": None})
    files = (WrittenFile(file, of.ranges[0]),)
    return OutcomeEvent(of.application, of.job, of.sequence, of.plan_hash, ranges, files, 2_000)


def part(of: PlanEvent, number: int, start: int, end: int) -> PartEvent:
    receipts = (Receipt(number, P0, start, end, Counts(landed=end - start), "h:1"),)
    files = (WrittenFile(DataFile(f"part-{number}.parquet", 10, 1, "{}", 1)),)
    about = (of.application, of.job, of.sequence, of.plan_hash)
    return PartEvent(*about, number, f"m-{number}", receipts, files, 1_500)


@pytest.fixture
def ledger(kernel: DeltaKernel, tmp_path: Path) -> Ledger:
    return Ledger(kernel, str(tmp_path / "orders")).open_or_create()


def test_what_was_entered_and_prepared_is_read_back(ledger: Ledger) -> None:
    first = plan(1, 0, 10)
    assert ledger.entered() == 0
    assert ledger.enter(first, 0)
    assert ledger.prepare_outcome(outcome(first))
    read = ledger.view.plan(PlanId(APP, 1))
    assert read is not None
    assert (read.ranges, read.document, read.entered) == (first.ranges, "{}", 1)
    assert ledger.view.outcome(PlanId(APP, 1)) == outcome(first)
    assert ledger.view.plan(PlanId(APP, 2)) is None
    assert ledger.view.outcome(PlanId(BACKFILL, 1)) is None
    assert ledger.entered() == 1


def test_a_plan_made_on_an_old_basis_is_not_entered(kernel: DeltaKernel, ledger: Ledger) -> None:
    other = Ledger(kernel, ledger.path.removesuffix("/_rangeland/ledger")).open_or_create()
    assert other.entered() == 0
    assert ledger.enter(plan(1, 0, 10), 0)
    assert not other.enter(plan(1, 0, 10, BACKFILL), 0)  # it has not seen the first
    assert other.entered() == 1
    assert not other.enter(plan(1, 0, 10, BACKFILL), 0)
    assert other.enter(plan(1, 10, 20, BACKFILL), 1)
    assert [key.application for key in other.view.keys] == [APP, BACKFILL]


def test_an_outcome_is_prepared_once(kernel: DeltaKernel, ledger: Ledger) -> None:
    first = plan(1, 0, 10)
    assert ledger.enter(first, 0)
    other = Ledger(kernel, ledger.path.removesuffix("/_rangeland/ledger"))
    assert other.view.outcome(PlanId(APP, 1)) is None
    assert ledger.prepare_outcome(outcome(first))
    assert not other.prepare_outcome(outcome(first))
    assert other.view.outcome(PlanId(APP, 1)) == outcome(first)
    files = list(Path(ledger.path.removeprefix("file:")).glob("*.parquet"))
    assert len(files) == 2  # the loser's row is removed


def test_a_later_attempt_stands_in_for_an_outcome_once(ledger: Ledger) -> None:
    first = plan(1, 0, 10)
    assert ledger.enter(first, 0)
    assert ledger.prepare_outcome(outcome(first))
    again = replace(outcome(first), attempt=1, written_at_ms=3_000)
    assert ledger.prepare_outcome(again)
    assert ledger.view.outcome(PlanId(APP, 1)) == again
    assert not ledger.prepare_outcome(again)
    assert ledger.prepare_outcome(replace(again, attempt=2))
    ledger.refresh()
    found = ledger.view.outcome(PlanId(APP, 1))
    assert found is not None
    assert found.attempt == 2


def test_threads_that_race_enter_each_number_once(kernel: DeltaKernel, ledger: Ledger) -> None:
    table = ledger.path.removesuffix("/_rangeland/ledger")
    won: list[tuple[int, int]] = []
    barrier = threading.Barrier(3)

    def planner(me: int) -> None:
        mine = Ledger(kernel, table)
        for number in range(4):
            barrier.wait(60)
            entry = plan(number, me * 100, me * 100 + 1, f"rangeland/job-{me}")
            mine.refresh()
            if mine.enter(entry, number):
                won.append((number, me))
            barrier.wait(60)

    threads = [threading.Thread(target=planner, args=(me,)) for me in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(number for number, _ in won) == [0, 1, 2, 3]
    ledger.refresh()
    assert ledger.entered() == 4


def test_coverage_tells_landed_from_held(ledger: Ledger) -> None:
    for number, (start, end) in enumerate([(0, 10), (10, 20), (30, 40)]):
        assert ledger.enter(plan(number + 1, start, end), number)
        if number != 1:
            assert ledger.prepare_outcome(outcome(plan(number + 1, start, end)))
    landed = {P0: (CoveredInterval(0, 10, "id"), CoveredInterval(30, 40, "id"))}
    assert (ledger.entered(), ledger.view.coverage()) == (3, landed)
    assert ledger.view.without_outcome() == [], "outcomes come in the order of their sequences"
    live = ledger.view.plan(PlanId(APP, 2))
    assert live is not None
    assert live.ranges == (Range(P0, 10, 20, "id"),)
    with pytest.raises(Bug, match="came too late"):
        ledger.prepare_outcome(outcome(plan(2, 10, 20)))
    assert ledger.enter(plan(1, 50, 60, BACKFILL), 3)
    assert ledger.view.coverage() == landed
    assert {one.application for one in ledger.view.without_outcome()} == {BACKFILL}


def test_a_plan_that_is_entered_with_its_outcome_ends_earlier_ones(
    kernel: DeltaKernel, ledger: Ledger
) -> None:
    """In one commit: nobody can prepare the earlier plan after that."""
    reader, stale = (
        Ledger(kernel, ledger.path.removesuffix("/_rangeland/ledger")) for _ in range(2)
    )
    assert ledger.enter(plan(1, 0, 10), 0)
    assert ledger.enter(plan(1, 90, 99, BACKFILL), 1)
    assert (reader.entered(), stale.entered()) == (2, 2)
    adopted = plan(2, 20, 30)
    assert ledger.append_part(part(plan(1, 0, 10), 1, 0, 4))
    assert not stale.enter_with_outcome(adopted, outcome(adopted), 2), (
        "something was written meanwhile"
    )
    assert stale.view.plan(PlanId(APP, 2)) is None
    assert stale.enter_with_outcome(adopted, outcome(adopted), 2, [PlanId(APP, 1)])
    assert stale.view.possibly_unfinished() == (PlanId(BACKFILL, 1), PlanId(APP, 2))
    for late in (reader, ledger):
        with pytest.raises(Conflict, match="was ended while it was being read"):
            late.prepare_outcome(outcome(plan(1, 0, 10)))
    assert reader.prepare_outcome(outcome(plan(1, 90, 99, BACKFILL)))
    assert reader.enter(plan(3, 0, 10), 3)
    assert reader.view.possibly_unfinished() == (PlanId(APP, 3),)
    assert reader.prepare_outcome(outcome(plan(3, 0, 10)))


def test_an_outcome_after_the_newest_plan_is_in_the_coverage(ledger: Ledger) -> None:
    assert ledger.enter(plan(1, 0, 10), 0)
    assert ledger.enter(plan(1, 90, 99, BACKFILL), 1)
    assert ledger.prepare_outcome(outcome(plan(1, 0, 10)))
    assert ledger.view.coverage() == {P0: (CoveredInterval(0, 10, "id"),)}
    assert ledger.prepare_outcome(outcome(plan(1, 90, 99, BACKFILL)))
    assert ledger.view.coverage() == {
        P0: (CoveredInterval(0, 10, "id"), CoveredInterval(90, 99, "id"))
    }
    assert ledger.view.without_outcome() == []


def test_the_ledger_is_read_with_sql_and_survives_optimize(
    ledger: Ledger, spark: Any, sql: Callable[[str], list[Any]]
) -> None:
    for number in range(3):
        assert ledger.enter(plan(number + 1, number, number + 1), number)
        assert ledger.prepare_outcome(outcome(plan(number + 1, number, number + 1)))
    found = sql(
        "SELECT sequence, r.topic, r.partition, r.from_offset, r.landed "
        f"FROM delta.`{ledger.path}` LATERAL VIEW explode(ranges) AS r "
        "WHERE event = 'outcome' ORDER BY sequence"
    )
    assert [tuple(row) for row in found] == [(i + 1, "orders", 0, i, 1) for i in range(3)]
    values = sql(
        f"SELECT files[0].partition_values AS v FROM delta.`{ledger.path}` WHERE sequence=1"
    )
    assert {"d": None} in [row.v for row in values]
    before = (list(ledger.view.plans()), ledger.view.coverage())
    sql(f"OPTIMIZE delta.`{ledger.path}`")
    ledger.refresh()
    assert len({key.path for key in ledger.view.keys}) == 1
    assert (list(ledger.view.plans()), ledger.view.coverage()) == before
    assert [o.sequence for o in ledger.view.outcomes(APP)] == [3, 2, 1]


def test_parts_are_handed_in_one_after_the_other(kernel: DeltaKernel, ledger: Ledger) -> None:
    first = plan(1, 0, 10)
    assert ledger.enter(first, 0)
    other = Ledger(kernel, ledger.path.removesuffix("/_rangeland/ledger"))
    assert other.view.parts(PlanId(APP, 1)) == []
    assert ledger.append_part(part(first, 1, 0, 4))
    assert not other.append_part(part(first, 1, 4, 10))  # it has not seen the first
    assert other.view.parts(PlanId(APP, 1)) == [part(first, 1, 0, 4)]
    assert other.append_part(part(first, 2, 4, 10))
    ledger.refresh()
    assert ledger.view.parts(PlanId(APP, 1)) == [part(first, 1, 0, 4), part(first, 2, 4, 10)]
    assert ledger.view.parts(PlanId(APP, 2)) == []


def test_parts_change_nothing_of_what_is_landed_held_or_prepared(ledger: Ledger) -> None:
    first, second = plan(1, 0, 10), plan(2, 10, 20)
    assert ledger.enter(first, 0)
    before = planned_in(ledger)
    assert ledger.append_part(part(first, 1, 0, 10))
    assert planned_in(ledger) == before
    assert ledger.view.prepared_plans() == []
    assert ledger.prepare_outcome(outcome(first))
    assert ledger.enter(second, 1)
    assert ledger.append_part(part(second, 1, 10, 20))
    assert [(p.sequence, o) for p, o in ledger.view.prepared_plans()] == [(1, outcome(first))]
    assert list(ledger.view.outcomes(APP)) == [outcome(first)]
    assert ledger.view.outcome(PlanId(APP, 2)) is None
    assert [p.sequence for p in ledger.view.plans()] == [2, 1]
    newest = next(ledger.view.plans(job="orders-hourly"))
    assert newest.sequence == 2
    assert newest.unfinished == ()


def test_old_rows_move_into_one_file_and_nothing_else_changes(
    few_files: None, kernel: DeltaKernel, ledger: Ledger, sql: Callable[[str], list[Any]]
) -> None:
    land(ledger, range(1, 9))
    assert ledger.enter(plan(9, 9, 10), 8)
    before = known(ledger)
    other = Ledger(kernel, ledger.path.removesuffix("/_rangeland/ledger"))
    assert len(files_of(other)) == 17
    assert ledger.compact()
    assert len(files_of(ledger)) == 5
    assert known(ledger) == before
    # A driver that has read the ledger before reads on, and adds to what is there now.
    assert known(other) == before
    assert other.prepare_outcome(outcome(plan(9, 9, 10)))
    land(other, range(10, 18))  # as many rows as were moved before, so those move again
    after = known(other)
    ledger.refresh()
    assert ledger.compact()
    assert not ledger.compact()
    assert known(ledger) == after
    assert len(files_of(ledger)) == 5
    rows = sql(f"SELECT event, sequence FROM delta.`{ledger.path}` WHERE sequence < 12")
    assert len(rows) == len(set(map(tuple, rows))) == 22
    log = Path(ledger.path.removeprefix("file:")) / "_delta_log"
    written = [a["add"] for a in actions(log) if "add" in a]
    moved = [add for add in written if add["path"].startswith("compacted-")]
    moved += [a["remove"] for a in actions(log) if "remove" in a]
    assert len(moved) == 2 + 13 + 17 + 1
    assert not any(action["dataChange"] for action in moved)


def test_compaction_gives_way_to_whoever_commits_first(
    few_files: None, kernel: DeltaKernel, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    land(ledger, range(1, 9))
    other = Ledger(kernel, ledger.path.removesuffix("/_rangeland/ledger"))
    rewrite, before = ledger._files.rewrite, known(ledger)

    def slowly(paths: list[str]) -> DataFile:
        made = rewrite(paths)
        assert other.compact()
        return made

    monkeypatch.setattr(ledger._files, "rewrite", slowly)
    assert not ledger.compact()
    assert known(ledger) == before
    folder = Path(ledger.path.removeprefix("file:"))
    assert [file.name for file in folder.glob("compacted-*")] == [
        path for path in files_of(ledger) if path.startswith("compacted-")
    ]


@pytest.fixture
def few_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "MANY", 8)
    monkeypatch.setattr(compaction, "NEWEST", 4)


def land(ledger: Ledger, sequences: range) -> None:
    for number in sequences:
        assert ledger.enter(plan(number, number, number + 1), number - 1)
        assert ledger.prepare_outcome(outcome(plan(number, number, number + 1)))


def planned_in(ledger: Ledger) -> tuple[object, ...]:
    view = ledger.view
    return view.coverage(), view.without_outcome(), view.possibly_unfinished()


def known(ledger: Ledger) -> list[object]:
    view = ledger.view
    plans = list(view.plans())
    outcomes = [view.outcome(PlanId(APP, one.sequence)) for one in plans]
    return [
        plans,
        outcomes,
        view.prepared_plans(),
        list(view.outcomes(APP)),
        *planned_in(ledger),
        view.last_sequence(APP),
        ledger.entered(),
    ]


def files_of(ledger: Ledger) -> set[str]:
    return {key.path for key in ledger.view.keys}


def actions(log: Path) -> list[dict[str, Any]]:
    return [json.loads(x) for path in log.glob("*.json") for x in path.read_text().splitlines()]
