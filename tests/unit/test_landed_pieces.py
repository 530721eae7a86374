"""What ``verify`` expects of landings whose logs ended before their plans did."""

from __future__ import annotations

from typing import Any, cast

import pytest

from rangeland.delta.ledger.events import LossEvent, OutcomeEvent
from rangeland.landing.audit.verification import landed_ranges_of
from rangeland.loss import Action, Loss, LossKind
from rangeland.model import Counts, Partition, Range
from rangeland.planning.slice_receipt import RangeResult
from rangeland.planning.table_audit import (
    CountedRange,
    LandedRange,
    audit,
    ranges_in_bytes,
    ranges_in_force,
)

P = Partition("orders", 0)
APP = "rangeland/orders"


def landing(sequence: int, first: int, until: int, counts: Counts, **more: Any) -> Any:
    entry = RangeResult(Range(P, first, until, "id"), counts, **more)
    return None, OutcomeEvent(APP, "orders", sequence, "hash", (entry,), (), 1)


def lost(first: int, until: int, plan_hash: str = "hash") -> LossEvent:
    loss = Loss(P, first, until, LossKind.TRUNCATED, "the log ends before them")
    return LossEvent(APP, "orders", 1, loss.with_action(Action.SKIP), 1, 1, plan_hash)


@pytest.mark.parametrize("in_bytes", [True, False])
def test_a_range_whose_log_ended_is_proved_though_its_end_was_landed_later(in_bytes: bool) -> None:
    landings = [
        landing(1, 0, 100, Counts(landed=7, lost=40), offsets_are_bytes=in_bytes),
        landing(2, 60, 100, Counts(landed=4), offsets_are_bytes=in_bytes),
    ]
    landed_ranges = ranges_in_force(landed_ranges_of(cast(Any, landings), [lost(60, 100)]))
    assert [(p.range.from_offset, p.range.until_offset, p.landed) for p in landed_ranges] == [
        (0, 60, 7),
        (60, 100, 4),
    ]
    assert all(landed_range.offsets_are_bytes is in_bytes for landed_range in landed_ranges)
    if in_bytes:
        assert set(ranges_in_bytes(landed_ranges)) == {P}
        assert audit(landed_ranges, {}, {P: CountedRange((7, 4))}).unproved == ()
    else:
        assert audit(landed_ranges, {}).unproved == ()


def test_what_is_recorded_offset_by_offset_or_not_lost_by_this_landing_stays_whole() -> None:
    known = landing(1, 0, 100, Counts(landed=60, lost=40), rowless=((60, 100),))
    assert landed_ranges_of(cast(Any, [known]), [lost(60, 100)]) == [
        LandedRange(Range(P, 0, 100, "id"), 60, ((60, 100),))
    ]
    unknown = landing(1, 0, 100, Counts(landed=7, lost=40))
    for losses in ([lost(60, 100, "")], [lost(40, 60)]):
        (landed_range,) = landed_ranges_of(cast(Any, [unknown]), losses)
        assert landed_range == LandedRange(Range(P, 0, 100, "id"), 7)
