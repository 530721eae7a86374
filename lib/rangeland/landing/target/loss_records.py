"""Losses as the ledger records them, with an outcome or without one. Pure.

One entry for each loss: those in a plan; those that its receipts have skipped, quarantined or held;
and those that a policy has held or skipped before anything was read.

It is written once. The losses of an outcome are part of its commit. Those without one have a
transaction named after their content, so the hundredth run that sees a loss adds nothing. Those
beside a plan are written before it is entered: a driver that finds it entered has none to report.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from rangeland.delta.ledger.events import LossEvent
from rangeland.errors import BadRecord, RangelandError, RangeLost, UndecodablePayload
from rangeland.grouping import by_partition
from rangeland.loss import Action, DecidedLoss, Loss, LossKind
from rangeland.planning.intervals import Interval, merge
from rangeland.planning.loss_errors import range_lost_error
from rangeland.planning.plan import Plan
from rangeland.planning.slice_receipt import Receipt


def losses_of(
    plan: Plan, receipts: Mapping[int, Receipt], now_ms: int, attempt: int = 0
) -> list[LossEvent]:
    """The losses of an outcome, in the order of the log."""
    ids = _topic_ids(plan)
    found = [
        (replace(loss.with_action(Action.SKIP), topic_id=_topic_id(plan, loss)), plan.made_at_ms)
        for loss in plan.losses
    ] + [
        (replace(loss, topic_id=ids.get(receipt.slice_index)), now_ms)
        for receipt in receipts.values()
        for loss in receipt.losses
    ]
    found.sort(key=lambda one: (one[0].partition, one[0].from_offset))
    return [
        replace(_event_of(plan, loss, seen_at_ms, now_ms), plan_hash=plan.hash, attempt=attempt)
        for loss, seen_at_ms in found
    ]


def regrown_losses(plan: Plan, regrown: Mapping[DecidedLoss, int], now_ms: int) -> list[LossEvent]:
    """Losses in whose place other records were landed. They belong to no outcome: its counts have
    these offsets as landed."""
    ids = {r.partition: r.topic_id for r in plan.ranges}
    found = {replace(loss, topic_id=ids.get(loss.partition)): e for loss, e in regrown.items()}
    return [replace(_event_of(plan, loss, now_ms, now_ms), epoch=e) for loss, e in found.items()]


def losses_of_given_up(
    plan: Plan, losses: Iterable[Loss], now_ms: int, attempt: int = 0
) -> list[LossEvent]:
    """The losses that ended a plan without landing anything: recorded as failures, whatever the
    policy."""
    ids = {r.partition: r.topic_id for r in plan.ranges}
    seen = [replace(loss, topic_id=ids.get(loss.partition)) for loss in losses]
    failed = [_event_of(plan, loss.with_action(Action.FAIL), now_ms, now_ms) for loss in seen]
    return [replace(event, plan_hash=plan.hash, attempt=attempt) for event in failed]


def _event_of(plan: Plan, loss: DecidedLoss, seen_at_ms: int, now_ms: int) -> LossEvent:
    head = plan.application, plan.job, plan.sequence
    return LossEvent(*head, _as_recorded(loss), seen_at_ms, now_ms)


def seen_losses(
    application: str,
    job: str,
    sequence: int,
    seen: Iterable[DecidedLoss],
    seen_at_ms: int,
    now_ms: int,
) -> list[LossEvent]:
    """Losses without an outcome. ``sequence`` is what the run was about to land."""
    return [
        LossEvent(application, job, sequence, _as_recorded(loss), seen_at_ms, now_ms)
        for loss in seen
    ]


def _as_recorded(loss: DecidedLoss) -> DecidedLoss:
    """The loss as the ledger has it: certain, and not ending before it begins."""
    return replace(loss, until_offset=loss.from_offset + loss.width, is_sure=True)


def losses_in(error: RangelandError) -> list[DecidedLoss]:
    """The losses in the error that ended a run."""
    if isinstance(error, RangeLost):
        return [loss.with_action(Action.FAIL) for loss in error.losses]
    if not isinstance(error, BadRecord) or error.log is None:
        return []
    first = error.log.read_until or 0
    until = first
    if error.damage is not None:
        first = error.damage.base_offset
        until = max(first, error.damage.next_offset or first)
    evidence = f"{error.what}: {error.why}"
    is_intact = isinstance(error, UndecodablePayload)
    kind = LossKind.UNDECODABLE if is_intact else LossKind.CORRUPT
    loss = Loss(error.log.partition, first, until, kind, evidence)
    return [loss.with_action(Action.FAIL)]


def whole_log_error(plan: Plan, error: RangeLost) -> RangeLost:
    """The error with all that a plan would have read of the logs that are gone: a task knows only
    its own slices of them."""
    found = losses_in(error)
    if not any(loss.kind.traits.is_whole_log for loss in found):
        return error
    return range_lost_error(
        [
            replace(loss, from_offset=start, until_offset=until)
            for loss in found
            for start, until in _lost_with(plan, loss)
        ]
    )


def _lost_with(plan: Plan, loss: Loss) -> list[Interval]:
    """The offsets that are lost with a loss: where all of the log is gone, all that the plan reads
    of that incarnation of it."""
    if not loss.kind.traits.is_whole_log:
        return [loss.interval]
    slices = [s for s in plan.slices if s.partition == loss.partition]
    ids = {s.topic_id for s in slices if s.from_offset <= loss.from_offset < s.until_offset}
    return merge(s.interval for s in slices if s.topic_id in ids)


def _topic_ids(plan: Plan) -> dict[int, str | None]:
    """The topic id of each slice: a plan may have ranges of several incarnations."""
    found = {}
    ranges = by_partition(plan.ranges)
    for s in plan.slices:
        same_partition = ranges.get(s.partition, [])
        holding = [r for r in same_partition if r.from_offset <= s.from_offset < r.until_offset]
        ids = [r.topic_id for r in holding or same_partition]
        found[s.index] = s.topic_id or next(iter(ids), None)
    return found


def _topic_id(plan: Plan, loss: Loss) -> str | None:
    """The topic id of a plan's loss: of a range that holds it and that no slice reads there."""
    same_partition = [r for r in plan.ranges if r.partition == loss.partition]
    holding = [r for r in same_partition if r.from_offset <= loss.from_offset < r.until_offset]
    read = {
        s.topic_id
        for s in plan.slices
        if s.partition == loss.partition and s.from_offset <= loss.from_offset < s.until_offset
    }
    unread = [r for r in holding if r.topic_id not in read]
    return next((r.topic_id for r in unread or holding or same_partition), None)
