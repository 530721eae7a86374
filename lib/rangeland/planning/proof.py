"""Proves that every offset of a plan's ranges has exactly one class; otherwise, nothing is
committed.

Receipts say what became of slices. Together with the plan's losses, they must tile its ranges, and
their counts must add up to the widths. If a policy holds a partition at an offset, its range is
shortened to the offsets that are accounted for. A plan may have the same offsets of several
incarnations of a topic: what is known about one proves nothing about another.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from rangeland.errors import ProofFailed
from rangeland.loss import Action, Loss
from rangeland.model import COUNT_NAMES, Counts, Partition, Range, Slice
from rangeland.planning.incarnation import may_be_same
from rangeland.planning.intervals import Interval, merge, subtract, width
from rangeland.planning.plan import Plan
from rangeland.planning.slice_receipt import RangeResult, Receipt

REPORT = "report this with the plan; nothing was committed"


class _AccountedOffsets(NamedTuple):
    """The offsets that a slice or a loss accounts for, in ``[start, end)``. ``offsets``: how many
    they are. ``address``: that of the receipt."""

    topic_id: str | None
    start: int
    end: int
    counts: Counts
    rowless: tuple[Interval, ...] | None
    offsets: int
    address: str = ""

    @staticmethod
    def of_slice(s: Slice, receipt: Receipt) -> _AccountedOffsets:
        return _AccountedOffsets(
            s.topic_id,
            *receipt.interval,
            receipt.counts,
            receipt.rowless,
            receipt.offsets,
            receipt.address,
        )

    @staticmethod
    def of_loss(loss: Loss) -> _AccountedOffsets:
        # A plan does not record to which incarnation its losses belong.
        counts = Counts(lost=loss.width)
        return _AccountedOffsets(None, *loss.interval, counts, (loss.interval,), loss.width)


def prove(plan: Plan, receipts: Mapping[int, Receipt]) -> list[RangeResult]:
    """The plan's ranges with a class for each of their offsets. If reading stopped in order to hold
    a partition, its range is shortened to the offsets that are accounted for.

    Raises ProofFailed, which names the slice or range that does not add up: a slice without a
    receipt, a receipt of other offsets, counts whose sum is not the width, and slices or receipts
    outside all ranges."""
    for s in plan.slices:
        receipt = receipts.get(s.index)
        if receipt is None:
            raise ProofFailed(
                f"slice {s.index} ({s}) was not read to its end",
                why="no task has returned a receipt for it",
                do=REPORT,
                slice=s.index,
            )
        _check_receipt_adds_up(s, receipt)
    accounted: dict[Partition, list[_AccountedOffsets]] = {}
    not_read: dict[Partition, list[Range]] = {}
    for s in plan.slices:
        receipt = receipts[s.index]
        if receipt.held is not None:
            unread = Range(s.partition, receipt.until_offset, s.until_offset, s.topic_id)
            not_read.setdefault(s.partition, []).append(unread)
        accounted.setdefault(s.partition, []).append(_AccountedOffsets.of_slice(s, receipt))
    for loss in plan.losses:
        accounted.setdefault(loss.partition, []).append(_AccountedOffsets.of_loss(loss))
    _check_slices_inside(plan, receipts)
    of_bytes = {r.partition for r in receipts.values() if r.offsets_are_bytes}
    return [
        replace(
            _prove_range(r, accounted.get(r.partition, [])),
            offsets_are_bytes=r.partition in of_bytes,
        )
        for whole in plan.ranges
        for r in _without_held(whole, not_read.get(whole.partition, []))
    ]


def prove_part(plan: Plan, receipts: Mapping[int, Receipt]) -> None:
    """Like ``prove``, for the slices of a plan that were read."""
    slices = tuple(s for s in plan.slices if s.index in receipts)
    ranges = tuple(Range(s.partition, *s.interval, s.topic_id) for s in slices)
    prove(replace(plan, ranges=ranges, slices=slices, losses=()), receipts)


def _without_held(r: Range, not_read: Iterable[Range]) -> list[Range]:
    """The range without the part of its incarnation that was held."""
    held = [one.interval for one in not_read if may_be_same(one.topic_id, r.topic_id)]
    if not held:
        return [r]
    return [
        replace(
            r, from_offset=a, until_offset=b, estimated_bytes=r.estimated_bytes * (b - a) // r.width
        )
        for a, b in subtract(r.interval, held)
    ]


def _check_slices_inside(plan: Plan, receipts: Mapping[int, Receipt]) -> None:
    """Raises ProofFailed for slices outside the ranges, which would land without being counted."""
    unplanned = receipts.keys() - {s.index for s in plan.slices}
    if unplanned:
        raise ProofFailed(
            f"there are receipts for slices {sorted(unplanned)}, which the plan does not have",
            do=REPORT,
        )
    planned = sum(s.width for s in plan.slices) + sum(loss.width for loss in plan.losses)
    if planned != plan.width:
        raise ProofFailed(
            f"the slices and losses of the plan are {planned} offsets, its ranges {plan.width}",
            do=REPORT,
        )


def _check_receipt_adds_up(s: Slice, receipt: Receipt) -> None:
    held = receipt.held
    held_until = receipt.until_offset if held is None else held.until_offset
    lost = _width(receipt, Action.SKIP)
    counts = receipt.counts
    adds_up = (
        (receipt.partition, receipt.from_offset, held_until) == (s.partition, *s.interval)
        and (held is None or held.from_offset == receipt.until_offset)
        and receipt.offsets == receipt.until_offset - receipt.from_offset
        and all(getattr(counts, name) >= 0 for name in COUNT_NAMES)
        and _width(receipt, Action.QUARANTINE) == counts.quarantined
        and (receipt.rowless is None or width(receipt.rowless) == counts.total - counts.landed)
        and lost == counts.lost
    )
    if not adds_up:
        raise ProofFailed(
            f"slice {s.index} ({s}) does not add up",
            why=f"its receipt is for [{receipt.from_offset}, {receipt.until_offset}) of "
            f"{receipt.partition} and accounts for {receipt.offsets} of {s.width} offsets, "
            f"with losses of {lost} and rowless offsets {receipt.rowless}: {counts}",
            do=REPORT,
            slice=s.index,
        )


def _width(receipt: Receipt, action: Action) -> int:
    return sum(loss.width for loss in receipt.losses_by(action))


def _prove_range(r: Range, accounted: Iterable[_AccountedOffsets]) -> RangeResult:
    """Checks that the slices and losses of its incarnation tile the range, so that each offset is
    counted exactly once."""
    tiles = sorted(
        (
            a
            for a in accounted
            if may_be_same(a.topic_id, r.topic_id)
            and r.from_offset <= a.start < a.end <= r.until_offset
        ),
        key=lambda a: a.start,
    )
    next_offset = r.from_offset
    for tile in tiles:
        if tile.start != next_offset:
            break
        next_offset = tile.end
    counts = Counts.sum(tile.counts for tile in tiles)
    offsets = sum(tile.offsets for tile in tiles)
    if next_offset != r.until_offset or offsets != r.width:
        raise ProofFailed(
            f"{r} does not add up",
            why=f"its slices and losses are continuous up to {next_offset} and account for "
            f"{offsets} of {r.width} offsets: {counts}",
            do=REPORT,
        )
    address = next((tile.address for tile in reversed(tiles) if tile.address), "")
    if any(tile.rowless is None for tile in tiles):
        return RangeResult(r, counts, address)
    rowless = merge(interval for tile in tiles for interval in tile.rowless or ())
    return RangeResult(r, counts, address, tuple(rowless))
