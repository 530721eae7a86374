"""The values that all packages share. Their methods depend only on their own fields.

A *Bound* is a request; an *Offset* (plain ``int``) is what it was resolved to. The two are never
mixed, and the -1 and -2 of the protocols never leave ``dialects/``. ``from_offset`` is inclusive
and ``until_offset`` exclusive everywhere. Sizes are in bytes, instants in ms since 1970 (UTC).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum


@dataclass(frozen=True, slots=True, order=True)
class Partition:
    """One partition (or queue) of a topic."""

    topic: str
    number: int
    broker: str = ""
    """Set if the dialect numbers partitions per broker, otherwise empty."""

    def __str__(self) -> str:
        return f"{self.topic}/{self.broker + '-' if self.broker else ''}{self.number}"

    @property
    def of_any_broker(self) -> Partition:
        """The name that a job uses for the partitions with this number on all brokers."""
        return Partition(self.topic, self.number)


# --- bounds: the request -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Earliest:
    """The log start offset when the plan is made."""


@dataclass(frozen=True, slots=True)
class Latest:
    """The end of the log when the plan is made: the last stable offset under
    ``read_committed``, the high watermark under ``read_uncommitted``."""


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first offset whose timestamp is at or after ``time_ms``; the end if there is none."""

    time_ms: int


@dataclass(frozen=True, slots=True)
class AtOffset:
    """Exactly this offset."""

    offset: int


@dataclass(frozen=True, slots=True)
class FromCheckpoint:
    """The offset at which the last landed outcome of this job ended."""


@dataclass(frozen=True, slots=True)
class GroupOffset:
    """The offset that a consumer group has committed."""

    group: str


Bound = Earliest | Latest | AtTime | AtOffset | FromCheckpoint | GroupOffset


@dataclass(frozen=True, slots=True)
class Bounds:
    """One end of the requested ranges: a bound for all partitions, and exceptions by partition."""

    default: Bound
    listed: Mapping[Partition, Bound] = field(default_factory=dict)
    """The exceptions. An exception without a broker applies to the partitions with that number on
    all brokers."""
    only_listed: bool = False
    """Partitions that are not listed are not part of the request."""

    @property
    def every(self) -> tuple[Bound, ...]:
        """All bounds of the request, for any partition."""
        return (*(() if self.only_listed else (self.default,)), *self.listed.values())

    def of(self, partition: Partition) -> Bound | None:
        for name in (partition, partition.of_any_broker):
            if name in self.listed:
                return self.listed[name]
        return None if self.only_listed else self.default


# --- the survey: the state of the cluster -------------------------------------------------


@dataclass(frozen=True, slots=True, order=True)
class Address:
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Cluster:
    """The cluster that a log belongs to."""

    id: str = ""
    """The cluster's own id, or the name that the job gives it; empty if there is neither."""
    addresses: tuple[str, ...] = ()
    """Its brokers and the servers in the job; if there are very many, not all of them."""

    def is_other(self, than: Cluster) -> bool:
        """True unless there is evidence that both are the same: the same id or, without ids, a
        common address, since brokers move one at a time. A job may also name a cluster by one of
        its earlier addresses."""
        if self.id and than.id:
            return self.id != than.id
        return self.names.isdisjoint(than.names)

    @property
    def names(self) -> frozenset[str]:
        """Its id and addresses."""
        return frozenset({self.id, *self.addresses} - {""})

    def __str__(self) -> str:
        return self.id or f"at {', '.join(self.addresses[:3])}"


class Isolation(StrEnum):
    READ_COMMITTED = "read_committed"
    READ_UNCOMMITTED = "read_uncommitted"


@dataclass(frozen=True, slots=True)
class Leader:
    """The broker that serves a partition now, and its possible successors."""

    address: Address | None
    epoch: int | None = None
    """The leader epoch; None if the broker is too old to have epochs."""
    topic_id: str | None = None
    """The topic's id; None if the broker is too old to have topic ids."""
    replicas: tuple[Address, ...] = ()
    replica_ids: tuple[int, ...] = ()
    """The ids of ``replicas``, in the same order, if the dialect has them."""
    is_replica: bool = False
    """The leader is down, and this replica serves the partition. It may lag behind."""
    copies: int = 0
    """How many replicas the partition has, including those that are down; 0 if unknown."""


@dataclass(frozen=True, slots=True)
class LogState:
    """One partition's log at the time of the survey."""

    partition: Partition
    leader: Leader
    start_offset: int
    end_offset: int
    """The end of the log for the requested isolation."""
    size_bytes: int | None = None
    """The size on the leader's disk; None if unknown."""
    borders: tuple[int, ...] | None = None
    """The offsets at which the log may be cut, sorted; None if it may be cut at any offset."""
    epoch_is_read: bool = False
    """The leader's epoch was taken from the last batch, since the broker does not report it. The
    epoch may be older than the leader's."""
    epoch_end: int | None = None
    """The end of the checkpoint's leader epoch, if the leader has changed since."""
    expires_until: int | None = None
    """The first offset that retention will not have removed by the time everything is expected to
    have been read; None if unknown."""

    def to_slice(self, index: int = 0, from_offset: int | None = None) -> Slice:
        """The log, or its part from an offset on, as one slice."""
        return Slice(
            index,
            self.partition,
            self.start_offset if from_offset is None else from_offset,
            self.end_offset,
            topic_id=self.leader.topic_id,
            leader=self.leader.address,
        )


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """The transaction that delays the last stable offset; it begins at ``first_offset``. Fields
    that the broker does not report are None."""

    first_offset: int
    producer_id: int | None = None
    producer_epoch: int | None = None
    last_write_ms: int | None = None
    """The timestamp of its producer's last batch."""


@dataclass(frozen=True, slots=True)
class Retention:
    """The age and size at which a topic's old records are removed."""

    ms: int | None = None
    """How old records may become; None if there is no such limit or it is unknown."""
    bytes: int | None = None
    """How large a log may become; None if there is no such limit, or it is unknown."""


@dataclass(frozen=True, slots=True)
class OffsetLookups:
    """The offsets that the cluster reports for the bounds of a job in its logs."""

    for_times: Mapping[tuple[Partition, int], int | None] = field(default_factory=dict)
    """The offset for each (partition, time_ms); None if no record is that late."""
    inexact_times: frozenset[tuple[Partition, int]] = frozenset()
    """The keys of ``for_times`` whose offset may be before the exact one."""
    of_groups: Mapping[tuple[Partition, str], int | None] = field(default_factory=dict)
    """The offset of each (partition, group); None if the group has committed none there."""
    entries: Mapping[tuple[Partition, int], tuple[int, int]] = field(default_factory=dict)
    """The beginning and end of the entry around a requested offset that may be inside one."""
    uncommitted_ends: Mapping[Partition, int] = field(default_factory=dict)
    """The ends of logs including uncommitted records, for logs whose committed records end before a
    requested offset because of an open transaction."""


@dataclass(frozen=True, slots=True)
class AbsentPartitions:
    """The reasons why a survey may have no log for a partition."""

    excluded: frozenset[Partition] = frozenset()
    """Existing partitions that the job leaves out."""
    unreachable: Mapping[Partition, str] = field(default_factory=dict)
    """Partitions without a leader, and why."""
    unseen_topics: frozenset[str] = frozenset()
    """Topics that do not exist or are not visible to this client."""
    answered_brokers: frozenset[str] = frozenset()
    """The brokers that listed all of their partitions, if brokers have names."""
    unanswered_brokers: Mapping[str, str] = field(default_factory=dict)
    """The brokers that did not answer, and why, if brokers have names."""
    partly_listed_brokers: Mapping[str, str] = field(default_factory=dict)
    """The brokers that may have listed some of their partitions only, and why."""

    def why_unreachable(self, partition: Partition) -> str | None:
        """The reason why a partition has no leader now, or why the only broker that knows it does
        not answer. None if it is served or gone."""
        if partition in self.unreachable:
            return self.unreachable[partition]
        if partition.broker == "" or partition.broker in self.answered_brokers:
            return None
        reasons = {**self.partly_listed_brokers, **self.unanswered_brokers}
        why = reasons.get(partition.broker, "no broker of that name is registered")
        return f"broker {partition.broker}: {why}"


@dataclass(frozen=True, slots=True)
class Survey:
    """The state of all partitions of all topics of a job at one moment."""

    taken_at_ms: int
    logs: Mapping[Partition, LogState]
    lookups: OffsetLookups = field(default_factory=OffsetLookups)
    absent: AbsentPartitions = field(default_factory=AbsentPartitions)
    retention: Mapping[str, Retention] = field(default_factory=dict)
    """The retention of each topic, if it is known."""
    confirmed_by: Mapping[Partition, str] = field(default_factory=dict)
    """The brokers that have confirmed an unexpected response about a partition."""
    cluster: Cluster | None = None
    """The surveyed cluster; None if no broker was asked."""
    reports_versions: Mapping[Address, bool] = field(default_factory=dict)
    """Whether each broker that was contacted reports its API versions; old ones do not."""
    requests: int = 0
    """How many requests the survey has sent."""


# --- the plan: what will be read --------------------------------------------------------


class OffsetInterval:
    """The base of values about ``[from_offset, until_offset)`` of one partition."""

    __slots__ = ()
    partition: Partition
    from_offset: int
    until_offset: int

    @property
    def interval(self) -> tuple[int, int]:
        return self.from_offset, self.until_offset

    @property
    def width(self) -> int:
        return self.until_offset - self.from_offset

    def overlaps(self, other: OffsetInterval) -> bool:
        """Whether they share offsets of a partition."""
        return (
            self.partition == other.partition
            and self.from_offset < other.until_offset
            and other.from_offset < self.until_offset
        )

    def __str__(self) -> str:
        return f"{self.partition} [{self.from_offset}, {self.until_offset})"


@dataclass(frozen=True, slots=True, order=True)
class Range(OffsetInterval):
    """``[from_offset, until_offset)`` of one partition: the unit of proof and of coverage."""

    partition: Partition
    from_offset: int
    until_offset: int
    topic_id: str | None = None
    estimated_bytes: int = 0

    def has(self, partition: Partition, offset: int) -> bool:
        return self.partition == partition and self.from_offset <= offset < self.until_offset


@dataclass(frozen=True, slots=True)
class Slice(OffsetInterval):
    """A section of a range that is read on its own. The slices of a range cover it exactly."""

    index: int
    partition: Partition
    from_offset: int
    until_offset: int
    estimated_bytes: int = 0
    topic_id: str | None = None
    leader: Address | None = None
    """The broker to ask first: a hint that may be stale when the slice is read."""
    is_urgent: bool = False
    """Retention may remove it soon, so it is read before others."""
    leader_epoch: int | None = None
    """The leader epoch of its log when it was planned, if known. Tasks need it; a plan's document
    has it only in the checkpoint (see ``plan.in_planned_epochs``)."""


# --- the result of reading ----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Counts:
    """A class for every offset of a range; the sum must equal its width. Where offsets are
    bytes, ``landed`` still counts records, and ``lost`` counts bytes."""

    landed: int = 0
    """Offsets with a row in the table."""
    control: int = 0
    """Transaction markers."""
    aborted: int = 0
    """Records of transactions that were rolled back."""
    compacted: int = 0
    """Offsets that log compaction has removed, while their neighbours are still there."""
    filtered: int = 0
    """Records without a row: the transform made none, or they lack the requested tags."""
    quarantined: int = 0
    """Offsets that are kept as raw bytes."""
    lost: int = 0
    """Offsets that cannot be read; a policy let the run continue without them."""

    @property
    def total(self) -> int:
        return sum(getattr(self, name) for name in COUNT_NAMES)

    def __add__(self, other: Counts) -> Counts:
        return Counts(*(getattr(self, name) + getattr(other, name) for name in COUNT_NAMES))

    @staticmethod
    def sum(parts: Iterable[Counts]) -> Counts:
        total = Counts()
        for part in parts:
            total = total + part
        return total


COUNT_NAMES: tuple[str, ...] = tuple(f.name for f in fields(Counts))


@dataclass(frozen=True, slots=True)
class DataFile:
    """One Parquet file that has been written but not yet committed."""

    path: str
    """The path relative to the table, with ``/``."""
    size_bytes: int
    rows: int
    """How many rows it has."""
    stats: str
    """Delta's statistics JSON: ``numRecords``, ``minValues``, ``maxValues``, ``nullCount``."""
    modified_at_ms: int
    partition_values: dict[str, str | None] = field(default_factory=dict)
    """The values of the partition columns, as Delta's strings; None for null."""
