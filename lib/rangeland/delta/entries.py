"""What the ledger holds, as frozen values and as rows. Pure: Arrow is the only library.

One row per event. A *plan* row says what will be read; an *outcome* row says what became
of it, with the files. Where several drivers share a plan, a *part* row says what one of
them has read of it so far. All have their ranges as an array, so that one row is one fact
and SQL can explode it. A plan row also carries what its writer knew: the coverage so far,
and the plans that were under way. So coverage needs the newest rows alone, however long
the ledger is.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from rangeland.delta.schema import UTC_MICROS
from rangeland.model import COUNT_NAMES, Counts, DataFile, Partition, Range, Receipt
from rangeland.planning.intervals import Interval

PLAN = "plan"
OUTCOME = "outcome"
PART = "part"


@dataclass(frozen=True, slots=True)
class RangeEntry:
    """One range of a plan or an outcome; the rest comes with the outcome. ``gaps`` are the
    offsets without a row; None where they were not kept. ``in_bytes``: offsets are the
    positions of entries, so rows are fewer, or share one."""

    range: Range
    counts: Counts | None = None
    leader: str | None = None
    gaps: tuple[Interval, ...] | None = None
    in_bytes: bool = False


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One data file. ``range`` is the piece of one partition whose rows it holds, None
    where a file mixes several (after a transform)."""

    file: DataFile
    range: Range | None = None


@dataclass(frozen=True, slots=True)
class Span:
    """``[from_offset, until_offset)`` that is landed. Offsets of another topic id belong to
    another log, so spans of different ids never merge."""

    from_offset: int
    until_offset: int
    topic_id: str | None = None


@dataclass(frozen=True, slots=True)
class HeldSpan:
    """A range that a live plan is going to land."""

    span: Span
    application: str
    sequence: int


Spans = Mapping[Partition, tuple[Span, ...]]


@dataclass(frozen=True, slots=True)
class PlanEntry:
    """``document`` is the whole plan as JSON. ``table_version`` is the target table's when
    the plan was made, None before the table existed. The last three are filled by
    ``Ledger.enter``."""

    application: str
    job: str
    sequence: int
    plan_hash: str
    ranges: tuple[RangeEntry, ...]
    document: str
    written_at_ms: int
    table_version: int | None = None
    entered: int = 0
    covered: Spans = field(default_factory=dict)
    live: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class OutcomeEntry:
    """Ranges with their counts, and the files that the commit adds. A later ``attempt``
    stands in for one whose files were removed before they could be committed."""

    application: str
    job: str
    sequence: int
    plan_hash: str
    ranges: tuple[RangeEntry, ...]
    files: tuple[FileEntry, ...]
    written_at_ms: int
    attempt: int = 0


@dataclass(frozen=True, slots=True)
class PartEntry:
    """What one driver has read of a plan that it shares: whole slices, and their files.
    ``number`` counts the parts of a plan from 1; no slice is in two of them."""

    application: str
    job: str
    sequence: int
    plan_hash: str
    number: int
    member: str
    receipts: tuple[Receipt, ...]
    files: tuple[FileEntry, ...]
    written_at_ms: int

    @property
    def ranges(self) -> tuple[RangeEntry, ...]:
        """One for each slice, as SQL sees them."""
        return tuple(
            RangeEntry(
                Range(r.partition, r.from_offset, r.until_offset), r.counts, r.leader, r.gaps
            )
            for r in self.receipts
        )


Entry = PlanEntry | OutcomeEntry | PartEntry


# --- rows -------------------------------------------------------------------------------

_WHERE = [
    pa.field("topic", pa.string()),
    pa.field("partition", pa.int32()),
    pa.field("broker", pa.string()),
]
_OFFSETS = [pa.field("from_offset", pa.int64()), pa.field("until_offset", pa.int64())]
_TOPIC_ID = pa.field("topic_id", pa.string())
_RANGE = pa.struct(
    [
        *_WHERE,
        _TOPIC_ID,
        *_OFFSETS,
        *(pa.field(name, pa.int64()) for name in COUNT_NAMES),
        pa.field("leader", pa.string()),
        pa.field("estimated_bytes", pa.int64()),
        pa.field("gaps", pa.list_(pa.field("element", pa.struct(_OFFSETS)))),
        pa.field("in_bytes", pa.bool_()),
    ]
)
_FILE = pa.struct(
    [
        pa.field("path", pa.string()),
        pa.field("size_bytes", pa.int64()),
        pa.field("rows", pa.int64()),
        pa.field("stats", pa.string()),
        pa.field("modified_at_ms", pa.int64()),
        pa.field("partition_values", pa.map_(pa.string(), pa.string())),
        *_WHERE,
        _TOPIC_ID,
        *_OFFSETS,
    ]
)
_SPAN = pa.struct([*_WHERE, _TOPIC_ID, *_OFFSETS])
_LIVE = pa.struct([pa.field("application", pa.string()), pa.field("sequence", pa.int64())])

SCHEMA = pa.schema(
    [
        pa.field("event", pa.string()),
        pa.field("application", pa.string()),
        pa.field("job", pa.string()),
        pa.field("sequence", pa.int64()),
        pa.field("entered", pa.int64()),
        pa.field("attempt", pa.int64()),
        pa.field("plan", pa.string()),
        pa.field("table_version", pa.int64()),
        pa.field("written_at", UTC_MICROS),
        pa.field("ranges", pa.list_(pa.field("element", _RANGE))),
        pa.field("files", pa.list_(pa.field("element", _FILE))),
        pa.field("covered", pa.list_(pa.field("element", _SPAN))),
        pa.field("live", pa.list_(pa.field("element", _LIVE))),
        pa.field("document", pa.string()),
    ]
)
INDEXED = ("event", "application", "job", "sequence", "entered", "attempt", "plan")

Row = dict[str, Any]
_EVENTS: dict[type, str] = {PlanEntry: PLAN, OutcomeEntry: OUTCOME, PartEntry: PART}


def to_row(entry: Entry) -> Row:
    """The entry as a row of ``SCHEMA``. A part has its number as the attempt."""
    row: Row = {
        "event": _EVENTS[type(entry)],
        "application": entry.application,
        "job": entry.job,
        "sequence": entry.sequence,
        "plan": entry.plan_hash,
        "written_at": dt.datetime.fromtimestamp(entry.written_at_ms / 1000, dt.UTC),
        "ranges": [_range_row(r) for r in entry.ranges],
    }
    if isinstance(entry, OutcomeEntry):
        return row | {"files": [_file_row(f) for f in entry.files], "attempt": entry.attempt}
    if isinstance(entry, PartEntry):
        document = {"member": entry.member, "slices": [_slice_row(r) for r in entry.receipts]}
        files = [_file_row(f) for f in entry.files]
        return row | {
            "files": files,
            "attempt": entry.number,
            "document": json.dumps(document, separators=(",", ":")),
        }
    return row | {
        "entered": entry.entered,
        "table_version": entry.table_version,
        "covered": [_span_row(p, s) for p, spans in entry.covered.items() for s in spans],
        "live": [{"application": a, "sequence": n} for a, n in entry.live],
        "document": entry.document,
    }


def from_row(row: Row) -> Entry:
    """The entry that ``to_row`` made this row of."""
    written_at_ms = round(row["written_at"].timestamp() * 1000)
    ranges = tuple(_range_entry(r) for r in row["ranges"])
    if row["event"] == PART:
        return _part(row, ranges, written_at_ms)
    if row["event"] == OUTCOME:
        return OutcomeEntry(
            row["application"],
            row["job"],
            row["sequence"],
            row["plan"],
            ranges,
            tuple(_file_entry(f) for f in row["files"]),
            written_at_ms,
            row["attempt"] or 0,
        )
    covered: dict[Partition, tuple[Span, ...]] = {}
    for s in row["covered"]:
        span = Span(s["from_offset"], s["until_offset"], s["topic_id"])
        covered[_partition(s)] = (*covered.get(_partition(s), ()), span)
    return PlanEntry(
        row["application"],
        row["job"],
        row["sequence"],
        row["plan"],
        ranges,
        row["document"],
        written_at_ms,
        table_version=row["table_version"],
        entered=row["entered"],
        covered=covered,
        live=tuple((one["application"], one["sequence"]) for one in row["live"]),
    )


def _slice_row(receipt: Receipt) -> Row:
    """What a range has no room for."""
    return {
        "index": receipt.slice_index,
        "bytes_read": receipt.bytes_read,
        "losses": receipt.losses,
        "taken_up": receipt.taken_up,
    }


def _part(row: Row, ranges: tuple[RangeEntry, ...], written_at_ms: int) -> PartEntry:
    told = json.loads(row["document"])
    receipts = tuple(
        Receipt(
            slice_index=one["index"],
            partition=entry.range.partition,
            from_offset=entry.range.from_offset,
            until_offset=entry.range.until_offset,
            counts=entry.counts or Counts(),
            leader=entry.leader or "",
            bytes_read=one["bytes_read"],
            losses=tuple((a, b, verdict, why) for a, b, verdict, why in one["losses"]),
            gaps=entry.gaps,
            taken_up=one["taken_up"],
        )
        for entry, one in zip(ranges, told["slices"], strict=True)
    )
    return PartEntry(
        row["application"],
        row["job"],
        row["sequence"],
        row["plan"],
        row["attempt"],
        told["member"],
        receipts,
        tuple(_file_entry(f) for f in row["files"]),
        written_at_ms,
    )


def stats_of(row: Row) -> str:
    """Delta's statistics of a file with this one row: the indexed columns in full length,
    so that the ledger's own reader can tell events apart without opening files."""
    known = {name: row[name] for name in INDEXED if row.get(name) is not None}
    nulls = {name: int(row.get(name) is None) for name in INDEXED}
    return json.dumps(
        {"numRecords": 1, "minValues": known, "maxValues": known, "nullCount": nulls},
        separators=(",", ":"),
    )


def _where(partition: Partition) -> Row:
    return {
        "topic": partition.topic,
        "partition": partition.number,
        "broker": partition.broker or None,
    }


def _partition(row: Row) -> Partition:
    return Partition(row["topic"], row["partition"], row["broker"] or "")


def _offsets(of: Range | Span) -> Row:
    return {
        "topic_id": of.topic_id,
        "from_offset": of.from_offset,
        "until_offset": of.until_offset,
    }


def _span_row(partition: Partition, span: Span) -> Row:
    return _where(partition) | _offsets(span)


def _range_row(entry: RangeEntry) -> Row:
    counts = entry.counts
    return (
        _where(entry.range.partition)
        | _offsets(entry.range)
        | {name: None if counts is None else getattr(counts, name) for name in COUNT_NAMES}
        | {"leader": entry.leader, "estimated_bytes": entry.range.estimated_bytes}
        | {"gaps": None if entry.gaps is None else [_gap_row(gap) for gap in entry.gaps]}
        | {"in_bytes": entry.in_bytes or None}
    )


def _gap_row(gap: Interval) -> Row:
    return {"from_offset": gap[0], "until_offset": gap[1]}


def _range_entry(row: Row) -> RangeEntry:
    counts = None
    if row["landed"] is not None:
        counts = Counts(**{name: row[name] for name in COUNT_NAMES})
    gaps = row.get("gaps")
    return RangeEntry(
        _range(row, row["estimated_bytes"] or 0),
        counts,
        row["leader"],
        None if gaps is None else tuple((g["from_offset"], g["until_offset"]) for g in gaps),
        bool(row.get("in_bytes")),
    )


def _range(row: Row, estimated_bytes: int = 0) -> Range:
    return Range(
        _partition(row), row["from_offset"], row["until_offset"], row["topic_id"], estimated_bytes
    )


def _file_row(entry: FileEntry) -> Row:
    f = entry.file
    row = {
        "path": f.path,
        "size_bytes": f.size_bytes,
        "rows": f.rows,
        "stats": f.stats,
        "modified_at_ms": f.modified_at_ms,
        "partition_values": list(f.partition_values.items()),
    }
    if entry.range is not None:
        row |= _where(entry.range.partition) | _offsets(entry.range)
    return row


def _file_entry(row: Row) -> FileEntry:
    file = DataFile(
        row["path"],
        row["size_bytes"],
        row["rows"],
        row["stats"],
        row["modified_at_ms"],
        dict(row["partition_values"]),
    )
    return FileEntry(file, None if row["topic"] is None else _range(row))
