"""The plan: all ranges and slices of one run, frozen and hashed.

From the moment a plan is in the ledger nothing is late-bound: retries, second attempts
and other drivers read these ranges and no others. A plan is a value; its JSON form is the
document in the ledger, the file of ``plan --out``, and what the hash is taken of. It
holds no secret: brokers are named, credentials are not.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from rangeland.errors import Conflict, ProofFailed
from rangeland.model import (
    COUNT_NAMES,
    Address,
    Counts,
    Isolation,
    Partition,
    Range,
    Receipt,
    Slice,
)
from rangeland.planning.bounds import Mark
from rangeland.planning.intervals import Interval, merge, width
from rangeland.planning.policy import Loss, Verdict

FORMAT = 1


class Way(StrEnum):
    """What is landed. All but a run have an application of their own, beside the runs."""

    RUN = "run"
    BESIDE = "backfill"
    MISSING = "missing"  # what was landed and is not in the table any more
    REPLACE = "replace"  # the range once more, in the place of the rows that are there


@dataclass(frozen=True, slots=True)
class Plan:
    """``application`` names the sequence of landings this plan belongs to: the job's own or
    a backfill's. ``checkpoint`` is where that sequence stands once the plan has landed,
    for every partition it knows. Slices tile the ranges without the losses."""

    job: str
    application: str
    sequence: int
    dialect: str
    isolation: Isolation
    ranges: tuple[Range, ...]
    slices: tuple[Slice, ...]
    losses: tuple[Loss, ...] = ()
    checkpoint: Mapping[Partition, Mark] = field(default_factory=dict)
    made_at_ms: int = 0
    replaces: bool = False
    """Its rows take the place of those that the table has of its ranges."""

    @property
    def hash(self) -> str:
        """SHA-256 of the canonical JSON form, in hex."""
        return hashlib.sha256(canonical(self.to_json()).encode()).hexdigest()

    @property
    def width(self) -> int:
        return sum(r.width for r in self.ranges)

    @property
    def estimated_bytes(self) -> int:
        return sum(s.estimated_bytes for s in self.slices)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; partitions are spelled out in every entry, as in the contract."""
        return {
            **({"replaces": True} if self.replaces else {}),
            "format": FORMAT,
            "job": self.job,
            "application": self.application,
            "sequence": self.sequence,
            "dialect": self.dialect,
            "isolation": self.isolation.value,
            "made_at_ms": self.made_at_ms,
            "ranges": [
                {**_where(r.partition), **_offsets(r), "topic_id": r.topic_id} for r in self.ranges
            ],
            "slices": [
                {
                    "index": s.index,
                    **_where(s.partition),
                    **_offsets(s),
                    "topic_id": s.topic_id,
                    "leader": str(s.leader) if s.leader else None,
                }
                for s in self.slices
            ],
            "losses": [
                {
                    **_where(loss.partition),
                    "from_offset": loss.from_offset,
                    "until_offset": loss.until_offset,
                    "verdict": loss.verdict.value,
                    "evidence": loss.evidence,
                }
                for loss in self.losses
            ],
            "checkpoint": [
                {**_where(p), "until_offset": mark.until_offset, "topic_id": mark.topic_id}
                for p, mark in sorted(self.checkpoint.items())
            ],
        }

    @staticmethod
    def from_json(document: Mapping[str, Any]) -> Plan:
        """The plan of a document. Raises Conflict for a format this version does not know
        and for a document in which something is missing or of another type."""
        if document.get("format") != FORMAT:
            raise Conflict(
                f"the plan is of format {document.get('format')!r}",
                why=f"this version reads format {FORMAT}",
                do="finish it with the version that made it",
            )
        try:
            return Plan._of(document)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise Conflict(
                "the plan cannot be read",
                why=f"{type(error).__name__}: {error}",
                do="make it anew with `rangeland plan --out`",
            ) from error

    @staticmethod
    def _of(document: Mapping[str, Any]) -> Plan:
        return Plan(
            job=document["job"],
            application=document["application"],
            sequence=document["sequence"],
            dialect=document["dialect"],
            isolation=Isolation(document["isolation"]),
            made_at_ms=document["made_at_ms"],
            replaces=document.get("replaces", False),
            ranges=tuple(
                Range(
                    _partition(entry),
                    entry["from_offset"],
                    entry["until_offset"],
                    entry["topic_id"],
                    entry["estimated_bytes"],
                )
                for entry in document["ranges"]
            ),
            slices=tuple(
                Slice(
                    entry["index"],
                    _partition(entry),
                    entry["from_offset"],
                    entry["until_offset"],
                    entry["estimated_bytes"],
                    entry["topic_id"],
                    parse_address(entry["leader"]) if entry["leader"] else None,
                )
                for entry in document["slices"]
            ),
            losses=tuple(
                Loss(
                    _partition(entry),
                    entry["from_offset"],
                    entry["until_offset"],
                    Verdict(entry["verdict"]),
                    entry["evidence"],
                )
                for entry in document["losses"]
            ),
            checkpoint={
                _partition(entry): Mark(entry["until_offset"], entry["topic_id"])
                for entry in document["checkpoint"]
            },
        )


def canonical(document: Mapping[str, Any]) -> str:
    """JSON with sorted keys and no spaces: the same plan always gives the same bytes."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def _where(partition: Partition) -> dict[str, Any]:
    return {
        "topic": partition.topic,
        "partition": partition.number,
        "broker": partition.broker or None,
    }


def _offsets(piece: Range | Slice) -> dict[str, int]:
    return {
        "from_offset": piece.from_offset,
        "until_offset": piece.until_offset,
        "estimated_bytes": piece.estimated_bytes,
    }


def _partition(entry: Mapping[str, Any]) -> Partition:
    return Partition(entry["topic"], entry["partition"], entry["broker"] or "")


def parse_address(text: str) -> Address:
    """``host:port`` or ``[v6]:port``, as ``str(Address)`` writes it. Raises ValueError."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise ValueError(f"{text!r} is not host:port")
    return Address(host.strip("[]"), int(port))


# --- the proof --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RangeOutcome:
    """One range of a plan and what became of each of its offsets. ``gaps`` are those
    without a row, as in ``Receipt``."""

    range: Range
    counts: Counts
    gaps: tuple[Interval, ...] | None = None
    leader: str = ""
    """Who served the last of it."""
    in_bytes: bool = False
    """Its offsets are the positions of entries: rows are fewer, or share one."""


_Piece = tuple[int, int, Counts, "tuple[Interval, ...] | None", int]
"""From, until, classes, offsets without a row, how many offsets are accounted for."""


def prove(plan: Plan, receipts: Mapping[int, Receipt]) -> list[RangeOutcome]:
    """Every offset of every range has exactly one class, or nothing may be committed.

    Raises ProofFailed naming the slice or range that does not add up: a slice without a
    receipt, a receipt of other offsets, counts whose sum is not the width, and slices or
    receipts that no range has asked for."""
    for piece in plan.slices:
        receipt = receipts.get(piece.index)
        if receipt is None:
            raise ProofFailed(
                f"slice {piece.index} ({piece}) was not read to its end",
                why="no task has handed in a receipt for it; a transform that stops early, "
                "such as a limit, has this effect",
                do="let the transform consume all of its input",
                slice=piece.index,
            )
        _check_receipt(piece, receipt)
    pieces: dict[Partition, list[_Piece]] = {}
    served: dict[tuple[Partition, int], str] = {}
    for piece in plan.slices:
        receipt = receipts[piece.index]
        ends = (piece.from_offset, piece.until_offset)
        entry = (*ends, receipt.counts, receipt.gaps, receipt.offsets)
        pieces.setdefault(piece.partition, []).append(entry)
        if receipt.leader:
            served[piece.partition, piece.from_offset] = receipt.leader
    for loss in plan.losses:
        gone = (loss.from_offset, loss.until_offset)
        entry = (*gone, Counts(lost=loss.width), (gone,), loss.width)
        pieces.setdefault(loss.partition, []).append(entry)
    _refuse_strays(plan, receipts)
    in_bytes = {r.partition for r in receipts.values() if r.taken_up is not None}
    return [
        replace(
            _prove_range(r, pieces.get(r.partition, [])),
            leader=_last_leader(r, served),
            in_bytes=r.partition in in_bytes,
        )
        for r in plan.ranges
    ]


def _last_leader(r: Range, served: Mapping[tuple[Partition, int], str]) -> str:
    inside = [
        (start, leader)
        for (partition, start), leader in served.items()
        if partition == r.partition and r.from_offset <= start < r.until_offset
    ]
    return max(inside)[1] if inside else ""


def _refuse_strays(plan: Plan, receipts: Mapping[int, Receipt]) -> None:
    """What lies outside the ranges would be landed and never be counted."""
    strays = receipts.keys() - {piece.index for piece in plan.slices}
    if strays:
        raise ProofFailed(
            f"there are receipts for slices {sorted(strays)}, which the plan does not have",
            do="report this with the plan; nothing was committed",
        )
    pieces = sum(s.width for s in plan.slices) + sum(loss.width for loss in plan.losses)
    if pieces != plan.width:
        raise ProofFailed(
            f"the slices and losses of the plan are {pieces} offsets, its ranges {plan.width}",
            do="report this with the plan; nothing was committed",
        )


def _check_receipt(piece: Slice, receipt: Receipt) -> None:
    same = (receipt.partition, receipt.from_offset, receipt.until_offset) == (
        piece.partition,
        piece.from_offset,
        piece.until_offset,
    )
    counted = receipt.offsets == piece.width and all(
        getattr(receipt.counts, name) >= 0 for name in COUNT_NAMES
    )
    lost = sum(until - start for start, until, _, _ in receipt.losses)
    rowless = receipt.counts.total - receipt.counts.landed
    known = receipt.gaps is None or width(receipt.gaps) == rowless
    if not same or not counted or not known or lost != receipt.counts.lost:
        raise ProofFailed(
            f"slice {piece.index} ({piece}) does not add up",
            why=f"its receipt is for [{receipt.from_offset}, {receipt.until_offset}) of "
            f"{receipt.partition} and accounts for {receipt.offsets} of {piece.width} offsets, "
            f"with losses of {lost} and gaps {receipt.gaps}: {receipt.counts}",
            do="report this with the plan; nothing was committed",
            slice=piece.index,
        )


def _prove_range(r: Range, pieces: list[_Piece]) -> RangeOutcome:
    """The pieces inside the range must tile it: no gap, no overlap, all counted."""
    inside = sorted(
        (p for p in pieces if r.from_offset <= p[0] and p[1] <= r.until_offset and p[0] < p[1]),
        key=lambda p: p[0],
    )
    position = r.from_offset
    for start, end, *_ in inside:
        if start != position:
            break
        position = end
    counts = Counts.sum(counts for _, _, counts, _, _ in inside)
    offsets = sum(accounted for *_, accounted in inside)
    if position != r.until_offset or offsets != r.width:
        raise ProofFailed(
            f"{r} does not add up",
            why=f"its slices and losses are continuous up to {position} and account for "
            f"{offsets} of {r.width} offsets: {counts}",
            do="report this with the plan; nothing was committed",
        )
    if any(gaps is None for *_, gaps, _ in inside):
        return RangeOutcome(r, counts, None)
    return RangeOutcome(r, counts, tuple(merge(g for *_, gaps, _ in inside for g in gaps or ())))


def advance(
    checkpoint: Mapping[Partition, Mark], ranges: tuple[Range, ...]
) -> dict[Partition, Mark]:
    """The checkpoint once these ranges have landed. It never moves back within a topic's
    life; a topic made anew starts over."""
    moved = dict(checkpoint)
    for r in ranges:
        mark = moved.get(r.partition)
        same_life = mark is not None and (
            mark.topic_id is None or r.topic_id is None or mark.topic_id == r.topic_id
        )
        until = max(mark.until_offset, r.until_offset) if mark and same_life else r.until_offset
        known_id = mark.topic_id if mark and same_life else None
        moved[r.partition] = Mark(until, r.topic_id or known_id)
    return moved


def renumbered(plan: Plan, sequence: int, application: str | None = None) -> Plan:
    """The same plan as another number of the sequence (or as another application's)."""
    return replace(plan, sequence=sequence, application=application or plan.application)
