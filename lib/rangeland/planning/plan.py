"""The plan: all ranges and slices of one run, frozen and hashed.

Once a plan is in the ledger, nothing is resolved again: retries, second attempts and other drivers
read exactly these ranges. A plan is a value; its JSON form is the document in the ledger, the file
of ``plan --out``, and the input of the hash. It contains no secrets: it names brokers, but no
credentials.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from rangeland.errors import Conflict
from rangeland.grouping import by_partition, group_by
from rangeland.loss import Loss
from rangeland.model import Cluster, Isolation, Partition, Range, Slice
from rangeland.planning.incarnation import LogMark, may_be_same
from rangeland.planning.intervals import Interval, merge, subtract, width
from rangeland.planning.plan_kind import PlanKind, WriteMode
from rangeland.record_codec import ColumnType, RecordCodec
from rangeland.untrusted import (
    MAX_INT32,
    JsonFields,
    Unreadable,
    parse_address,
    parse_json,
    require_type,
    whole,
)

FORMAT = 1
LAST_MS = 253_402_300_799_999
"""The end of the year 9999: later times cannot be displayed."""


@dataclass(frozen=True, slots=True)
class PlanId:
    """The identity of a plan in its table: an application and a sequence within it."""

    application: str
    sequence: int

    def __str__(self) -> str:
        return f"{self.application} {self.sequence}"


@dataclass(frozen=True)  # no slots: a plan keeps its hash, which takes long for many partitions
class Plan:
    """The ranges and slices that one run will read: frozen and hashed."""

    job: str
    application: str
    """The id of the sequence of landings to which the plan belongs: the job's runs, or only this
    plan."""
    sequence: int
    dialect: str
    isolation: Isolation
    ranges: tuple[Range, ...]
    slices: tuple[Slice, ...]
    """The slices tile the ranges without the losses."""
    losses: tuple[Loss, ...] = ()
    checkpoint: Mapping[Partition, LogMark] = field(default_factory=dict)
    """The checkpoint once the plan has landed, for every known partition."""
    made_at_ms: int = 0
    kind: PlanKind = PlanKind.RUN
    tags: tuple[str, ...] = ()
    """Only messages with one of these tags are landed; all if empty."""
    schema_json: str = ""
    """The schema of the rows as Delta's JSON, if they are typed: the commit adds the columns that
    the table lacks."""
    cluster: Cluster | None = None
    """The cluster that the offsets belong to; None if no broker was asked, and in old plans."""
    repairs_all: bool = False
    """Whether the plan lands all rows of the job's topics that the table lacked when it was
    made."""

    @property
    def replaces(self) -> bool:
        """Whether the plan's rows replace the table's rows of the same ranges."""
        return self.kind.traits.write_mode is WriteMode.REPLACE

    @property
    def is_adoption(self) -> bool:
        """Whether the plan records an operator's decision that a table is right: its offsets count
        as landed, and nothing is read."""
        return self.width > 0 and not self.slices and not self.losses

    @property
    def id(self) -> PlanId:
        return PlanId(self.application, self.sequence)

    @cached_property
    def hash(self) -> str:
        """SHA-256 of the canonical JSON form without the kind, in hex. Plans of version 0.1.0 do
        not record their kind and keep their hashes; the application's name tells kinds apart."""
        document = self.to_json()
        document.pop("kind", None)
        return hashlib.sha256(canonical(document).encode()).hexdigest()

    @property
    def width(self) -> int:
        return sum(r.width for r in self.ranges)

    @property
    def estimated_bytes(self) -> int:
        return sum(s.estimated_bytes for s in self.slices)

    @property
    def format(self) -> int:
        """The version of the JSON form."""
        return FORMAT

    def to_json(self) -> dict[str, Any]:
        """The plan as plain JSON values; every entry names its partition in full."""
        return PLAN_JSON.write(self)

    @staticmethod
    def parse(text: str) -> Plan:
        """The plan of a document in the ledger. Raises Conflict, as ``from_json`` does."""
        try:
            document = parse_json(text)
        except Unreadable as error:
            raise Conflict(
                "the plan in the ledger cannot be read",
                why=str(error),
                do="restore the folder _rangeland of the table from a backup",
            ) from error
        return Plan.from_json(document)

    @staticmethod
    def from_json(document: object) -> Plan:
        """The plan of a document. Raises Conflict for an unknown format, and if anything in the
        document is missing, has another type or is out of order."""
        try:
            fields = JsonFields(document)
            if (plan_format := fields.get("format")) != FORMAT:
                raise Conflict(
                    f"the plan has format {plan_format!r}",
                    why=f"this version reads format {FORMAT}",
                    do="finish it with the version that made it",
                )
            plan = PLAN_JSON.read(Plan, document, kind=_kind(fields))
            for one in (*plan.ranges, *plan.slices):
                if one.width < 0:
                    raise Unreadable(f"{one} ends before it begins")
            return plan
        except ValueError as error:  # Unreadable, and unknown enum values
            raise Conflict(
                "the plan cannot be read",
                why=str(error),
                do="make it again with `rangeland plan JOB.yaml --out FILE`",
            ) from error


def _kind(document: JsonFields) -> PlanKind:
    """Raises ValueError for a word that is not a kind."""
    if document.flag("replaces", False):
        return PlanKind.REPLACE
    if (kind := document.text("kind", "")) != "":
        return PlanKind(kind)
    return PlanKind.of_application(document.text("job"), document.text("application"))


def canonical(document: Mapping[str, Any]) -> str:
    """JSON with sorted keys and no spaces: the same plan always gives the same bytes."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def _number(name: str, low: int, high: int) -> ColumnType:
    return ColumnType(int, int, lambda value: whole(value, name, low, high))


_TEXT = ColumnType(str, str, lambda value: require_type(value, str, "id"))
_ADDRESS = ColumnType(str, str, lambda value: parse_address(require_type(value, str, "leader")))
_MODE = "kind? replaces? repairs_all? tags? cluster? schema_json?=columns format"
_HEAD = "job application sequence dialect isolation made_at_ms"
PLAN_JSON = RecordCodec(
    views={
        Plan: f"{_MODE} {_HEAD} ranges slices losses checkpoint",
        Partition: "topic number=partition broker",
        Range: "*partition from_offset until_offset estimated_bytes topic_id",
        Slice: "index *partition from_offset until_offset estimated_bytes topic_id leader "
        "is_urgent?",
        Loss: "*partition from_offset until_offset kind=verdict evidence",
        LogMark: "until_offset topic_id epoch? epoch_is_later?",
        Cluster: "id addresses",
    },
    columns={
        "partition": _number("partition", 0, MAX_INT32),
        "index": _number("index", 0, MAX_INT32),
        "epoch": _number("epoch", -1, MAX_INT32),
        "made_at_ms": _number("made_at_ms", 0, LAST_MS),
        "leader": _ADDRESS,
        "id": _TEXT,
    },
)
"""The form of a plan in the ledger and in plan files. It is hashed, so it cannot change."""


def contradiction(plan: Plan) -> str | None:
    """The inconsistency in a plan, if any. Its slices must tile its ranges except for the losses,
    so that each offset is read once."""
    if len({one.index for one in plan.slices}) < len(plan.slices):
        return "two slices have the same index"
    losses = by_partition(plan.losses)
    ranges = _by_incarnation(plan.ranges)
    slices = _by_incarnation(plan.slices)
    for key in {**ranges, **slices}:
        planned = ranges.get(key, [])
        cut = slices.get(key, [])
        for intervals, name in ((planned, "ranges"), (cut, "slices")):
            if width(intervals) != width(merge(intervals)):
                return f"two {name} of {key[0]} overlap"
        lost = [loss.interval for loss in losses.get(key[0], ())]
        readable = [part for interval in planned for part in subtract(interval, lost)]
        if merge(cut) != merge(readable):
            return f"the slices of {key[0]} are not its ranges without the losses"
    return None


def _by_incarnation(
    intervals: Iterable[Range | Slice],
) -> dict[tuple[Partition, str | None], list[Interval]]:
    groups = group_by(intervals, lambda one: (one.partition, one.topic_id))
    return {key: [one.interval for one in group] for key, group in groups.items()}


def advance(
    checkpoint: Mapping[Partition, LogMark],
    ranges: tuple[Range, ...],
    epochs: Mapping[Partition, int | None] | None = None,
    later: Collection[Partition] = (),
) -> dict[Partition, LogMark]:
    """The checkpoint once these ranges have landed, with the leader epochs in which they were
    planned; for partitions in ``later``, the epochs belong to later records. The checkpoint never
    moves back within one incarnation of a topic; a recreated topic starts over."""
    marks = dict(checkpoint)
    for r in ranges:
        new = LogMark(
            r.until_offset, r.topic_id, (epochs or {}).get(r.partition), r.partition in later
        )
        mark = marks.get(r.partition)
        if mark is not None and may_be_same(mark.topic_id, r.topic_id):
            further = mark if mark.until_offset > r.until_offset else new
            new = replace(further, topic_id=r.topic_id or mark.topic_id)
        marks[r.partition] = new
    return marks


def in_planned_epochs(plan: Plan, slices: Iterable[Slice]) -> list[Slice]:
    """Slices of a plan with the leader epochs that their logs had when it was made, if known: from
    then on, only a leader of that epoch or a later one has these logs."""
    marks = plan.checkpoint
    return [
        replace(one, leader_epoch=mark.epoch)
        if (mark := marks.get(one.partition)) and mark.topic_id == one.topic_id
        else one
        for one in slices
    ]


def with_own_application(plan: Plan) -> Plan:
    """A plan that was made as the next one of its job, with its own application if its kind has
    one. The application is named after the hash that the plan had under the job's application and
    number: a plan's hash covers both, so its name cannot contain its own hash."""
    if plan.kind.traits.moves_checkpoint:
        return plan
    application = plan.kind.application(plan.job, plan.hash)
    return replace(plan, application=application, sequence=1)
