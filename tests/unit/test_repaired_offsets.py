"""Which rows a repair may replace: those at offsets that it lands itself."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from rangeland.delta.ledger.events import OutcomeEvent
from rangeland.errors import Conflict
from rangeland.landing.special_plans import repaired_offsets
from rangeland.landing.special_plans.repaired_offsets import (
    are_rows_unrecorded,
    check_can_be_replaced,
    joined_ranges,
    ranges_with_rows,
)
from rangeland.landing.special_plans.replacement import Replacement
from rangeland.loss import Loss, LossKind
from rangeland.model import Counts, Partition, Range
from rangeland.planning.intervals import Interval
from rangeland.planning.slice_receipt import RangeResult
from rangeland.planning.table_audit import LandedRange

P0, P1 = Partition("orders", 0), Partition("orders", 1)


def outcome_of(*ranges: RangeResult) -> OutcomeEvent:
    return OutcomeEvent("rangeland/orders/missing/1", "orders", 1, "hash", ranges, (), 0)


def landed(
    first: int, until: int, rows: int, rowless: tuple[Interval, ...] | None = (), **more: Any
) -> RangeResult:
    partition = more.pop("partition", P0)
    counts = Counts(landed=rows, lost=until - first - rows)
    return RangeResult(Range(partition, first, until), counts, None, rowless, **more)


def offsets(*about: Any) -> list[Interval]:
    return [r.interval for r in ranges_with_rows(*about)]


def test_offsets_that_the_log_has_lost_have_no_rows() -> None:
    outcome = outcome_of(landed(0, 100, 40, ((0, 60),)))
    assert ranges_with_rows(outcome) == [Range(P0, 60, 100)]


def test_a_range_that_reading_has_shortened_ends_where_reading_stopped() -> None:
    """The outcome has the part that was read; the plan's range ends at 100."""
    assert offsets(outcome_of(landed(0, 30, 30))) == [(0, 30)]


def test_a_range_of_which_everything_is_lost_has_no_rows() -> None:
    assert offsets(outcome_of(landed(0, 100, 0, ((0, 100),)))) == []
    assert offsets(outcome_of(landed(0, 100, 0, None))) == []
    assert not are_rows_unrecorded(outcome_of(landed(0, 100, 0, None)))


def test_each_rowless_interval_is_left_out() -> None:
    outcome = outcome_of(
        landed(0, 10, 7, ((2, 3), (5, 7))), landed(20, 30, 10), landed(0, 5, 5, partition=P1)
    )
    expected = [(0, 2), (3, 5), (7, 10), (20, 30)]
    ranges = ranges_with_rows(outcome)
    assert [r.interval for r in ranges if r.partition == P0] == expected
    assert [r.interval for r in ranges if r.partition == P1] == [(0, 5)]


def test_where_offsets_are_bytes_losses_say_where_there_are_no_rows() -> None:
    outcome = outcome_of(landed(0, 900, 4, None, offsets_are_bytes=True))
    lost = [Loss(P0, 0, 250, LossKind.EXPIRED, ""), Loss(P1, 0, 900, LossKind.EXPIRED, "")]
    assert not are_rows_unrecorded(outcome)
    assert offsets(outcome, lost) == [(250, 900)]


def test_rows_that_the_ledger_does_not_say_are_those_of_the_files() -> None:
    """Such as those that a transform has left, or of a log that was compacted in many places."""
    outcome = outcome_of(landed(0, 100, 3, None), landed(200, 210, 10))
    assert are_rows_unrecorded(outcome)
    in_files = {P0: [(5, 7), (40, 41), (200, 210)]}
    assert offsets(outcome, (), in_files) == [(5, 7), (40, 41), (200, 210)]


def test_ranges_that_do_not_fit_a_condition_are_refused_and_not_joined(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    outcome = outcome_of(landed(0, 10, 7, ((2, 3), (5, 7))))
    ranges = ranges_with_rows(outcome)
    check_can_be_replaced(outcome, ranges)
    monkeypatch.setattr(repaired_offsets, "MAX_RANGES", 2)
    with pytest.raises(Conflict, match="3 separate ranges"):
        check_can_be_replaced(outcome, ranges)


def test_ranges_are_joined_where_no_landing_has_a_row() -> None:
    """Landed were [0, 40) with markers at 9, 19 and 29, and no row since at 19; 34 was lost, and
    36 quarantined."""
    parts = [(0, 9), (10, 19), (20, 29), (30, 34), (35, 36), (37, 40), (50, 60), (61, 70)]
    ranges = [Range(P0, *part) for part in parts]
    first = LandedRange(Range(P0, 0, 40), 35, ((9, 10), (19, 20), (29, 30), (34, 35), (36, 37)))
    later = LandedRange(Range(P0, 19, 20, "again"), 1, ())
    uncounted = LandedRange(Range(P0, 50, 70), 12, None)
    lost = [Loss(P0, 34, 35, LossKind.CORRUPT, ""), Loss(P0, 36, 37, LossKind.CORRUPT, "")]
    joined = joined_ranges(ranges, [first, later, uncounted], lost)
    expected = [(0, 19), (20, 34), (35, 36), (37, 40), (50, 60), (61, 70)]
    assert [r.interval for r in joined] == expected


def test_offsets_that_were_never_landed_keep_ranges_apart() -> None:
    ranges = [Range(P0, 0, 9), Range(P0, 10, 19), Range(P1, 10, 19)]
    assert joined_ranges(ranges, [], []) == ranges
    landed_ranges = [LandedRange(Range(P0, 0, 9), 9, ()), LandedRange(Range(P0, 10, 19), 9, ())]
    assert joined_ranges(ranges, landed_ranges, []) == ranges


def test_losses_in_whose_place_other_records_were_landed_are_no_losses_of_the_outcome() -> None:
    outcome = outcome_of(landed(0, 900, 4, None, offsets_are_bytes=True))
    lost = Loss(P0, 0, 250, LossKind.EXPIRED, "")
    regrown = Loss(P0, 500, 900, LossKind.TRUNCATED, "")
    events = [
        SimpleNamespace(loss=lost, plan_hash="hash"),
        SimpleNamespace(loss=regrown, plan_hash=""),
    ]
    history = SimpleNamespace(losses=lambda plan_id: events)
    context: Any = SimpleNamespace(target=SimpleNamespace(history=history))
    plan = cast(Any, SimpleNamespace(id=outcome.plan_id))
    (found,) = Replacement(context).ranges_of_repair(plan, outcome)
    assert found.interval == (250, 900)
