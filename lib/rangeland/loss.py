"""Offsets that cannot be landed: the kinds of loss, the actions that a policy may take, losses, and
the bytes that are quarantined for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, Final

from rangeland.model import OffsetInterval, Partition, Range


class Action(StrEnum):
    FAIL = "fail"
    SKIP = "skip"
    HOLD = "hold"
    QUARANTINE = "quarantine"


class LossKind(StrEnum):
    """Why requested offsets are not there."""

    EXPIRED = "expired"
    RECREATED = "recreated"
    TRUNCATED = "truncated"
    VANISHED = "vanished"
    CORRUPT = "corrupt"
    UNDECODABLE = "undecodable"
    """A record whose key or value does not fit the schema of the job."""
    MISSING = "missing"
    """The log continues after them, and nothing explains the gap."""
    UNREACHABLE = "unreachable"
    """Not lost: the partition has no leader now, or a transaction in it is open."""

    @property
    def traits(self) -> LossTraits:
        return TRAITS[self]


@dataclass(frozen=True, slots=True)
class LossTraits:
    """The traits that all losses of one kind share."""

    cause: str
    """The meaning of the loss, as recorded in the ledger."""
    remedy: str
    """How to continue if it ends a run."""
    actions: tuple[Action, ...] = (Action.FAIL, Action.SKIP, Action.HOLD)
    """The actions that a job file may choose."""
    read_again: tuple[Action, ...] = ()
    """With these actions, a plan is read once more if its log has lost such offsets while it was
    being read. If a log was truncated and written again, there is nothing to hold: its new records
    are read."""
    is_found_by_reading: bool = False
    """The loss is not visible in a survey."""
    is_whole_log: bool = False
    """The whole log is gone, not just these offsets."""
    is_still_to_come: bool = False
    """The log ended before these offsets. Records written there later are new, and will be
    landed."""
    is_for_good: bool = False
    """These offsets will never be in the log again."""
    is_before_log_start: bool = False
    """The log begins after these offsets, and its start keeps moving. So the loss may extend
    further when it is seen again, and excludes offsets that had landed before."""


TRAITS: Final[Mapping[LossKind, LossTraits]] = {
    LossKind.EXPIRED: LossTraits(
        "retention removed them before they were landed",
        "land what is left with `policy: {expired: skip}`, which records the gap, or with "
        "`--from earliest`; or restore the topic",
        is_for_good=True,
        is_before_log_start=True,
    ),
    LossKind.RECREATED: LossTraits(
        "the topic was deleted and created again: its offsets mean other records",
        "land the new topic from its beginning with `policy: {recreated: skip}`, or into another "
        "table",
        read_again=(Action.SKIP, Action.HOLD),
        is_whole_log=True,
        is_for_good=True,
    ),
    LossKind.TRUNCATED: LossTraits(
        "the log ends before them: it was truncated, or has not reached them yet",
        "ask for an end that the log has reached, or wait until it has; after an unclean leader "
        "election use `policy: {truncated: skip}`",
        read_again=(Action.SKIP,),
        is_still_to_come=True,
    ),
    LossKind.VANISHED: LossTraits(
        "the partition or its topic no longer exists",
        "take the topic or partition out of the job, or use `policy: {vanished: skip}`",
        is_whole_log=True,
    ),
    LossKind.CORRUPT: LossTraits(
        "their bytes cannot be decoded",
        "restore the log from a good replica, or go on without the entry with "
        "`policy: {corrupt: skip}`, which records what is lost",
        (Action.FAIL, Action.SKIP, Action.HOLD, Action.QUARANTINE),
        is_found_by_reading=True,
    ),
    LossKind.UNDECODABLE: LossTraits(
        "their keys or values do not fit the schema or the transform of the job",
        "correct the schema under `decode`, or go on without these records with "
        "`policy: {undecodable: quarantine}`, which keeps their bytes",
        (Action.FAIL, Action.SKIP, Action.QUARANTINE),
        is_found_by_reading=True,
    ),
    LossKind.MISSING: LossTraits(
        "the log has a gap there that nothing explains: the topic is not compacted",
        "restore the log from a good replica. If compaction made the gap, name the topic in "
        "`source.compacted`; to go on without the offsets use `policy: {missing: skip}`, which "
        "records them as lost",
        is_found_by_reading=True,
    ),
    LossKind.UNREACHABLE: LossTraits(
        "no broker serves them yet; nothing is lost",
        "start the broker, or wait until the transaction ends; then run again. If the broker is "
        "gone for good, use `policy: {unreachable: hold}`",
        (Action.FAIL, Action.HOLD),
    ),
}


@dataclass(frozen=True, slots=True)
class Loss(OffsetInterval):
    """Offsets ``[from_offset, until_offset)`` that cannot be read, why, and the evidence. The
    action is not decided yet, or is up to the caller: see ``DecidedLoss``."""

    partition: Partition
    from_offset: int
    until_offset: int
    kind: LossKind
    evidence: str
    is_sure: bool = True
    """False if it may turn out not to be a loss, so that it is not skipped."""
    topic_id: str | None = None
    """The incarnation of the topic that has lost them, if known."""

    @property
    def width(self) -> int:
        return max(0, self.until_offset - self.from_offset)

    @property
    def cause(self) -> str:
        return self.kind.traits.cause

    @property
    def range(self) -> Range:
        return Range(self.partition, *self.interval, self.topic_id)

    def with_action(self, action: Action) -> DecidedLoss:
        return DecidedLoss(*(getattr(self, f.name) for f in fields(Loss)), action=action)

    @property
    def facts(self) -> dict[str, Any]:
        """The loss as facts of an error, in the JSON form of plans."""
        return {
            **partition_facts(self.partition),
            "from_offset": self.from_offset,
            "until_offset": self.until_offset,
            "verdict": self.kind.value,
            "evidence": self.evidence,
        }

    def __str__(self) -> str:
        return f"{self.range} is {self.kind}"


@dataclass(frozen=True, slots=True)
class DecidedLoss(Loss):
    """A loss with its action."""

    action: Action = field(kw_only=True)


def partition_facts(partition: Partition) -> dict[str, Any]:
    """The facts that name a partition."""
    broker = partition.broker or None
    return {"topic": partition.topic, "partition": partition.number, "broker": broker}


# --- quarantine ---


@dataclass(frozen=True, slots=True)
class DamagedBytes:
    """The bytes of an entry that cannot be decoded, and what else is needed to decode them."""

    records: bytes
    """The bytes as they were received."""
    aborted: tuple[tuple[int, int], ...]
    """The aborted transactions, as in a fetch."""
    reason: str
    """Why the decoder refused them."""

    @property
    def size_bytes(self) -> int:
        return len(self.records)


@dataclass(frozen=True, slots=True)
class UndecodableRecords:
    """Intact records whose keys or values cannot be decoded."""

    rows: Any
    """An Arrow RecordBatch with the columns of ``decode.columns``, and why each record was
    refused."""
    reason: str

    @property
    def size_bytes(self) -> int:
        return int(self.rows.nbytes)


QuarantinedBytes = DamagedBytes | UndecodableRecords
"""The bytes of a loss, as they are in quarantine."""
