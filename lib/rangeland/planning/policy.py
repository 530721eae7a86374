"""What to do about each kind of loss, as a value; decided here and nowhere else.

There is no boolean for "data loss". Each kind of loss has its own action: *fail* ends the run,
*skip* goes on and records the lost offsets, *hold* leaves that partition where it is and lands the
others, *quarantine* keeps the bytes of what cannot be decoded and goes on. Topics may have rules of
their own: the first rule whose pattern is the topic's name, or matches all of it, decides the kinds
that it names; the general policy decides the others.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from rangeland.model import Partition, Range
from rangeland.patterns import matches


class LossKind(StrEnum):
    """A reason why offsets that were asked for are not there."""

    EXPIRED = "expired"
    RECREATED = "recreated"
    TRUNCATED = "truncated"
    VANISHED = "vanished"
    CORRUPT = "corrupt"
    UNDECODABLE = "undecodable"
    """A record whose key or value does not fit the schema of the job."""
    MISSING = "missing"
    """The log goes on after them, and nothing explains the gap."""
    UNREACHABLE = "unreachable"
    """Not lost: the partition has no leader now, or a transaction in it is open. Never skipped."""


FOUND_BY_READING = (LossKind.CORRUPT, LossKind.MISSING, LossKind.UNDECODABLE)
"""A survey does not show these."""

WHOLE_LOG = (LossKind.RECREATED, LossKind.VANISHED)
"""All of the log is gone, not only these offsets."""

STILL_TO_COME = (LossKind.TRUNCATED,)
"""The log ended before these offsets. Records written there later are new, and will be landed."""

GONE_FOR_GOOD = (LossKind.EXPIRED, LossKind.RECREATED)
"""These offsets will never be in the log again."""

CAUSES = {
    LossKind.EXPIRED: "retention removed them before they were landed",
    LossKind.RECREATED: "the topic was deleted and created again: its offsets mean other records",
    LossKind.TRUNCATED: "the log ends before them: it was truncated, or has not reached them yet",
    LossKind.VANISHED: "the partition or its topic no longer exists",
    LossKind.CORRUPT: "their bytes cannot be decoded",
    LossKind.UNDECODABLE: "their keys or values do not fit the schema or the transform of the job",
    LossKind.MISSING: "the log has a gap there that nothing explains: the topic is not compacted",
    LossKind.UNREACHABLE: "no broker serves them yet; nothing is lost",
}
"""What each kind means, as recorded in the ledger."""


class Action(StrEnum):
    FAIL = "fail"
    SKIP = "skip"
    HOLD = "hold"
    QUARANTINE = "quarantine"


READ_AGAIN = {
    LossKind.RECREATED: (Action.SKIP, Action.HOLD),
    LossKind.TRUNCATED: (Action.SKIP,),
}
"""With these actions a plan is read once more if its log has lost such offsets while it was read.
Where a log was truncated and written again, there is nothing to hold: what it has now is read."""


@dataclass(frozen=True, slots=True)
class TopicRule:
    """Actions for the topics that a pattern matches, for the kinds that it names."""

    pattern: str
    actions: tuple[tuple[LossKind, Action], ...]

    def matches(self, topic: str) -> bool:
        return topic == self.pattern or matches(self.pattern, topic)


@dataclass(frozen=True, slots=True)
class Policy:
    """One action per kind of loss, and ``topics`` that have their own."""

    expired: Action = Action.FAIL
    recreated: Action = Action.FAIL
    truncated: Action = Action.FAIL
    vanished: Action = Action.FAIL
    corrupt: Action = Action.FAIL
    undecodable: Action = Action.FAIL
    missing: Action = Action.FAIL
    unreachable: Action = Action.FAIL
    topics: tuple[TopicRule, ...] = ()

    @staticmethod
    def all(action: Action) -> Policy:
        """The same action for every kind."""
        return Policy(**{kind.value: action for kind in LossKind}, topics=())

    def of(self, kind: LossKind, topic: str) -> Action:
        rule = next((rule for rule in self.topics if rule.matches(topic)), None)
        own = dict(rule.actions).get(kind) if rule is not None else None
        general: Action = getattr(self, kind.value)
        return general if own is None else own

    def without_receipts(self) -> Policy:
        """The policy for reading without receipts or a quarantine, as a DataFrame: what would be
        held or quarantined fails. What may be skipped is left out silently."""

        def strict(action: Action) -> Action:
            return action if action is Action.SKIP else Action.FAIL

        general = {v.value: strict(getattr(self, v.value)) for v in LossKind}
        rules = [
            replace(rule, actions=tuple((v, strict(a)) for v, a in rule.actions))
            for rule in self.topics
        ]
        return Policy(**general, topics=tuple(rules))

    def ever(self, kind: LossKind, action: Action) -> bool:
        """True if this action applies to any topic."""
        rules = [dict(rule.actions).get(kind) for rule in self.topics]
        return action in (getattr(self, kind.value), *rules)


@dataclass(frozen=True, slots=True)
class Loss:
    """Offsets ``[from_offset, until_offset)`` that cannot be read, why, and the evidence."""

    partition: Partition
    from_offset: int
    until_offset: int
    kind: LossKind
    evidence: str
    action: Action = Action.SKIP
    """What is done about it, once that is decided."""
    is_sure: bool = True
    """False: it may turn out not to be a loss, so it is not skipped."""
    topic_id: str | None = None
    """The incarnation of the topic that has lost them, where it is known."""

    @property
    def interval(self) -> tuple[int, int]:
        return self.from_offset, self.until_offset

    @property
    def width(self) -> int:
        return max(0, self.until_offset - self.from_offset)

    @property
    def cause(self) -> str:
        return CAUSES[self.kind]

    @property
    def range(self) -> Range:
        return Range(self.partition, *self.interval, self.topic_id)

    def __str__(self) -> str:
        return f"{self.partition} [{self.from_offset}, {self.until_offset}) is {self.kind}"
