"""What a driver of a group does with an error that has ended its reading."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rangeland.delta.ledger.events import LogFingerprint, OutcomeEvent, PartEvent
from rangeland.errors import TransformFailed, Unreachable
from rangeland.job_group import shared_plan
from rangeland.job_group.lease import GroupLease
from rangeland.job_group.shared_plan import SharedRead
from rangeland.landing.execution.final_log_check import LogsBefore, LogsChanged
from rangeland.landing.execution.shared_reader_interface import (
    PlanReceipts,
    PlanToRead,
    SharedReading,
)
from rangeland.model import Counts, DataFile, Partition, Range, Slice
from rangeland.planning.log_identity import Fingerprints, PartRead
from rangeland.planning.slice_assignment import SliceOwners
from rangeland.planning.slice_receipt import Receipt, TaskResult, WrittenFile
from rangeland.progress_events import NoProgress
from tests.fakes.landing import landing_context
from tests.unit.test_landing_target import plan

PLAN = plan()
THEIRS = OutcomeEvent(PLAN.application, PLAN.job, PLAN.sequence, PLAN.hash, (), (), 0)


class Ledger:
    """The parts and outcomes of a plan: another driver prepares ``outcome`` in the meantime."""

    def __init__(self, outcome: OutcomeEvent | None, *parts: PartEvent) -> None:
        self._answers = [None, outcome]
        self._parts = parts
        self.handed_in: list[Fingerprints] = []

    def parts_so_far(self, *about: object) -> tuple[list[PartEvent], OutcomeEvent | None]:
        return list(self._parts), self._answers.pop(0)

    def append_part(self, *about: Any) -> bool:
        self.handed_in.append(about[-1])
        self._answers = [THEIRS]
        return True


def shared_read(
    monkeypatch: pytest.MonkeyPatch, error: Exception, outcome: OutcomeEvent | None, transform: Any
) -> SharedRead:
    monkeypatch.setattr(shared_plan, "look_up_plan_settings", lambda *about: None)
    context: Any = landing_context(SimpleNamespace(writer=Ledger(outcome)))
    work = PlanToRead(
        PLAN,
        cast(Any, SimpleNamespace(target=context.target, transform=transform)),
        tasks=cast(Any, SimpleNamespace(read_until_stopped=lambda *about: ([], error))),
        before=LogsBefore(PLAN),
        find_change=lambda before, receipts: None,
    )
    lease = SimpleNamespace(
        join_rebalance=lambda: None,
        must_stop=False,
        hold_assignment=nullcontext,
        slice_owners=lambda partitions: SliceOwners.alone("me", partitions),
    )
    return SharedRead(work, cast(GroupLease, lease), NoProgress())


ERRORS = [
    (None, Unreachable("b1:9092 cannot be reached")),
    ("a transform", TransformFailed("the transform m:f failed", why="KeyError: 'x'")),
]


@pytest.mark.parametrize(("transform", "error"), ERRORS)
def test_the_outcome_of_another_driver_counts_more_than_an_error(
    transform: str | None, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = shared_read(monkeypatch, error, THEIRS, transform).read()
    assert found == SharedReading(THEIRS, with_others=False)


@pytest.mark.parametrize(("transform", "error"), ERRORS)
def test_without_an_outcome_the_error_ends_the_run(
    transform: str | None, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(type(error)) as raised:
        shared_read(monkeypatch, error, None, transform).read()
    assert raised.value is error


# --- topics without ids ---------------------------------------------------------------------

P = Partition("orders", 0)
SHARED = replace(
    PLAN,
    ranges=(Range(P, 0, 20),),
    slices=(Slice(0, P, 0, 10), Slice(1, P, 10, 20)),
)
THEIR_FILE = WrittenFile(DataFile("theirs", 1, 10, "{}", 0), Range(P, 0, 10))
OUR_FILE = WrittenFile(DataFile("rows", 1, 10, "{}", 0), Range(P, 10, 20))
READ = [Receipt(s.index, P, *s.interval, Counts(landed=10)) for s in SHARED.slices]
THEIR_PART = PartEvent(
    *(SHARED.application, SHARED.job, SHARED.sequence, SHARED.hash, 1, "dead"),
    receipts=(READ[0],),
    files=(),
    written_at_ms=0,
    fingerprints=(LogFingerprint(P, 16),),
)


def reading_the_rest(
    ledger: Ledger, find_change: Callable[[LogsBefore, Iterable[Receipt]], LogsChanged | None]
) -> SharedRead:
    """A driver that reads the second slice, if it reads anything."""
    context = landing_context(SimpleNamespace(writer=ledger))
    tasks = SimpleNamespace(
        read_until_stopped=lambda *about: ([TaskResult((READ[1],))], None),
        files_of=lambda plan, results: [OUR_FILE] if results else [],
    )
    work = PlanToRead(
        SHARED,
        cast(Any, SimpleNamespace(target=context.target, transform=None, progress=NoProgress())),
        tasks=cast(Any, tasks),
        before=LogsBefore(SHARED, {P: 17}),
        find_change=find_change,
    )
    lease = SimpleNamespace(
        member_id="me",
        join_rebalance=lambda: None,
        must_stop=False,
        hold_assignment=nullcontext,
        slice_owners=lambda partitions: SliceOwners.alone("me", partitions),
    )
    return SharedRead(work, cast(GroupLease, lease), NoProgress())


@pytest.mark.usefixtures("settings")
def test_what_a_dead_driver_has_read_is_compared_by_its_own_fingerprints() -> None:
    changed = LogsChanged("the log of orders/0 changed while it was being read", "")
    asked: list[LogsBefore] = []

    def find_change(before: LogsBefore, receipts: Iterable[Receipt]) -> LogsChanged:
        asked.append(before)
        return changed

    assert reading_the_rest(Ledger(None, THEIR_PART), find_change).read() is changed
    parts = (PartRead(frozenset({P}), {P: 16}),)
    assert asked == [LogsBefore(SHARED, {P: 17}, parts=parts)]


@pytest.mark.usefixtures("settings")
def test_once_nothing_is_missing_what_all_drivers_have_read_is_returned() -> None:
    part = replace(THEIR_PART, files=(THEIR_FILE,))
    found = reading_the_rest(Ledger(None, part), lambda *about: None).read()
    together = PlanReceipts({0: READ[0], 1: READ[1]}, [THEIR_FILE, OUR_FILE])
    assert found == SharedReading(together, with_others=False)


@pytest.mark.usefixtures("settings")
def test_a_part_is_handed_in_with_the_fingerprints_from_before_it_was_read() -> None:
    ledger = Ledger(None)
    assert isinstance(reading_the_rest(ledger, lambda *about: None).read(), SharedReading)
    assert ledger.handed_in == [{P: 17}]


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_plan, "look_up_plan_settings", lambda *about: None)
