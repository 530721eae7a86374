"""The results of commands as values: ``render`` draws them for people, ``to_json`` is for machines.

The keys of every ``to_json`` are a public contract, which tests check.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from rangeland.delta.ledger.events import LossEvent
from rangeland.groups.backend import GroupMember
from rangeland.model import Counts, LogState, OpenTransaction, Partition, Range
from rangeland.planning.checkpoint_move import never_landed
from rangeland.planning.intervals import Interval, overlap, width
from rangeland.planning.plan import Plan
from rangeland.planning.plan_builder import PlanDraft
from rangeland.planning.policy import Loss
from rangeland.planning.proof import RangeOutcome
from rangeland.planning.retention_risk import ReadSpeed
from rangeland.planning.table_audit import Audit, LandedPiece, ReplacedRange

State = Literal["landed", "nothing", "already-landed"]


def partition_json(partition: Partition) -> dict[str, Any]:
    """The three keys that identify a partition everywhere."""
    return {
        "topic": partition.topic,
        "partition": partition.number,
        "broker": partition.broker or None,
    }


def range_json(r: Range) -> dict[str, Any]:
    return {
        **partition_json(r.partition),
        "from_offset": r.from_offset,
        "until_offset": r.until_offset,
    }


def loss_json(loss: LossEvent) -> dict[str, Any]:
    """A loss as in the ledger."""
    return {
        **range_json(loss.range),
        "count": loss.range.width,
        "verdict": loss.verdict,
        "action": loss.action,
        "cause": loss.cause,
        "evidence": loss.evidence,
        "sequence": loss.sequence,
        "seen_at_ms": loss.seen_at_ms,
    }


@dataclass(frozen=True, slots=True)
class RunResult:
    """The result of ``run``, ``apply`` and ``backfill``.

    ``ranges``, ``rows``, ``files`` and ``bytes_written`` are what this call has landed. What was
    landed before, or by another driver, is in ``already``. Drivers that share a plan each report
    all of it. ``recovered`` are the sequences of plans that another driver had entered and this
    one has finished. ``losses`` are what these plans could not land. With a transform, ``rows``
    may differ from the number of landed offsets."""

    job: str
    application: str
    sequence: int
    state: State
    table: str
    table_version: int | None
    ranges: tuple[RangeOutcome, ...]
    seconds: float
    rows: int = 0
    files: int = 0
    bytes_written: int = 0
    recovered: tuple[int, ...] = ()
    already: tuple[Range, ...] = ()
    held: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    losses: tuple[LossEvent, ...] = ()
    replaced: ReplacedRange | None = None
    passed_over: tuple[Range, ...] = ()
    """What the checkpoint was moved past: no later run lands it."""

    @property
    def counts(self) -> Counts:
        return Counts.sum(outcome.counts for outcome in self.ranges)

    def to_json(self) -> dict[str, Any]:
        return {
            "job": self.job,
            "application": self.application,
            "sequence": self.sequence,
            "state": self.state,
            "table": self.table,
            "table_version": self.table_version,
            "landed": self.counts.landed,
            "rows": self.rows,
            "files": self.files,
            "bytes_written": self.bytes_written,
            "partitions": [
                {**range_json(outcome.range), **asdict(outcome.counts)} for outcome in self.ranges
            ],
            "recovered": list(self.recovered),
            "already_landed": [range_json(r) for r in self.already],
            "held": list(self.held),
            "losses": [loss_json(loss) for loss in self.losses],
            "passed_over": [range_json(r) for r in self.passed_over],
            "warnings": list(self.warnings),
            "replaced": None if self.replaced is None else asdict(self.replaced),
            "seconds": round(self.seconds, 3),
        }


@dataclass(frozen=True, slots=True)
class PlanPreview:
    """The result of ``plan``: what a run would do now. ``pending`` are plans that would be finished
    first, ``logs`` what the survey found, ``tasks`` how many Spark tasks would read. ``location``
    is the full URI of the table's path; None for a name in a catalog. ``speed`` is how fast a run
    is expected to read."""

    draft: PlanDraft
    table: str
    logs: Sequence[LogState]
    tasks: int
    pending: tuple[Plan, ...] = ()
    seconds: float = 0.0
    location: str | None = None
    speed: ReadSpeed = field(default_factory=ReadSpeed)

    @property
    def seen(self) -> tuple[Loss, ...]:
        """The losses that are not part of the plan itself."""
        return self.draft.seen({log.partition: log for log in self.logs})

    def to_json(self) -> dict[str, Any]:
        plan = self.draft.plan
        document = plan.to_json()
        return {
            **document,
            "hash": plan.hash,
            "table": self.table,
            "records": plan.width,
            "estimated_bytes": plan.estimated_bytes,
            "tasks": self.tasks,
            "already_landed": [range_json(r) for r in self.draft.already],
            "held": [str(loss) for loss in self.draft.held],
            "passed_over": [range_json(r) for r in self.draft.left_behind],
            "notes": list(self.draft.notes),
            "at_risk": [risk.to_json() for risk in self.draft.risks],
            "read_speed": {
                "bytes_per_second": self.speed.bytes_per_second,
                "is_measured": self.speed.is_measured,
            },
            "pending": [{"sequence": p.sequence, "hash": p.hash} for p in self.pending],
        }


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """``checkpoint`` and ``group_offset`` are None if there is none yet. ``landed`` are the offsets
    of this log that any run or backfill has accounted for. ``lag_ms`` is the age of the first
    record that is not landed; None if there is none or it has no timestamp. ``owner`` is the
    member of the group that currently has the partition."""

    partition: Partition
    checkpoint: int | None
    start: int
    end: int
    group_offset: int | None = None
    leader: str = ""
    landed: tuple[Interval, ...] = ()
    lag_ms: int | None = None
    owner: str | None = None
    held: LossEvent | None = None
    """Why a policy holds it at its checkpoint, if it still does."""
    high_watermark: int | None = None
    last_stable_offset: int | None = None
    """None if the broker does not report it, or the dialect has no transactions."""
    open_transaction: OpenTransaction | None = None
    open_for_ms: int | None = None
    """The age of the first record of the open transaction."""

    @property
    def passed_over(self) -> tuple[Interval, ...]:
        """Offsets of the log between the first landed one and the checkpoint that were never
        landed, because a run was asked to begin after them."""
        end = max(self.start, self.checkpoint or 0)
        return tuple(overlap((self.start, end), never_landed(self.landed, self.checkpoint)))

    @property
    def held_back(self) -> int:
        """Offsets in the log that cannot be read yet, because of an open transaction."""
        return max(0, (self.high_watermark or 0) - self.end)

    @property
    def lag(self) -> int:
        """Up to the high watermark, including what an open transaction holds back."""
        begin = self.checkpoint if self.checkpoint is not None else self.start
        return max(0, self.end + self.held_back - begin)

    def _transaction_json(self) -> dict[str, Any] | None:
        if self.open_transaction is None:
            return None
        return {**asdict(self.open_transaction), "age_ms": self.open_for_ms}

    def to_json(self) -> dict[str, Any]:
        return {
            **partition_json(self.partition),
            "checkpoint": self.checkpoint,
            "start": self.start,
            "end": self.end,
            "high_watermark": self.high_watermark,
            "last_stable_offset": self.last_stable_offset,
            "held_back": self.held_back,
            "open_transaction": self._transaction_json(),
            "lag": self.lag,
            "lag_ms": self.lag_ms,
            "passed_over": width(self.passed_over),
            "group_offset": self.group_offset,
            "owner": self.owner,
            "leader": self.leader or None,
            "held": None if self.held is None else loss_json(self.held),
        }


@dataclass(frozen=True, slots=True)
class GroupStatus:
    """The job's group as its backend reports it; ``why`` says why that failed."""

    id: str
    home: str = ""
    state: str = "unknown"
    members: tuple[GroupMember, ...] = ()
    why: str = ""

    def to_json(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "home": self.home or None,
            "state": self.state,
            "members": [
                {
                    "member": member.member_id,
                    "client": member.client_id or None,
                    "host": member.host or None,
                    "is_ours": member.is_ours,
                    "partitions": [partition_json(p) for p in sorted(member.partitions)],
                }
                for member in self.members
            ],
            "why": self.why or None,
        }


@dataclass(frozen=True, slots=True)
class Status:
    """The result of ``status``: the job compared with its logs."""

    job: str
    table: str
    table_version: int | None
    sequence: int
    partitions: tuple[PartitionStatus, ...]
    live_plans: tuple[Plan, ...] = ()
    recent: tuple[dict[str, Any], ...] = ()
    group: GroupStatus | None = None
    losses: tuple[LossEvent, ...] = ()
    """The latest losses of this job in the ledger."""
    warnings: tuple[str, ...] = ()
    """Problematic settings of the table, and why a run would not land in it now."""

    def to_json(self) -> dict[str, Any]:
        return {
            "job": self.job,
            "table": self.table,
            "table_version": self.table_version,
            "sequence": self.sequence,
            "partitions": [p.to_json() for p in self.partitions],
            "live_plans": [
                {"application": p.application, "sequence": p.sequence, "hash": p.hash}
                for p in self.live_plans
            ],
            "recent": list(self.recent),
            "warnings": list(self.warnings),
            "losses": [loss_json(loss) for loss in self.losses],
            "group": None if self.group is None else self.group.to_json(),
        }


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of ``check``: each thing checked, whether it is well, and what was found.

    ``error`` is the class name of the first problem, and ``exit_code`` its exit code."""

    job: str
    findings: tuple[tuple[str, bool, str], ...] = field(default=())
    exit_code: int = 0
    error: str | None = None

    @property
    def is_well(self) -> bool:
        return all(well for _, well, _ in self.findings)

    def to_json(self) -> dict[str, Any]:
        return {
            "job": self.job,
            "ok": self.is_well,
            "findings": [
                {"what": what, "ok": well, "seen": seen} for what, well, seen in self.findings
            ],
            **self._failure(),
        }

    def _failure(self) -> dict[str, Any]:
        """The keys that every error has, if there is a problem."""
        bad = next((seen for _, well, seen in self.findings if not well), None)
        if bad is None or self.error is None:
            return {}
        return {"error": self.error, "message": bad, "exit": self.exit_code}


@dataclass(frozen=True, slots=True)
class VerifyResult:
    """The result of ``verify``: what the table has of all that was landed in it. ``pieces`` are the
    landed ranges that count; ``audit`` is the comparison with the table."""

    job: str
    table: str
    table_version: int | None
    landings: int
    pieces: tuple[LandedPiece, ...]
    audit: Audit
    missing_files: tuple[str, ...] = ()
    seconds: float = 0.0
    passed_over: tuple[Range, ...] = ()
    """What was never landed, and no run of this job will: its checkpoint is past it."""

    @property
    def is_well(self) -> bool:
        return self.audit.is_clean and not self.missing_files

    def to_json(self) -> dict[str, Any]:
        found = self.audit
        return {
            "job": self.job,
            "table": self.table,
            "table_version": self.table_version,
            "ok": self.is_well,
            "landings": self.landings,
            "ranges": [
                {**range_json(p.range), "topic_id": p.range.topic_id, "landed": p.landed}
                for p in self.pieces
            ],
            "holes": [range_json(r) for r in found.holes],
            "duplicates": [range_json(r) for r in found.duplicates],
            "strangers": [range_json(r) for r in found.strangers],
            "suspect": [range_json(r) for r in found.suspect],
            "unproved": [range_json(r) for r in found.unproved],
            "missing_files": list(self.missing_files),
            "passed_over": [range_json(r) for r in self.passed_over],
            "seconds": round(self.seconds, 3),
        }


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of ``find``. ``state``: *landed* has a row; *no-row* was a marker, aborted,
    compacted or lost; *missing* had a row; *no-row-or-missing* is one of the two, the ledger does
    not know which; *not-landed*; *stranger* has a row that no landing brought."""

    partition: Partition
    offset: int
    state: str
    files: tuple[str, ...] = ()
    job: str | None = None
    application: str | None = None
    sequence: int | None = None
    table_version: int | None = None
    leader: str | None = None
    landed_at_ms: int | None = None
    range: Range | None = None
    earlier: tuple[tuple[str, int], ...] = ()
    why: str = ""
    """Why it is not landed, as far as the ledger knows."""

    @property
    def landed_at(self) -> str | None:
        if self.landed_at_ms is None:
            return None
        when = datetime.fromtimestamp(self.landed_at_ms / 1000, UTC)
        return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")

    def to_json(self) -> dict[str, Any]:
        return {
            **partition_json(self.partition),
            "offset": self.offset,
            "state": self.state,
            "job": self.job,
            "application": self.application,
            "sequence": self.sequence,
            "table_version": self.table_version,
            "file": self.files[0] if self.files else None,
            "files": list(self.files),
            "leader": self.leader,
            "landed_at": self.landed_at,
            "range": None if self.range is None else range_json(self.range),
            "earlier": [{"application": a, "sequence": n} for a, n in self.earlier],
            "why": self.why or None,
        }
