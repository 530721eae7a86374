"""The results of ``report``: what its page shows, and what the command prints."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rangeland.delta.ledger.events import LossEvent
from rangeland.errors import RangeLost
from rangeland.loss import Action, LossKind
from rangeland.model import Counts, Partition, Range
from rangeland.planning.coverage import coverage_of
from rangeland.planning.intervals import Interval, width
from rangeland.planning.passed_over_ranges import passed_over_intervals
from rangeland.planning.plan_kind import PlanKind, WriteMode
from rangeland.query_results import GroupStatus, PartitionStatus, VerifyResult
from rangeland.result_json import JsonResult
from rangeland.results import PlanToFinish


@dataclass(frozen=True, slots=True)
class ReportedPartition:
    """How far a partition has been landed and, if its log was reported, how far that reaches."""

    partition: Partition
    checkpoint: int | None = None
    """The job's checkpoint; None if there is none yet."""
    landed: tuple[Interval, ...] = ()
    """The offsets that any run or backfill has accounted for."""
    log: PartitionStatus | None = None
    """Compared with its log; None if no broker has reported the log."""
    held: LossEvent | None = None
    """Why a policy holds it at its checkpoint. Without ``log``, why it did when it was last
    landed."""
    absent: str = ""
    """Why it has no log, if the brokers were asked."""

    @property
    def lag(self) -> int | None:
        """The number of offsets of the log that no run or backfill has landed, after the
        checkpoint; None if unknown."""
        return None if self.log is None else width(self.log.unlanded)

    @property
    def lag_ms(self) -> int | None:
        """The age of the first record that has not landed; None if there is none, or if it is
        unknown: a status asks only for the record at the checkpoint."""
        log = self.log
        if log is None or not log.unlanded:
            return None
        first = log.unlanded[0][0]
        if first == max(log.start, log.checkpoint or 0):
            return log.lag_ms
        return log.open_for_ms if first == log.end else None

    @property
    def suspected_loss(self) -> LossKind | None:
        """The kind of loss that its log suggests; None if it is held for such a loss."""
        found = None if self.log is None else self.log.suspected_loss
        return None if self.held is not None and self.held.loss.kind is found else found

    @property
    def passed_over(self) -> int:
        """How many offsets before the checkpoint have never landed, of those that may still be in
        the log."""
        if self.log is not None:
            return self.log.offsets_passed_over
        return width(passed_over_intervals(self.landed, self.checkpoint))


@dataclass(frozen=True, slots=True)
class ReportedLanding:
    """One landing of the job, whichever kind of plan it belongs to."""

    sequence: int
    kind: PlanKind
    prepared_at_ms: int
    counts: Counts
    ranges: tuple[Range, ...]
    files: int
    size_bytes: int
    hash: str
    is_adoption: bool = False
    committed_at_ms: int | None = None
    """When the table got it; None if the table's log no longer shows this."""
    table_version: int | None = None

    @property
    def at_ms(self) -> int:
        return self.prepared_at_ms if self.committed_at_ms is None else self.committed_at_ms

    @property
    def offsets(self) -> int:
        return sum(r.width for r in self.ranges)


@dataclass(frozen=True, slots=True)
class ReportedLoss:
    """A loss in the ledger. ``remaining``: the part of it that no later landing includes; nothing
    if a whole log was lost, since nobody knows which offsets it had, and those of a later log of
    that name are others."""

    event: LossEvent
    remaining: tuple[Range, ...] = ()
    ends_runs: bool = False
    """It ended a run of the job, the checkpoint is still before it, and nothing in the ledger shows
    that this was decided since."""

    @property
    def is_whole_log(self) -> bool:
        """Whether the log was lost from the loss's first offset on, however far it reached."""
        return self.event.loss.kind.traits.is_whole_log

    @property
    def is_open(self) -> bool:
        """Whether anything is still lost, or to be decided."""
        is_lost_log = self.is_whole_log and self.event.loss.action is Action.SKIP
        return bool(self.remaining) or self.ends_runs or is_lost_log


@dataclass(frozen=True, slots=True)
class JobReport:
    """What a job has landed, and what has become of everything else. All times are in ms since
    1970."""

    job: str
    job_file: str
    table: str
    made_at_ms: int
    table_uri: str | None = None
    table_version: int | None = None
    partitions: tuple[ReportedPartition, ...] = ()
    log_error: str = ""
    """Why the logs could not be asked; empty if they were."""
    landings: tuple[ReportedLanding, ...] = ()
    """All of the job's landings, the oldest first. Only the newest have a table version."""
    losses: tuple[ReportedLoss, ...] = ()
    """All of the job's losses, the oldest first."""
    unfinished_plans: tuple[PlanToFinish, ...] = ()
    group: GroupStatus | None = None
    warnings: tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    """The values of the job file, without those that may be secrets."""
    verification: VerifyResult | None = None
    """The comparison of the table's rows with the ledger, if it was asked for."""
    offsets_are_bytes: bool = False
    """The job's offsets are positions in bytes, so that their number is a size."""

    @property
    def unit(self) -> str:
        """What offsets count: ``offset`` or ``byte``."""
        return "byte" if self.offsets_are_bytes else "offset"

    @property
    def logs_are_known(self) -> bool:
        """Whether the log of every partition was reported."""
        return not self.log_error and all(p.log is not None for p in self.partitions)

    @property
    def lag(self) -> int | None:
        """The number of offsets that have not landed; None if it is unknown for a partition."""
        if not self.logs_are_known:
            return None
        return sum(p.lag or 0 for p in self.partitions)

    @property
    def may_have_losses(self) -> bool:
        """Whether a log suggests a loss, even one for which its partition is held."""
        return any(p.log is not None and p.log.suspected_loss for p in self.partitions)

    @property
    def landed(self) -> int:
        """How many records have landed, including those that were landed again."""
        return self.counts.landed

    @property
    def landed_again(self) -> int:
        """How many records were landed by repairs and replacements."""
        again = (x for x in self.landings if x.kind.traits.write_mode is not WriteMode.ADD)
        return sum(landing.counts.landed for landing in again)

    @property
    def counts(self) -> Counts:
        return Counts.sum(landing.counts for landing in self.landings)

    @property
    def offsets(self) -> int:
        return sum(landing.offsets for landing in self.landings)

    @property
    def lost(self) -> int:
        """The number of offsets that a policy has left out, and no later landing includes."""
        return self._remaining(Action.SKIP)

    @property
    def lost_logs(self) -> int:
        """How often a policy has left out the rest of a log that is gone."""
        return sum(x.is_whole_log and x.event.loss.action is Action.SKIP for x in self.losses)

    @property
    def quarantined(self) -> int:
        """The number of offsets in quarantine that no later landing includes."""
        return self._remaining(Action.QUARANTINE)

    @property
    def held(self) -> tuple[ReportedPartition, ...]:
        return tuple(p for p in self.partitions if p.held is not None)

    def _remaining(self, action: Action) -> int:
        losses = (x for x in self.losses if x.event.loss.action is action)
        return _total_width(r for loss in losses for r in loss.remaining)


def _total_width(ranges: Iterable[Range]) -> int:
    """The number of different offsets in these ranges."""
    return sum(width(intervals) for intervals in coverage_of(ranges).intervals.values())


@dataclass(frozen=True, slots=True)
class ReportResult(JsonResult):
    """The result of ``report``: the file that was written, and the numbers at its top."""

    VIEW = (
        "job table table_version out size_bytes=bytes landings landed lag lost lost_logs "
        "quarantined held unfinished warnings log_error? is_well?=ok seconds"
    )

    job: str
    table: str
    table_version: int | None
    out: str
    size_bytes: int
    landings: int
    landed: int
    lag: int | None
    """None if the logs could not be asked."""
    lost: int
    """How many offsets, besides those of ``lost_logs``."""
    lost_logs: int
    quarantined: int
    held: int
    """How many partitions a policy holds."""
    unfinished: int
    warnings: tuple[str, ...]
    seconds: float
    log_error: str | None = None
    is_well: bool | None = None
    """Whether the table has every landed offset exactly once; None if this was not verified."""

    @property
    def exit_code(self) -> int:
        return RangeLost.exit_code if self.is_well is False else 0


def result_of(report: JobReport, out: str, size_bytes: int, seconds: float) -> ReportResult:
    """The result of a report that was written to a file."""
    verification = report.verification
    return ReportResult(
        job=report.job,
        table=report.table,
        table_version=report.table_version,
        out=out,
        size_bytes=size_bytes,
        landings=len(report.landings),
        landed=report.landed,
        lag=report.lag,
        lost=report.lost,
        lost_logs=report.lost_logs,
        quarantined=report.quarantined,
        held=len(report.held),
        unfinished=len(report.unfinished_plans),
        warnings=report.warnings,
        seconds=seconds,
        log_error=report.log_error or None,
        is_well=None if verification is None else verification.is_well,
    )
