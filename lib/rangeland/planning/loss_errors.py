"""Losses that end a run, and the errors that say which offsets are lost, why, and how to
continue."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rangeland.errors import Conflict, RangeLost, Unreachable
from rangeland.grouping import group_by
from rangeland.loss import DecidedLoss, Loss, LossKind
from rangeland.wording import capitalise, count_noun


class QuarantinedBytesGone(Conflict):
    """The quarantine no longer has the bytes that it kept for some offsets."""


@dataclass(frozen=True, slots=True)
class FailingLosses:
    """Losses that end a run, because their policy is to fail or cannot be followed."""

    losses: tuple[DecidedLoss, ...]
    why_same_offsets: str = ""
    """Why offsets of a recreated topic, which the policy is to skip, cannot be distinguished from
    offsets of the earlier topic: they would count as landed."""


def failing_error(failing: FailingLosses) -> RangeLost | Unreachable:
    """One error for all losses that end a run. It is Unreachable if none of them is lost."""
    if all(loss.kind is LossKind.UNREACHABLE for loss in failing.losses):
        return unreachable_error(failing.losses)
    error = range_lost_error(failing.losses)
    if not failing.why_same_offsets:
        return error
    return error.with_words(
        why=f"{error.why}; {failing.why_same_offsets}, so the offsets of the new topic cannot be "
        "distinguished from those that have landed",
        do="land the new topic into another table",
    )


def unreachable_error(losses: Sequence[Loss]) -> Unreachable:
    """One error for all partitions without a leader, or whose transactions have to end."""
    more = f" and {len(losses) - 1} more" if len(losses) > 1 else ""
    return Unreachable(
        f"{losses[0].partition}{more} cannot be read now",
        why=losses[0].evidence,
        do="start the broker, or wait until the transaction ends; then run again. If the broker is "
        "gone for good, or the others are to land meanwhile, set `policy: {unreachable: hold}`: "
        "each run and backfill then lands the other partitions, and names these as held",
        partitions=[str(loss.partition) for loss in losses],
    )


def range_lost_error(losses: Sequence[Loss]) -> RangeLost:
    """One error for all losses: for each kind the first range, how many more there are, the cause,
    and how to continue."""
    kinds = group_by(losses, lambda loss: loss.kind)
    error = RangeLost(
        "; ".join(_name_losses(group) for group in kinds.values()),
        why="; ".join(_cause(group) for group in kinds.values()),
        do=_remedies(list(kinds)),
        losses=losses,
    )
    if not all(kind.traits.is_still_to_come for kind in kinds):
        return error
    return error.with_answers(
        data="no rows from this run were landed; the log does not have these offsets",
        retry="not before the log has reached them, and not at all if it was truncated",
    )


def _name_losses(losses: list[Loss]) -> str:
    first = losses[0]
    more = len(losses) - 1
    where = f"{first.partition} [{first.from_offset}, {first.until_offset}) {first.kind}"
    return f"{where}, and {count_noun(more, 'more range')}" if more else where


def _cause(losses: list[Loss]) -> str:
    """The evidence of the first loss; a recreated topic is a loss even without lost offsets."""
    width = sum(loss.width for loss in losses)
    evidence = losses[0].evidence
    return f"{evidence}; {count_noun(width, 'offset')} cannot be read" if width else evidence


def _remedies(kinds: list[LossKind]) -> str:
    if len(kinds) == 1:
        return kinds[0].traits.remedy
    first, *more = (f"if {kind}: {kind.traits.remedy}" for kind in kinds)
    return ". ".join((first, *map(capitalise, more)))
