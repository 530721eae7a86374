"""Makes the ledger's records of losses, with an outcome or without one. Pure.

There is one record for each loss: those in a plan; those skipped, quarantined or held in its
receipts; and those that a policy held or skipped before anything was read.

Each record is written once. The losses of an outcome are part of its commit. Losses without an
outcome are compared with those in the ledger (``Ledger.record_losses``), so that the hundredth run
that sees a loss adds nothing. Losses that a draft has beside its plan are written before the plan
is entered, so that a driver that finds a plan in the ledger has none to write.
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
    losses = [
        (replace(loss.with_action(Action.SKIP), topic_id=_topic_id(plan, loss)), plan.made_at_ms)
        for loss in plan.losses
    ] + [
        (replace(loss, topic_id=ids.get(receipt.slice_index)), now_ms)
        for receipt in receipts.values()
        for loss in receipt.losses
    ]
    losses.sort(key=lambda pair: (pair[0].partition, pair[0].from_offset))
    return [
        replace(_event_of(plan, loss, seen_at_ms, now_ms), plan_hash=plan.hash, attempt=attempt)
        for loss, seen_at_ms in losses
    ]


def regrown_losses(plan: Plan, regrown: Mapping[DecidedLoss, int], now_ms: int) -> list[LossEvent]:
    """Losses at whose offsets other records were landed. They belong to no outcome, since an
    outcome counts these offsets as landed."""
    losses = {replace(loss, topic_id=_only_topic_id(plan, loss)): e for loss, e in regrown.items()}
    return [replace(_event_of(plan, loss, now_ms, now_ms), epoch=e) for loss, e in losses.items()]


def losses_of_given_up(
    plan: Plan, losses: Iterable[Loss], now_ms: int, attempt: int = 0
) -> list[LossEvent]:
    """The losses that ended a plan before anything landed: recorded as failures, whatever the
    policy."""
    failures = [
        replace(loss.with_action(Action.FAIL), topic_id=_only_topic_id(plan, loss))
        for loss in losses
    ]
    events = [_event_of(plan, loss, now_ms, now_ms) for loss in failures]
    return [replace(event, plan_hash=plan.hash, attempt=attempt) for event in events]


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
    """Losses without an outcome. ``sequence`` is the one that the run was about to land."""
    return [
        LossEvent(
            application=application,
            job=job,
            sequence=sequence,
            loss=_as_recorded(loss),
            seen_at_ms=seen_at_ms,
            written_at_ms=now_ms,
        )
        for loss in seen
    ]


def _as_recorded(loss: DecidedLoss) -> DecidedLoss:
    """The loss as the ledger records it: certain, and not ending before it begins."""
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
    """The error with all ranges that the plan would have read from the logs that are gone: a task
    knows only its own slices."""
    losses = losses_in(error)
    if not any(loss.kind.traits.is_whole_log for loss in losses):
        return error
    return range_lost_error(
        [
            replace(loss, from_offset=start, until_offset=until)
            for loss in losses
            for start, until in _lost_with(plan, loss)
        ]
    )


def _lost_with(plan: Plan, loss: Loss) -> list[Interval]:
    """All offsets that are lost with a loss: if the whole log is gone, everything that the plan
    reads of that incarnation."""
    if not loss.kind.traits.is_whole_log:
        return [loss.interval]
    slices = [s for s in plan.slices if s.partition == loss.partition]
    ids = {s.topic_id for s in slices if s.from_offset <= loss.from_offset < s.until_offset}
    return merge(s.interval for s in slices if s.topic_id in ids)


def _topic_ids(plan: Plan) -> dict[int, str | None]:
    """The topic id of each slice: a plan may have ranges of several incarnations."""
    topic_ids = {}
    ranges = by_partition(plan.ranges)
    for s in plan.slices:
        same_partition = ranges.get(s.partition, [])
        containing = [r for r in same_partition if r.from_offset <= s.from_offset < r.until_offset]
        ids = [r.topic_id for r in containing or same_partition]
        topic_ids[s.index] = s.topic_id or next(iter(ids), None)
    return topic_ids


def _only_topic_id(plan: Plan, loss: Loss) -> str | None:
    """The topic id of a loss whose offsets alone are known; None if the plan has these offsets of
    several incarnations."""
    same_partition = [r for r in plan.ranges if r.partition == loss.partition]
    containing = [r for r in same_partition if r.has(loss.partition, loss.from_offset)]
    ids = {r.topic_id for r in containing or same_partition}
    return ids.pop() if len(ids) == 1 else None


def _topic_id(plan: Plan, loss: Loss) -> str | None:
    """The topic id of a plan's loss: the id of a range that contains the loss and that no slice
    reads there."""
    same_partition = [r for r in plan.ranges if r.partition == loss.partition]
    containing = [r for r in same_partition if r.from_offset <= loss.from_offset < r.until_offset]
    ids_read = {
        s.topic_id
        for s in plan.slices
        if s.partition == loss.partition and s.from_offset <= loss.from_offset < s.until_offset
    }
    unread = [r for r in containing if r.topic_id not in ids_read]
    return next((r.topic_id for r in unread or containing or same_partition), None)
