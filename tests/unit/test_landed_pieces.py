"""What ``verify`` expects of landings whose logs ended before their plans did."""

from __future__ import annotations

from typing import Any, cast

import pytest

from rangeland.delta.ledger.events import LossEvent, OutcomeEvent, RangeEntry
from rangeland.landing.verification import pieces_of
from rangeland.loss import Loss, LossKind
from rangeland.model import Counts, Partition, Range
from rangeland.planning.table_audit import (
    CountedRange,
    LandedPiece,
    audit,
    in_force,
    pieces_in_bytes,
)

P = Partition("orders", 0)
APP = "rangeland/orders"


def landing(sequence: int, first: int, until: int, counts: Counts, **more: Any) -> Any:
    entry = RangeEntry(Range(P, first, until, "id"), counts, **more)
    return None, OutcomeEvent(APP, "orders", sequence, "hash", (entry,), (), 1)


def lost(first: int, until: int, plan_hash: str = "hash") -> LossEvent:
    loss = Loss(P, first, until, LossKind.TRUNCATED, "the log ends before them")
    return LossEvent(APP, "orders", 1, loss, 1, 1, plan_hash)


@pytest.mark.parametrize("in_bytes", [True, False])
def test_a_range_whose_log_ended_is_proved_though_its_end_was_landed_later(in_bytes: bool) -> None:
    landings = [
        landing(1, 0, 100, Counts(landed=7, lost=40), in_bytes=in_bytes),
        landing(2, 60, 100, Counts(landed=4), in_bytes=in_bytes),
    ]
    pieces = in_force(pieces_of(cast(Any, landings), [lost(60, 100)]))
    assert [(p.range.from_offset, p.range.until_offset, p.landed) for p in pieces] == [
        (0, 60, 7),
        (60, 100, 4),
    ]
    assert all(piece.in_bytes is in_bytes for piece in pieces)
    if in_bytes:
        assert set(pieces_in_bytes(pieces)) == {P}
        assert audit(pieces, {}, {P: CountedRange((7, 4))}).unproved == ()
    else:
        assert audit(pieces, {}).unproved == ()


def test_what_is_recorded_offset_by_offset_or_not_lost_by_this_landing_stays_whole() -> None:
    known = landing(1, 0, 100, Counts(landed=60, lost=40), gaps=((60, 100),))
    assert pieces_of(cast(Any, [known]), [lost(60, 100)]) == [
        LandedPiece(Range(P, 0, 100, "id"), 60, ((60, 100),))
    ]
    unknown = landing(1, 0, 100, Counts(landed=7, lost=40))
    for losses in ([lost(60, 100, "")], [lost(40, 60)]):
        (piece,) = pieces_of(cast(Any, [unknown]), losses)
        assert piece == LandedPiece(Range(P, 0, 100, "id"), 7)
