"""Offsets that cannot be landed: the kinds of loss, what can be done about one, and a loss."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from rangeland.model import Partition, Range


class LossKind(StrEnum):
    """Why offsets that were asked for are not there."""

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

    @property
    def facts(self) -> dict[str, Any]:
        """As in the JSON form of plans."""
        return {
            **partition_facts(self.partition),
            "from_offset": self.from_offset,
            "until_offset": self.until_offset,
            "verdict": self.kind.value,
            "evidence": self.evidence,
        }

    def __str__(self) -> str:
        return f"{self.partition} [{self.from_offset}, {self.until_offset}) is {self.kind}"


def partition_facts(partition: Partition) -> dict[str, Any]:
    """How facts name a partition."""
    broker = partition.broker or None
    return {"topic": partition.topic, "partition": partition.number, "broker": broker}
