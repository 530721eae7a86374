"""The events of the ledger, as frozen values. ``event_codec`` turns them into rows.

A *plan* lists the ranges to read; an *outcome* says what landed, and in which files. If several
drivers share a plan, a *part* says what one of them has read of it so far. A *loss* says why one
range could not be read, and what was done about it; the losses of an outcome are written with it,
in one commit. A plan also records the coverage when it was entered, and the plans that were
unfinished then, so that coverage can be computed from the newest entries alone, however long the
ledger is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from rangeland.loss import DecidedLoss
from rangeland.model import DataFile, Partition, Range
from rangeland.planning.log_identity import PartRead
from rangeland.planning.plan import PlanId
from rangeland.planning.plan_kind import PlanKind
from rangeland.planning.slice_receipt import RangeResult, Receipt, WrittenFile


class EventKind(StrEnum):
    """The kind of an event, as stored in the column ``event``."""

    PLAN = "plan"
    OUTCOME = "outcome"
    PART = "part"
    LOSS = "loss"


@dataclass(frozen=True, slots=True)
class CoveredInterval:
    """Covered offsets ``[from_offset, until_offset)``. Offsets with another topic id belong to
    another log, so intervals with different ids are never merged."""

    from_offset: int
    until_offset: int
    topic_id: str | None = None


CoveredIntervals = Mapping[Partition, tuple[CoveredInterval, ...]]


@dataclass(frozen=True, slots=True)
class _OfPlan:
    """An event that belongs to one plan of a job."""

    application: str
    job: str
    sequence: int

    @property
    def plan_id(self) -> PlanId:
        return PlanId(self.application, self.sequence)


@dataclass(frozen=True, slots=True)
class PlanEvent(_OfPlan):
    """A plan that has been entered. ``Ledger`` fills in ``entered``, ``covered`` and
    ``unfinished`` then."""

    plan_hash: str
    ranges: tuple[Range, ...]
    document: str
    """The whole plan as JSON."""
    written_at_ms: int
    table_version: int | None = None
    """The target table's version when the plan was made; None if it did not exist yet."""
    entered: int = 0
    covered: CoveredIntervals = field(default_factory=dict)
    unfinished: tuple[PlanId, ...] = ()
    """Plans that may not have been in the table yet when this one was entered. Later plans keep
    listing them until they are: a driver may die between preparing and committing, and its offsets
    would otherwise count as landed."""
    table_id: str | None = None
    """Delta's own id of the target table; None in ledgers of version 0.1.0."""


@dataclass(frozen=True, slots=True)
class OutcomeEvent(_OfPlan):
    """The ranges that a plan lands, with their counts, and the files that the commit adds. A later
    ``attempt`` replaces an outcome whose files were removed before they could be committed."""

    plan_hash: str
    ranges: tuple[RangeResult, ...]
    files: tuple[WrittenFile, ...]
    written_at_ms: int
    attempt: int = 0
    quarantine_files: tuple[DataFile, ...] = ()
    """Files of the quarantine, which are committed there before ``files`` are committed to the
    table."""
    table_id: str | None = None
    schema_ids: tuple[tuple[int, int], ...] = ()
    """Pairs of a writer's schema id and the number of values that name it."""
    schema_json: str = ""
    """The schema of ``files``, as Delta's JSON, if the table may lack part of it: any driver that
    commits the outcome then adds the same columns."""

    @property
    def has_landed_ranges(self) -> bool:
        """Whether it lands anything. If not, the plan was given up, every partition was held at the
        start of its range, or an adoption has ended the plan (``was_ended``)."""
        return bool(self.ranges)

    def is_given_up(self, kind: PlanKind) -> bool:
        """Whether the plan, which is of this kind, was given up. For kinds of plan that can be
        given up, an outcome that lands nothing means this. For any other kind, the plan was read
        and all its partitions are held, or an adoption has ended it (``was_ended``)."""
        return kind.traits.may_be_given_up and not self.has_landed_ranges

    def was_ended(self, kind: PlanKind) -> bool:
        """Whether an adoption has ended the plan, which is of this kind, because its prepared files
        were gone. A later attempt that lands nothing shows this, unless plans of this kind may land
        less than an earlier attempt did."""
        may_land_less = kind.traits.may_be_given_up or kind.traits.holds_all
        return bool(self.attempt) and not (self.has_landed_ranges or may_land_less)

    @property
    def data_files(self) -> list[DataFile]:
        return [written.file for written in self.files]


@dataclass(frozen=True, slots=True)
class LogFingerprint:
    """The fingerprint of one log; None if the log has no batch to compare."""

    partition: Partition
    checksum: int | None


@dataclass(frozen=True, slots=True)
class PartEvent(_OfPlan):
    """The slices of a shared plan that one driver has read, each in full, and their files.
    ``number`` counts the parts of a plan from 1; no slice is in two of them."""

    plan_hash: str
    number: int
    member: str
    receipts: tuple[Receipt, ...]
    files: tuple[WrittenFile, ...]
    written_at_ms: int
    fingerprints: tuple[LogFingerprint, ...] = ()
    """The fingerprints of its logs from before they were read, for topics without ids."""

    @property
    def read(self) -> PartRead:
        """What the final check of the logs needs to know about this part."""
        return PartRead(
            frozenset(receipt.partition for receipt in self.receipts),
            {one.partition: one.checksum for one in self.fingerprints},
        )

    @property
    def ranges(self) -> tuple[RangeResult, ...]:
        """One for each slice, for the column ``ranges``."""
        return tuple(
            RangeResult(
                Range(r.partition, r.from_offset, r.until_offset), r.counts, r.address, r.rowless
            )
            for r in self.receipts
        )


@dataclass(frozen=True, slots=True)
class LossEvent(_OfPlan):
    """Offsets that could not be read or decoded, and what was done about them. The loss has no
    offsets if only the position is known. A loss that belongs to no outcome has no plan; its
    sequence is the one that would have come next."""

    loss: DecidedLoss
    seen_at_ms: int
    written_at_ms: int
    plan_hash: str = ""
    attempt: int = 0
    epoch: int | None = None
    """The leader epoch in which a landing read other records at these offsets; None if none has."""

    def __str__(self) -> str:
        return str(self.loss)

    @property
    def key(self) -> tuple[object, ...]:
        """The identity of a loss: equal for two sightings of the same loss, even if its end has
        moved."""
        loss = self.loss
        return (self.application, loss.partition, loss.from_offset, loss.kind, loss.action)

    def is_same(self, other: LossEvent) -> bool:
        """Whether the other event is a sighting of this loss. The incarnation of the topic must be
        the same, if both are known. A loss to retention may have grown since; any other loss that
        reaches further is a new one."""
        ids = {self.loss.topic_id, other.loss.topic_id}
        has_all = self.loss.until_offset <= other.loss.until_offset
        has_all = has_all or self.loss.kind.traits.is_before_log_start
        return self.key == other.key and has_all and (len(ids) == 1 or None in ids)


@dataclass(frozen=True, slots=True)
class EventKey(_OfPlan):
    """The identity of an event, and the file that contains its row. ``entered`` is 0 except for
    plans; ``attempt`` is the number if the event is a part. A file of losses has a single key for
    all of its rows."""

    event: str
    """An ``EventKind``, or a kind that a later version has added."""
    entered: int
    path: str
    attempt: int = 0


LedgerEvent = PlanEvent | OutcomeEvent | PartEvent | LossEvent


def prepared_plans(events: Iterable[LedgerEvent]) -> list[tuple[PlanEvent, OutcomeEvent]]:
    """The plans that have an outcome, in the order they were entered, each with its last
    attempt."""
    outcomes: dict[PlanId, OutcomeEvent] = {}
    plans: dict[PlanId, PlanEvent] = {}
    for event in events:
        key = event.plan_id
        if isinstance(event, PlanEvent):
            plans[key] = event
        elif isinstance(event, OutcomeEvent) and (
            key not in outcomes or outcomes[key].attempt < event.attempt
        ):
            outcomes[key] = event
    in_order = sorted(plans.items(), key=lambda item: item[1].entered)
    return [(plan, outcomes[key]) for key, plan in in_order if key in outcomes]
