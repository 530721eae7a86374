"""The results of commands that land or plan, as values: ``render`` shows them to people,
``result_json`` writes them for machines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Literal, TypeVar

from rangeland.decode.payload.row_format import RowFormat
from rangeland.delta.ledger.events import LossEvent
from rangeland.delta.quarantine.quarantine_table import QuarantinedBatch
from rangeland.errors import Conflict
from rangeland.loss import DecidedLoss
from rangeland.model import Counts, Isolation, LogState, Partition, Range
from rangeland.planning.incarnation import LogMark
from rangeland.planning.plan import Plan
from rangeland.planning.plan_draft import PlanDraft
from rangeland.planning.retention_risk import ReadSpeed
from rangeland.planning.slice_receipt import RangeResult
from rangeland.planning.table_audit import ReplacedRange
from rangeland.result_json import RESULT_JSON, JsonResult

T = TypeVar("T")
RunState = Literal["landed", "nothing", "already-landed"]


@dataclass(frozen=True, slots=True)
class WriterSchema:
    """A schema in a registry, and how many of the landed records were written with it."""

    VIEW = "id subject version records"

    id: int
    records: int
    subject: str | None = None
    version: int | None = None


@dataclass(frozen=True, slots=True)
class RunResult(JsonResult):
    """The result of ``run``, ``apply`` and ``backfill``: what this call has landed. If drivers
    share a plan, each of them reports the entire plan."""

    VIEW = (
        "job application sequence state table table_version landed rows files bytes_written "
        "ranges=partitions recovered already_landed held losses passed_over warnings "
        "replaced added_columns? schemas? seconds"
    )

    job: str
    application: str
    sequence: int
    state: RunState
    table: str
    table_version: int | None
    ranges: tuple[RangeResult, ...]
    """The ranges of its plans, and what became of each offset."""
    seconds: float
    rows: int = 0
    """How many rows were added; with a transform, not always one for each landed offset."""
    files: int = 0
    bytes_written: int = 0
    recovered: tuple[int, ...] = ()
    """The sequences of plans that another driver had entered and this one finished."""
    already_landed: tuple[Range, ...] = ()
    """Requested ranges that had landed before, or that another driver landed."""
    held_losses: tuple[DecidedLoss, ...] = ()
    """The losses at which a policy holds partitions."""
    warnings: tuple[str, ...] = ()
    losses: tuple[LossEvent, ...] = ()
    """The losses of these plans."""
    replaced: ReplacedRange | None = None
    """How the rows of a replacement differ from those that were there before."""
    passed_over: tuple[Range, ...] = ()
    """Ranges that the checkpoint was moved past, which no later run lands."""
    added_columns: tuple[str, ...] | None = None
    """The columns that these landings have added to the table; None if keys and values stay
    bytes."""
    schemas: tuple[WriterSchema, ...] | None = None
    """The schemas that the landed values name; None if keys and values stay bytes."""
    checkpoint: Mapping[Partition, LogMark] | None = field(default=None, repr=False)
    """The job's checkpoint afterwards; None for a command that does not move it. This and what
    follows are for metrics, not part of the JSON."""
    logs: Sequence[LogState] = field(default=(), repr=False)
    """The logs in the last survey; none if no survey was taken."""
    skipped_losses: tuple[DecidedLoss, ...] = field(default=(), repr=False)
    """The losses that the last draft skipped beside its plan."""

    @property
    def held(self) -> tuple[str, ...]:
        """``held_losses`` as sentences."""
        return tuple(str(loss) for loss in self.held_losses)

    @property
    def counts(self) -> Counts:
        return Counts.sum(r.counts for r in self.ranges)

    @property
    def landed(self) -> int:
        return self.counts.landed


class FinishedBy(StrEnum):
    """The command that finishes an unfinished plan."""

    NEXT_RUN = "next-run"  # the next run of this job
    SAME_OFFSETS = "same-offsets"  # a command of this job that plans some of its offsets
    OTHER_JOB = "other-job"  # only the job that entered it


@dataclass(frozen=True, slots=True)
class PlanToFinish(JsonResult):
    """An unfinished plan of any job of a table, and who finishes it, from the point of view of one
    job."""

    VIEW = "*plan finished_by"

    plan: Plan
    finished_by: FinishedBy


@dataclass(frozen=True, slots=True)
class PlanPreview(JsonResult):
    """The result of ``plan``: what a run would do now."""

    draft: PlanDraft
    table: str
    logs: Sequence[LogState]
    """The logs in the survey."""
    tasks: int
    """How many Spark tasks would read."""
    unfinished_plans: tuple[PlanToFinish, ...] = ()
    """The unfinished plans of all jobs of the table."""
    seconds: float = 0.0
    location: str | None = None
    """The full URI of the table's path; None for a name in a catalog."""
    speed: ReadSpeed = field(default_factory=ReadSpeed)
    """How fast a run is expected to read."""
    row_format: RowFormat | None = field(default=None, repr=False)
    """How the plan's records become rows."""

    @property
    def unplanned_losses(self) -> tuple[DecidedLoss, ...]:
        """The losses that are not part of the plan itself."""
        return self.draft.unplanned_losses({log.partition: log for log in self.logs})

    def to_json(self) -> dict[str, Any]:
        plan = self.draft.plan
        return {
            **plan.to_json(),
            "hash": plan.hash,
            "table": self.table,
            "records": plan.width,
            "estimated_bytes": plan.estimated_bytes,
            "tasks": self.tasks,
            "already_landed": [RESULT_JSON.write(r) for r in self.draft.already_landed],
            "held": [str(loss) for loss in self.draft.held],
            "passed_over": [RESULT_JSON.write(r) for r in self.draft.passed_over],
            "notes": list(self.draft.notes),
            "at_risk": [RESULT_JSON.write(risk) for risk in self.draft.risks],
            "read_speed": RESULT_JSON.write(self.speed),
            "pending": [RESULT_JSON.write(plan) for plan in self.unfinished_plans],
        }


ReadFilter = tuple[Isolation, tuple[str, ...]]
"""Which messages of its offsets a landing includes, by isolation and tags."""


@dataclass(frozen=True, slots=True)
class QuarantinedRange:
    """A batch in quarantine. ``why``: the reason why it cannot be decoded now; empty if it can.
    ``isolation`` and ``tags`` are those of the landing that put it there: the job's may differ
    now."""

    VIEW = "*batch decodes why gone_files?=missing_files"

    batch: QuarantinedBatch
    isolation: Isolation
    why: str
    tags: tuple[str, ...] = ()
    gone_files: tuple[str, ...] | None = None
    """None if the quarantine has its bytes. Otherwise the gone files that may have had them; none
    if somebody has removed the rows from the quarantine."""

    @property
    def read_filter(self) -> ReadFilter:
        """The read filter of that landing. All ranges of a plan have the same one."""
        return self.isolation, self.tags

    @property
    def decodes(self) -> bool:
        return not self.why

    @property
    def has_bytes(self) -> bool:
        return self.gone_files is None


@dataclass(frozen=True, slots=True)
class RedriveResult(JsonResult):
    """The result of ``redrive``. ``done`` is None for a dry run."""

    VIEW = "job table seconds"

    job: str
    table: str
    still_quarantined: tuple[QuarantinedRange, ...]
    seconds: float
    done: RunResult | None = None

    @property
    def without_bytes(self) -> tuple[QuarantinedRange, ...]:
        """The ranges that only the log can still give."""
        return tuple(one for one in self.still_quarantined if not one.has_bytes)

    @property
    def exit_code(self) -> int:
        return Conflict.exit_code if self.without_bytes else 0

    def to_json(self) -> dict[str, Any]:
        first = RESULT_JSON.write(self) if self.done is None else self.done.to_json()
        return {**first, "quarantine": [RESULT_JSON.write(one) for one in self.still_quarantined]}


@dataclass(frozen=True, slots=True)
class AdoptResult(JsonResult):
    """The result of ``adopt``. ``ranges`` are the offsets that now count as landed."""

    VIEW = "job table sequence table_version width=adopted ranges"

    job: str
    table: str
    sequence: int
    table_version: int | None
    ranges: tuple[Range, ...]

    @property
    def width(self) -> int:
        return sum(r.width for r in self.ranges)


def add_warning(result: T, text: str) -> T:
    """The result of a landing with one more warning, unless the text is empty. Other results have
    no warnings, and stay as they are."""
    if not text:
        return result
    if isinstance(result, RedriveResult) and result.done is not None:
        return replace(result, done=add_warning(result.done, text))
    if isinstance(result, RunResult):
        return replace(result, warnings=(*result.warnings, text))
    return result
