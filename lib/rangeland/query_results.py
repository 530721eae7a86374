"""The results of commands that land nothing, as values: ``status``, ``check``, ``verify``,
``find``, ``reached``, ``sample`` and ``mirror``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Literal, TypeAlias

from rangeland.decode.payload.json.json_inference import InferredField
from rangeland.delta.ledger.events import LossEvent
from rangeland.dialects.cluster_values import GroupMember
from rangeland.errors import RangelandError, RangeLost, Unreachable, error_json, public_name
from rangeland.loss import LossKind
from rangeland.model import OpenTransaction, Partition, Range
from rangeland.planning.intervals import Interval, overlap, subtract, width
from rangeland.planning.log_reach import PartitionReach
from rangeland.planning.passed_over_ranges import passed_over_intervals
from rangeland.planning.plan import PlanId
from rangeland.planning.table_audit import Audit, LandedRange
from rangeland.result_json import RESULT_JSON, JsonResult
from rangeland.results import PlanToFinish, WriterSchema


@dataclass(frozen=True, slots=True)
class PartitionStatus(JsonResult):
    """The state of one partition: how far it has been landed, compared with its log."""

    VIEW = (
        "*partition checkpoint start end high_watermark last_stable_offset held_back "
        "transaction=open_transaction lag lag_ms offsets_passed_over=passed_over group_offset "
        "owner leader held"
    )

    partition: Partition
    checkpoint: int | None
    """The job's checkpoint in this partition; None if there is none yet."""
    start: int
    end: int
    """The end of the part of the log that can be read now."""
    group_offset: int | None = None
    """The offset of the job's group; None if it has none, or the job has no group."""
    leader: str = ""
    landed: tuple[Interval, ...] = ()
    """The offsets of this log that any run or backfill has accounted for."""
    lag_ms: int | None = None
    """The age of the first record that has not landed; None if there is none or it has no
    timestamp."""
    owner: str | None = None
    """The member of the group that currently has the partition."""
    held: LossEvent | None = None
    """Why a policy holds it at its checkpoint, if it still does."""
    high_watermark: int | None = None
    last_stable_offset: int | None = None
    """The end for readers of committed records; None if the broker does not report it, or the
    dialect has no transactions."""
    open_transaction: OpenTransaction | None = None
    open_for_ms: int | None = None
    """The age of the first record of the open transaction."""
    is_recreated: bool = False
    """The job has a checkpoint, but in another log of this name, so ``checkpoint`` is None."""

    @property
    def passed_over(self) -> tuple[Interval, ...]:
        """Offsets of the log, between the first landed one and the checkpoint, that never landed
        because a run was asked to begin after them."""
        end = max(self.start, self.checkpoint or 0)
        return tuple(
            overlap((self.start, end), passed_over_intervals(self.landed, self.checkpoint))
        )

    @property
    def held_back(self) -> int:
        """Offsets in the log that cannot be read yet, because of an open transaction."""
        return max(0, (self.high_watermark or 0) - self.end)

    @property
    def lag(self) -> int:
        """The number of offsets from the checkpoint up to the high watermark, including those
        delayed by an open transaction, and those that backfills have landed."""
        begin = self.checkpoint if self.checkpoint is not None else self.start
        return max(0, self.end + self.held_back - begin)

    @property
    def unlanded(self) -> tuple[Interval, ...]:
        """The offsets of the log after the checkpoint that no run or backfill has landed."""
        begin = self.start if self.checkpoint is None else max(self.start, self.checkpoint)
        return tuple(subtract((begin, self.end + self.held_back), self.landed))

    @property
    def gone(self) -> tuple[Interval, ...]:
        """The offsets after the checkpoint that left the log before anything landed them."""
        begin = self.start if self.checkpoint is None else self.checkpoint
        return tuple(subtract((begin, self.start), self.landed))

    @property
    def suspected_loss(self) -> LossKind | None:
        """What a run would take this for, if a second survey shows the same: a leader may lag."""
        if self.is_recreated:
            return LossKind.RECREATED
        if (self.checkpoint or 0) > self.end + self.held_back:
            return LossKind.TRUNCATED
        return LossKind.EXPIRED if self.gone else None

    @property
    def offsets_passed_over(self) -> int:
        return width(self.passed_over)

    @property
    def transaction(self) -> dict[str, Any] | None:
        """The open transaction and its age."""
        if self.open_transaction is None:
            return None
        return {**asdict(self.open_transaction), "age_ms": self.open_for_ms}


@dataclass(frozen=True, slots=True)
class GroupStatus(JsonResult):
    """The job's group as its backend reports it."""

    VIEW = "id backend=home state members why"

    id: str
    backend: str = ""
    state: str = "unknown"
    members: tuple[GroupMember, ...] = ()
    why: str = ""
    """Why the backend could not be asked; empty if it answered."""


@dataclass(frozen=True, slots=True)
class RecentLanding:
    """One of the last landings of a job."""

    sequence: int
    prepared_at_ms: int
    """When its outcome was prepared."""
    landed: int
    files: int
    hash: str


@dataclass(frozen=True, slots=True)
class Status(JsonResult):
    """The result of ``status``: the job compared with its logs."""

    VIEW = (
        "job table table_version sequence partitions unfinished_plans=live_plans recent warnings "
        "losses group"
    )

    job: str
    table: str
    table_version: int | None
    sequence: int
    partitions: tuple[PartitionStatus, ...]
    unfinished_plans: tuple[PlanToFinish, ...] = ()
    recent: tuple[RecentLanding, ...] = ()
    group: GroupStatus | None = None
    losses: tuple[LossEvent, ...] = ()
    """The latest losses of this job in the ledger."""
    warnings: tuple[str, ...] = ()
    """Problematic settings of the table, and reasons why a run would not land in it now."""


@dataclass(frozen=True, slots=True)
class CheckedItem:
    """One item that ``check`` has checked, with its finding."""

    VIEW = "what is_well=ok seen"

    what: str
    is_well: bool
    seen: str


@dataclass(frozen=True, slots=True)
class CheckResult(JsonResult):
    """The result of ``check``."""

    VIEW = "job is_well=ok findings"

    job: str
    findings: tuple[CheckedItem, ...] = ()
    problem: RangelandError | None = None  # the first one

    @property
    def exit_code(self) -> int:
        return 0 if self.problem is None else self.problem.exit_code

    @property
    def error(self) -> str | None:
        return None if self.problem is None else public_name(self.problem)

    @property
    def is_well(self) -> bool:
        return all(item.is_well for item in self.findings)

    def to_json(self) -> dict[str, Any]:
        """The result as JSON; if there is a problem, with the keys that every error has."""
        return RESULT_JSON.write(self) | (error_json(self.problem) if self.problem else {})


@dataclass(frozen=True, slots=True)
class VerifyResult(JsonResult):
    """The result of ``verify``: how much of everything that landed is in the table."""

    VIEW = (
        "job table table_version is_well=ok landings landed_ranges=ranges *audit "
        "gone_files=missing_files passed_over seconds"
    )

    job: str
    table: str
    table_version: int | None
    landings: int
    landed_ranges: tuple[LandedRange, ...]
    """The landed ranges in force."""
    audit: Audit
    """The comparison of their offsets with the table."""
    gone_files: tuple[str, ...] = ()
    """Files that the table names but its store no longer has."""
    seconds: float = 0.0
    passed_over: tuple[Range, ...] = ()
    """Offsets that never landed, and that no run of this job will land: its checkpoint is past
    them."""

    @property
    def is_well(self) -> bool:
        """Whether nothing is wrong, although some of it may be neither proved nor disproved."""
        return self.audit.is_clean and not self.gone_files

    @property
    def exit_code(self) -> int:
        return 0 if self.is_well else RangeLost.exit_code


class FindState(StrEnum):
    """What became of an offset, if ``find`` knows."""

    LANDED = "landed"
    """It has a row."""
    NO_ROW = "no-row"
    """It was a marker, aborted or compacted, or is inside an entry."""
    QUARANTINED = "quarantined"
    """A policy has put it in quarantine."""
    LOST = "lost"
    """A policy has left it out."""
    HOLE = "missing"
    """It had a row, which is gone."""
    NO_ROW_OR_HOLE = "no-row-or-missing"
    """One of the two: the ledger does not know which."""
    NOT_LANDED = "not-landed"
    UNKNOWN_ROW = "stranger"
    """It has a row that no landing wrote."""


@dataclass(frozen=True, slots=True)
class Finding(JsonResult):
    """The result of ``find``: what became of one offset."""

    VIEW = (
        "*partition offset state job application sequence table_version file files leader "
        "landed_at range earlier why"
    )

    partition: Partition
    offset: int
    state: FindState
    files: tuple[str, ...] = ()
    job: str | None = None
    application: str | None = None
    sequence: int | None = None
    table_version: int | None = None
    leader: str | None = None
    landed_at_ms: int | None = None
    range: Range | None = None
    earlier: tuple[PlanId, ...] = ()
    why: str = ""
    """Why it has no row, if the ledger knows."""

    @property
    def landed_at(self) -> str | None:
        if self.landed_at_ms is None:
            return None
        when = datetime.fromtimestamp(self.landed_at_ms / 1000, UTC)
        return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")

    @property
    def file(self) -> str | None:
        return self.files[0] if self.files else None

    @property
    def exit_code(self) -> int:
        return RangeLost.exit_code if self.state is FindState.HOLE else 0


@dataclass(frozen=True, slots=True)
class ReachResult(JsonResult):
    """The result of ``reached``. ``asked_at_ms`` is the local time just before the brokers were
    asked, since they do not report theirs."""

    VIEW = "job is_reached=reached asked_at_ms partitions unanswered_brokers?"

    job: str
    asked_at_ms: int
    partitions: tuple[PartitionReach, ...]
    unanswered_brokers: Mapping[str, str] = field(default_factory=dict)
    """The brokers that may have partitions to wait for and did not answer, and why. A broker of
    which only a replica answers is not one of them, though it may have partitions that the replica
    does not know."""

    @property
    def is_reached(self) -> bool:
        is_waited_for = any(p.state == "waiting" for p in self.partitions)
        return not is_waited_for and not self.unanswered_brokers

    @property
    def exit_code(self) -> int:
        return 0 if self.is_reached else Unreachable.exit_code


ShownValue: TypeAlias = str | dict[str, str]


@dataclass(frozen=True, slots=True)
class SampleResult:
    """The result of ``sample``: a description of the newest records."""

    records: int
    formats: dict[str, int]
    """How many values are JSON objects, framed with a schema id, other text, other bytes, or
    null."""
    schemas: tuple[WriterSchema, ...]
    schema: str
    """The fields as Spark DDL: those found in JSON without a schema id, otherwise those of the
    job's format; empty if there are none."""
    fields: tuple[InferredField, ...] = ()
    rows: tuple[ShownValue, ...] = ()
    """Some values as the job decodes them; a value with fields is a mapping by their names."""
    undecodable: int | None = None
    """How many records the job cannot decode; None if it decodes none."""

    def to_json(self) -> dict[str, Any]:
        schemas = [{"id": s.id, "subject": s.subject, "records": s.records} for s in self.schemas]
        return {
            "records": self.records,
            "formats": self.formats,
            "schemas": schemas,
            "schema": self.schema,
        }


MirrorState = Literal["mirrored", "unchanged", "nothing-landed"]


@dataclass(frozen=True, slots=True)
class MirroredPartition(JsonResult):
    """The checkpoint of one partition, and the group's offset before and after."""

    VIEW = "*partition checkpoint before=group_before after=group_after end lag"

    partition: Partition
    checkpoint: int
    before: int | None
    after: int | None
    end: int

    @property
    def lag(self) -> int:
        return max(0, self.end - self.checkpoint)


@dataclass(frozen=True, slots=True)
class LeftOutPartition(JsonResult):
    """A partition whose checkpoint is not committed, and why."""

    VIEW = "*partition checkpoint why"

    partition: Partition
    checkpoint: int
    why: str


@dataclass(frozen=True, slots=True)
class MirrorResult(JsonResult):
    """The result of ``mirror``. ``left_out``: partitions that have landed, and whose log is not
    there, or is another one: their offsets in the group are as they were."""

    VIEW = "job group backend=home state partitions left_out? seconds"

    job: str
    group: str
    backend: str
    state: MirrorState
    partitions: tuple[MirroredPartition, ...]
    seconds: float
    left_out: tuple[LeftOutPartition, ...] = ()
