"""The frozen nouns every room speaks in. No behaviour beyond arithmetic on themselves.

A *Bound* is what was asked for, an *Offset* (plain ``int``) is what it resolved to: they
never mix, and the -1 and -2 of the wire never leave ``dialects/``. ``from_offset`` is
inclusive and ``until_offset`` exclusive everywhere. Sizes are bytes, instants are
milliseconds since 1970 in UTC, and both say so in their names.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from enum import StrEnum


@dataclass(frozen=True, slots=True, order=True)
class Partition:
    """One partition (or queue) of a topic. ``broker`` is set only where a dialect numbers
    its partitions per broker; elsewhere it is empty and means nothing."""

    topic: str
    number: int
    broker: str = ""

    def __str__(self) -> str:
        return f"{self.topic}/{self.broker + '-' if self.broker else ''}{self.number}"

    @property
    def of_any_broker(self) -> Partition:
        """How a job names the partitions of this number of all brokers at once."""
        return Partition(self.topic, self.number)


# --- bounds: what was asked -------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Earliest:
    """The first offset that is in the log when the plan is made."""


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
    """Where the last landed outcome of this job ended."""


@dataclass(frozen=True, slots=True)
class GroupOffset:
    """What a consumer group has committed."""

    group: str


Bound = Earliest | Latest | AtTime | AtOffset | FromCheckpoint | GroupOffset


@dataclass(frozen=True, slots=True)
class Bounds:
    """One side of what was asked: a bound for all partitions, and exceptions by partition. One
    without a broker is for the partition of that number of each broker that has one.

    With ``only_listed`` a partition without an entry is not part of the request."""

    default: Bound
    listed: dict[Partition, Bound] = field(default_factory=dict)
    only_listed: bool = False

    def of(self, partition: Partition) -> Bound | None:
        for named in (partition, partition.of_any_broker):
            if named in self.listed:
                return self.listed[named]
        return None if self.only_listed else self.default


# --- the survey: what the cluster said --------------------------------------------------


@dataclass(frozen=True, slots=True, order=True)
class Address:
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class VersionSupport(StrEnum):
    """Whether a broker can be asked which versions it takes: one that is ``old`` closes at the
    question, one that is ``mute`` says nothing."""

    YOUNG = "young"
    OLD = "old"
    MUTE = "mute"


@dataclass(frozen=True, slots=True)
class Cluster:
    """Which cluster a log belongs to. ``id`` is the cluster's own, or the name that the job
    gives it; empty where there is neither. ``addresses`` are those it was reached at: brokers
    and the servers of the job, some of them where there are very many."""

    id: str = ""
    addresses: tuple[str, ...] = ()

    def is_other(self, than: Cluster) -> bool:
        """True unless there is evidence that both are the same: an id, or else an address that
        both have, since brokers move one at a time. A job may also call a cluster by one of the
        addresses that it had."""
        if self.id and than.id:
            return self.id != than.id
        return self.names.isdisjoint(than.names)

    @property
    def names(self) -> frozenset[str]:
        """All that it may be known by."""
        return frozenset({self.id, *self.addresses} - {""})

    def __str__(self) -> str:
        return self.id or f"at {', '.join(self.addresses[:3])}"


class Isolation(StrEnum):
    READ_COMMITTED = "read_committed"
    READ_UNCOMMITTED = "read_uncommitted"


@dataclass(frozen=True, slots=True)
class Leader:
    """Who serves a partition now, and who might next. ``topic_id`` and ``epoch`` are None
    where the broker is too old to have them. ``replica_ids`` are the ids of ``replicas``, in
    the same order, where a dialect has them. ``is_replica``: the leader is away and this is
    who stands in for it; it may be behind. ``copies``: how many replicas the partition has, with
    those that are down; 0 where that is not told."""

    address: Address | None
    epoch: int | None = None
    topic_id: str | None = None
    replicas: tuple[Address, ...] = ()
    replica_ids: tuple[int, ...] = ()
    is_replica: bool = False
    copies: int = 0


@dataclass(frozen=True, slots=True)
class LogState:
    """What one partition's log looked like at survey time.

    ``end_offset`` already honours the isolation that was asked for. ``size_bytes`` is the
    leader's size on disk, None where it could not be had. ``borders``: the offsets at which
    the log may be cut, sorted, where not every offset will do; None where it does.
    ``epoch_is_read``: the leader's epoch is the one of the last batch, since the broker tells
    none of its own; it may be older than the leader."""

    partition: Partition
    leader: Leader
    start_offset: int
    end_offset: int
    size_bytes: int | None = None
    borders: tuple[int, ...] | None = None
    epoch_is_read: bool = False


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """The transaction that ends what may be read as committed: it begins at ``first_offset``.
    ``last_write_ms``: the timestamp of its producer's last batch. None: the broker does not
    report it."""

    first_offset: int
    producer_id: int | None = None
    producer_epoch: int | None = None
    last_write_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Retention:
    """When a topic's old records are removed: as old as ``ms``, or where a log is larger than
    ``bytes``. None: never for that reason, or not told."""

    ms: int | None = None
    bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Survey:
    """All partitions of all topics of a job, in one look. ``offsets_for_times`` maps
    (partition, time_ms) to the offset found, or None where no record is that late; those in
    ``inexact`` are at or before it. ``elsewhere`` are partitions that are there and that the
    job leaves out. ``entries`` has, for offsets that were asked for and that entries might
    not begin at, where the entry they are in begins and ends.

    ``epoch_ends``: where the records of the checkpoint's leader epoch end, of partitions whose
    leader has changed since. ``agreed``: what was odd and was asked again, and who said the same.

    ``retention`` is by topic, as far as it was told. ``expiring``: the first offset that will
    not be too old by the time that all is expected to be read.

    ``unreachable`` are partitions that nobody serves, and why. Where brokers have names,
    ``brokers`` are those that answered: of the others' partitions nothing is known. ``hidden``
    are topics that are not there, or are not shown to this client. ``ages`` are those of the
    brokers that were connected to. ``cluster`` is None where nobody was asked."""

    taken_at_ms: int
    logs: dict[Partition, LogState]
    offsets_for_times: dict[tuple[Partition, int], int | None] = field(default_factory=dict)
    group_offsets: dict[tuple[Partition, str], int | None] = field(default_factory=dict)
    requests: int = 0
    elsewhere: frozenset[Partition] = frozenset()
    inexact: frozenset[tuple[Partition, int]] = frozenset()
    entries: dict[tuple[Partition, int], tuple[int, int]] = field(default_factory=dict)
    unreachable: dict[Partition, str] = field(default_factory=dict)
    brokers: frozenset[str] = frozenset()
    silent: dict[str, str] = field(default_factory=dict)
    hidden: frozenset[str] = frozenset()
    epoch_ends: dict[Partition, int] = field(default_factory=dict)
    agreed: dict[Partition, str] = field(default_factory=dict)
    retention: dict[str, Retention] = field(default_factory=dict)
    expiring: dict[Partition, int] = field(default_factory=dict)
    ages: dict[Address, VersionSupport] = field(default_factory=dict)
    cluster: Cluster | None = None


# --- the plan: what will be read --------------------------------------------------------


@dataclass(frozen=True, slots=True, order=True)
class Range:
    """``[from_offset, until_offset)`` of one partition: the unit of proof and of coverage."""

    partition: Partition
    from_offset: int
    until_offset: int
    topic_id: str | None = None
    estimated_bytes: int = 0

    @property
    def width(self) -> int:
        return self.until_offset - self.from_offset

    def __str__(self) -> str:
        return f"{self.partition} [{self.from_offset}, {self.until_offset})"


@dataclass(frozen=True, slots=True)
class Slice:
    """A piece of a range: the unit a task reads. Slices of a range tile it exactly.

    ``leader`` is where to ask first, a hint that may be stale when the slice is read.
    ``is_urgent``: retention may take it soon, so it is read before others."""

    index: int
    partition: Partition
    from_offset: int
    until_offset: int
    estimated_bytes: int = 0
    topic_id: str | None = None
    leader: Address | None = None
    is_urgent: bool = False

    @property
    def width(self) -> int:
        return self.until_offset - self.from_offset

    def __str__(self) -> str:
        return f"{self.partition} [{self.from_offset}, {self.until_offset})"


# --- what became of it ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Counts:
    """A class for every offset of a range; the sum must equal its width. Where offsets are
    bytes, ``landed`` counts records all the same, and ``lost`` counts bytes.

    ``landed``: a row in the table. ``control``: a transaction marker. ``aborted``: a
    record of a transaction that was rolled back. ``compacted``: the log no longer has it,
    though the offsets around it are there. ``filtered``: given to the transform, which
    made no row of it, or without any of the tags that are wanted. ``quarantined``: kept aside
    as raw bytes. ``lost``: gone, and a policy allowed to go on."""

    landed: int = 0
    control: int = 0
    aborted: int = 0
    compacted: int = 0
    filtered: int = 0
    quarantined: int = 0
    lost: int = 0

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
    """One Parquet file that is written and not yet visible.

    ``path`` is relative to the table, with ``/``. ``stats`` is Delta's statistics JSON
    (``numRecords``, ``minValues``, ``maxValues``, ``nullCount``). ``partition_values``
    are Delta's strings, None for null."""

    path: str
    size_bytes: int
    rows: int
    stats: str
    modified_at_ms: int
    partition_values: dict[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Receipt:
    """What one slice became: a class for each of its offsets, and who served its last byte.

    ``losses`` are ``(from_offset, until_offset, verdict, evidence)`` of what a policy has
    skipped while reading; their widths add up to ``counts.lost``. So do those of
    ``quarantined`` to theirs, whose bytes are in the files ``kept``. ``held``, of the same
    form: reading has stopped at ``until_offset``, and this is why, and the rest of the slice.

    ``gaps`` are the ``[from, until)`` without a row, sorted and apart; None where they were
    not kept: too many, or made by a transform. ``taken_up``: the offsets that whole entries
    and losses take up, where offsets are bytes; None where each offset is a record or none."""

    slice_index: int
    partition: Partition
    from_offset: int
    until_offset: int
    counts: Counts
    leader: str = ""
    bytes_read: int = 0
    losses: tuple[tuple[int, int, str, str], ...] = ()
    gaps: tuple[tuple[int, int], ...] | None = None
    taken_up: int | None = None
    quarantined: tuple[tuple[int, int, str, str], ...] = ()
    held: tuple[int, int, str, str] | None = None
    kept: tuple[DataFile, ...] = ()

    @property
    def offsets(self) -> int:
        """How many offsets are accounted for."""
        return self.counts.total if self.taken_up is None else self.taken_up


@dataclass(frozen=True, slots=True)
class QuarantinedBytes:
    """The bytes of a batch that cannot be decoded, as they came, and what else decoding them
    takes: ``aborted`` as in a fetch. ``reason`` is the decoder's."""

    records: bytes
    aborted: tuple[tuple[int, int], ...]
    reason: str


@dataclass(frozen=True, slots=True)
class TaskResult:
    """What one task hands back to the driver. A file may hold rows of several slices."""

    receipts: tuple[Receipt, ...]
    files: tuple[DataFile, ...] = ()
