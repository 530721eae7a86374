"""Whether the logs that were read are those that were planned, by metadata, epochs and ends."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rangeland.loss import Action, DecidedLoss, Loss, LossKind
from rangeland.model import Address, Counts, Isolation, Leader, LogState, Partition, Range, Survey
from rangeland.planning.incarnation import LogMark
from rangeland.planning.log_identity import (
    find_changes,
    known_epochs_of,
    marks_of,
    unconfirmed_partitions,
)
from rangeland.planning.plan import Plan
from rangeland.planning.slice_receipt import Receipt

P = Partition("orders", 0)
BROKER = Address("b", 9092)
PLAN = Plan(
    "j", "rangeland/j", 1, "kafka", Isolation.READ_COMMITTED, (Range(P, 0, 100, "id-1"),), (),
    checkpoint={P: LogMark(100, "id-1", 7)},
)  # fmt: skip


def read(start: int, until: int, **more: object) -> Receipt:
    return replace(Receipt(0, P, start, until, Counts(landed=until - start)), **more)


def seen(log: LogState) -> Survey:
    return Survey(0, {P: log})


def log(end: int, epoch: int | None = 7, topic_id: str | None = "id-1", start: int = 0) -> LogState:
    return LogState(P, Leader(BROKER, epoch, topic_id), start, end)


def test_what_was_lost_or_held_was_not_read() -> None:
    gone = Loss(P, 50, 100, LossKind.RECREATED, "another id")
    lost = read(50, 100, losses=(gone.with_action(Action.SKIP),))
    assert marks_of(PLAN, [read(0, 50), lost]) == {P: LogMark(50, "id-1", 7, True)}
    held = read(
        0, 30, losses=(DecidedLoss(P, 30, 100, LossKind.CORRUPT, "damaged", action=Action.HOLD),)
    )
    assert marks_of(PLAN, [held]) == {P: LogMark(30, "id-1", 7, True)}
    assert marks_of(PLAN, [replace(lost, from_offset=50)]) == {}


def test_the_epoch_of_another_incarnation_says_nothing() -> None:
    other = replace(PLAN, checkpoint={P: LogMark(100, "id-0", 9)})
    assert marks_of(other, [read(0, 100)]) == {P: LogMark(100, "id-1")}


def test_a_mark_has_the_topic_id_of_the_range_that_was_read() -> None:
    lost = Range(P, 100, 120, "an earlier one")
    both = replace(PLAN, ranges=(*PLAN.ranges, lost), losses=())
    assert marks_of(both, [read(0, 100)]) == marks_of(PLAN, [read(0, 100)])


@pytest.mark.parametrize(
    ("leader", "is_in_doubt"),
    [
        (Leader(BROKER, 7, "id-1"), False),
        (Leader(BROKER, 8, "id-1"), True),
        (Leader(BROKER, 7, "id-2"), True),
        (Leader(BROKER, None, "id-1"), True),
        (Leader(BROKER, 7, None), True),
    ],
)
def test_the_same_id_and_epoch_need_no_second_look(leader: Leader, is_in_doubt: bool) -> None:
    marks = marks_of(PLAN, [read(0, 100)])
    assert unconfirmed_partitions(marks, {P: leader}, {}) == ({P} if is_in_doubt else set())
    assert unconfirmed_partitions(marks, {P: leader}, {P: 8}) == {P}
    assert unconfirmed_partitions(marks, {}, {}) == {P}


def test_the_latest_epoch_of_all_slices_is_known_of_a_log() -> None:
    receipts = [read(n, n + 1, leader_epoch=epoch) for n, epoch in enumerate((7, 9, None, 8))]
    other = replace(read(0, 1), partition=Partition("orders", 1))
    assert known_epochs_of([*receipts, other]) == {P: 9}


@pytest.mark.parametrize(
    ("survey", "found"),
    [
        (seen(log(100)), []),
        (seen(replace(log(500, epoch=9), epoch_end=100)), []),  # a clean election
        (seen(replace(log(500, epoch=9), epoch_end=60)), [("truncated", 60, 100)]),
        (seen(log(500, topic_id="id-2")), [("recreated", 100, 100)]),
        (seen(log(60)), [("truncated", 60, 100)]),
        (seen(log(500, start=50)), []),  # retention has taken what was read
        (Survey(0, {}), []),
    ],
)
def test_what_has_happened_is_reported(survey: Survey, found: list[tuple[str, int, int]]) -> None:
    losses = find_changes(marks_of(PLAN, [read(0, 100)]), survey)
    assert [(x.kind.value, x.from_offset, x.until_offset) for x in losses] == found


def test_a_replica_is_not_believed() -> None:
    behind = replace(log(60), leader=Leader(BROKER, 7, "id-1", is_replica=True))
    assert find_changes(marks_of(PLAN, [read(0, 100)]), seen(behind)) == []
