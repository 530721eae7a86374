"""Entries of the ledger as rows, and back. Pure: Arrow is the only library.

One row per event, with all its ranges as an array, so that one row is one fact and SQL can
explode it. A loss has no such array and columns of its own: it is about one range.

A ledger that an earlier version has made lacks the newest columns until ``missing_columns``
have been added; files without them are read all the same.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Collection, Sequence
from typing import Any

import pyarrow as pa

from rangeland.delta.arrow_schema import UTC_MICROS
from rangeland.delta.ledger.events import (
    LOSS,
    OUTCOME,
    PART,
    PLAN,
    Entry,
    FileEntry,
    LossEvent,
    OffsetSpan,
    OutcomeEvent,
    PartEvent,
    PlanEvent,
    RangeEntry,
)
from rangeland.errors import Conflict
from rangeland.model import COUNT_NAMES, Counts, DataFile, Partition, Range, Receipt
from rangeland.planning.intervals import Interval
from rangeland.untrusted import JsonFields, Unreadable, whole

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
        *_WHERE,
        _TOPIC_ID,
        *_OFFSETS,
        pa.field("count", pa.int64()),
        pa.field("verdict", pa.string()),
        pa.field("action", pa.string()),
        pa.field("cause", pa.string()),
        pa.field("evidence", pa.string()),
        pa.field("seen_at", UTC_MICROS),
        pa.field("table_id", pa.string()),
    ]
)
INDEXED = ("event", "application", "job", "sequence", "entered", "attempt", "plan")

Row = dict[str, Any]
_EVENTS: dict[type, str] = {
    PlanEvent: PLAN,
    OutcomeEvent: OUTCOME,
    PartEvent: PART,
    LossEvent: LOSS,
}
_SQL = {pa.string(): "STRING", pa.int32(): "INT", pa.int64(): "BIGINT", UTC_MICROS: "TIMESTAMP"}


def missing_columns(there: Collection[str]) -> list[str]:
    """The columns that a ledger with these lacks, as SQL adds them."""
    lacking = [f for f in SCHEMA if f.name not in there]
    return [f"`{f.name}` {_SQL[f.type]}" for f in lacking]


def to_row(entry: Entry) -> Row:
    """The entry as a row of ``SCHEMA``. A part has its number as the attempt."""
    row: Row = {
        "event": _EVENTS[type(entry)],
        "application": entry.application,
        "job": entry.job,
        "sequence": entry.sequence,
        "plan": entry.plan_hash,
        "written_at": _instant(entry.written_at_ms),
    }
    if isinstance(entry, LossEvent):
        return row | _loss_row(entry)
    row["ranges"] = [_range_row(r) for r in entry.ranges]
    if isinstance(entry, OutcomeEvent):
        kept = {"kept": [_kept_row(file) for file in entry.kept]}
        return row | {
            "files": [_file_row(f) for f in entry.files],
            "attempt": entry.attempt,
            "table_id": entry.table_id,
            "document": _compact(kept) if entry.kept else None,
        }
    if isinstance(entry, PartEvent):
        document = {"member": entry.member, "slices": [_slice_row(r) for r in entry.receipts]}
        files = [_file_row(f) for f in entry.files]
        return row | {
            "files": files,
            "attempt": entry.number,
            "document": _compact(document),
        }
    return row | {
        "entered": entry.entered,
        "table_version": entry.table_version,
        "table_id": entry.table_id,
        "covered": [_span_row(p, s) for p, spans in entry.covered.items() for s in spans],
        "live": [{"application": a, "sequence": n} for a, n in entry.live],
        "document": entry.document,
    }


def from_row(row: Row) -> Entry:
    """The entry that ``to_row`` made this row of. Raises Conflict for a document in it that
    cannot be read: anybody may write to the table."""
    try:
        return _from_row(row)
    except Unreadable as error:
        raise Conflict(
            f"a row of the ledger cannot be read: {row['event']} {row['sequence']} of "
            f"{row['application']}",
            why=str(error),
            do="Restore the folder _rangeland of the table from a backup",
        ) from error


def _from_row(row: Row) -> Entry:
    if row["event"] == LOSS:
        return _loss(row)
    written_at_ms = _ms(row["written_at"])
    ranges = tuple(_range_entry(r) for r in row["ranges"])
    if row["event"] == PART:
        return _part(row, ranges, written_at_ms)
    if row["event"] == OUTCOME:
        return OutcomeEvent(
            row["application"],
            row["job"],
            row["sequence"],
            row["plan"],
            ranges,
            tuple(_file_entry(f) for f in row["files"]),
            written_at_ms,
            row["attempt"] or 0,
            _kept_of(row["document"]),
            row.get("table_id"),
        )
    covered: dict[Partition, tuple[OffsetSpan, ...]] = {}
    for s in row["covered"]:
        span = OffsetSpan(s["from_offset"], s["until_offset"], s["topic_id"])
        covered[_partition(s)] = (*covered.get(_partition(s), ()), span)
    return PlanEvent(
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
        table_id=row.get("table_id"),
    )


def _slice_row(receipt: Receipt) -> Row:
    """What a range has no room for."""
    return {
        "index": receipt.slice_index,
        "bytes_read": receipt.bytes_read,
        "losses": receipt.losses,
        "taken_up": receipt.taken_up,
        "quarantined": receipt.quarantined,
        "held": receipt.held,
        "kept": [_kept_row(file) for file in receipt.kept],
    }


def _losses(listed: Sequence[Any]) -> tuple[tuple[int, int, str, str], ...]:
    return tuple(_loss_of(one) for one in listed)


def _loss_of(listed: Any) -> tuple[int, int, str, str]:
    if not isinstance(listed, list) or len(listed) != 4:
        raise Unreadable("a loss is not a list of two offsets, a verdict and a reason")
    first, until, verdict, why = listed
    if not isinstance(verdict, str) or not isinstance(why, str):
        raise Unreadable("the verdict of a loss, and its reason, have to be texts")
    return whole(first, "an offset"), whole(until, "an offset"), verdict, why


def _kept_row(file: DataFile) -> Row:
    return {
        "path": file.path,
        "size_bytes": file.size_bytes,
        "rows": file.rows,
        "stats": file.stats,
        "modified_at_ms": file.modified_at_ms,
    }


def _kept_of(document: str | None) -> tuple[DataFile, ...]:
    return _kept_files(JsonFields.parse(document or "{}"))


def _kept_files(document: JsonFields) -> tuple[DataFile, ...]:
    return tuple(
        DataFile(
            file.text("path"),
            file.number("size_bytes"),
            file.number("rows"),
            file.text("stats"),
            file.number("modified_at_ms"),
        )
        for file in document.each("kept", ())
    )


def _loss_row(entry: LossEvent) -> Row:
    return {
        **_where(entry.range.partition),
        **_offsets(entry.range),
        "plan": entry.plan_hash or None,
        "attempt": entry.attempt,
        "count": entry.range.width,
        "verdict": entry.verdict,
        "action": entry.action,
        "cause": entry.cause,
        "evidence": entry.evidence,
        "seen_at": _instant(entry.seen_at_ms),
    }


def _loss(row: Row) -> LossEvent:
    return LossEvent(
        row["application"],
        row["job"],
        row["sequence"],
        _range(row),
        row["verdict"],
        row["action"],
        row["cause"],
        row["evidence"],
        _ms(row["seen_at"]),
        _ms(row["written_at"]),
        row["plan"] or "",
        row["attempt"] or 0,
    )


def _instant(time_ms: int) -> dt.datetime:
    return dt.datetime.fromtimestamp(time_ms / 1000, dt.UTC)


def _ms(instant: dt.datetime) -> int:
    return round(instant.timestamp() * 1000)


def _compact(document: Row) -> str:
    return json.dumps(document, separators=(",", ":"))


def _part(row: Row, ranges: tuple[RangeEntry, ...], written_at_ms: int) -> PartEvent:
    document = JsonFields.parse(row["document"] or "")
    slices = document.each("slices")
    if len(slices) != len(ranges):
        raise Unreadable(f"it has {len(slices)} slices for {len(ranges)} ranges")
    receipts = tuple(
        Receipt(
            slice_index=one.number("index"),
            partition=entry.range.partition,
            from_offset=entry.range.from_offset,
            until_offset=entry.range.until_offset,
            counts=entry.counts or Counts(),
            leader=entry.leader or "",
            bytes_read=one.number("bytes_read"),
            losses=_losses(one.values("losses")),
            gaps=entry.gaps,
            taken_up=one.number_or_none("taken_up"),
            quarantined=_losses(one.values("quarantined", ())),
            held=_loss_of(held) if (held := one.get("held")) else None,
            kept=_kept_files(one),
        )
        for entry, one in zip(ranges, slices, strict=True)
    )
    return PartEvent(
        row["application"],
        row["job"],
        row["sequence"],
        row["plan"],
        row["attempt"],
        document.text("member"),
        receipts,
        tuple(_file_entry(f) for f in row["files"]),
        written_at_ms,
    )


def stats_of(row: Row, rows: int = 1) -> str:
    """Delta's statistics of a file with this row, or as many that are alike in the indexed
    columns: these in full length, so that the ledger's own reader can tell events apart
    without opening files."""
    known = {name: row[name] for name in INDEXED if row.get(name) is not None}
    nulls = {name: rows * int(row.get(name) is None) for name in INDEXED}
    return _compact(
        {"numRecords": rows, "minValues": known, "maxValues": known, "nullCount": nulls}
    )


def _where(partition: Partition) -> Row:
    return {
        "topic": partition.topic,
        "partition": partition.number,
        "broker": partition.broker or None,
    }


def _partition(row: Row) -> Partition:
    return Partition(row["topic"], row["partition"], row["broker"] or "")


def _offsets(of: Range | OffsetSpan) -> Row:
    return {
        "topic_id": of.topic_id,
        "from_offset": of.from_offset,
        "until_offset": of.until_offset,
    }


def _span_row(partition: Partition, span: OffsetSpan) -> Row:
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
