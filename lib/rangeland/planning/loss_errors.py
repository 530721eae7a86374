"""Turns losses into errors, which say which offsets are lost, why, and how to go on."""

from __future__ import annotations

from collections.abc import Sequence

from rangeland.errors import RangeLost, Unreachable
from rangeland.grouping import group_by
from rangeland.loss import Action, Loss, LossKind
from rangeland.planning.policy import Policy
from rangeland.wording import capitalise, count_noun


def unreachable_error(losses: Sequence[Loss]) -> Unreachable:
    """One error for all partitions without a leader, or whose transactions have to end."""
    more = f" and {len(losses) - 1} more" if len(losses) > 1 else ""
    return Unreachable(
        f"{losses[0].partition}{more} cannot be read now",
        why=losses[0].evidence,
        do="start the broker, or wait until the transaction ends; then run again. Or land the "
        "other partitions with `policy: {unreachable: hold}`",
        partitions=[str(loss.partition) for loss in losses],
    )


def range_lost_error(losses: Sequence[Loss]) -> RangeLost:
    """One error for all losses: for each kind the first range, how many more, the cause, and how
    to go on."""
    kinds = group_by(losses, lambda loss: loss.kind)
    return RangeLost(
        "; ".join(_name_losses(group) for group in kinds.values()),
        why="; ".join(_cause(group) for group in kinds.values()),
        do=_remedies(list(kinds)),
        losses=losses,
    )


def _name_losses(losses: list[Loss]) -> str:
    first, more = losses[0], len(losses) - 1
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


def check_has_topic_ids(policy: Policy, loss: Loss, reason: str) -> None:
    """Refuses a recreated topic if one of its incarnations has no topic id: its new offsets would
    count as landed, since the old ones are. Raises RangeLost where the policy would go on."""
    if policy.action_for(loss) is not Action.SKIP:
        return
    error = range_lost_error([loss])
    raise error.with_words(
        why=f"{error.why}; {reason}, so the offsets of the new topic cannot be distinguished "
        "from those that have landed",
        do="land the new topic into another table",
    )
