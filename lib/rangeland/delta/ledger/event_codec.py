"""Converts the ledger's events to rows and back. Pure: Arrow is the only library.

Each event is one row, with all its ranges in an array, so that a row is a fact that SQL can
explode. A loss has no array: its single range has columns of its own. Columns and rows are derived
from the dataclasses in ``events``; fields without a column go into ``document``, as JSON.

A ledger made by an earlier version lacks the newest columns until those of ``missing_columns_sql``
have been added; files without them can still be read.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from rangeland.delta.ledger.events import (
    EventKey,
    EventKind,
    LedgerEvent,
    LogFingerprint,
    LossEvent,
    OutcomeEvent,
    PartEvent,
    PlanEvent,
)
from rangeland.delta.table_schema.arrow_schema import (
    UTC_MICROS,
    delta_type,
    fields_of,
    require_schema,
    schema_json,
    sql_type,
)
from rangeland.errors import Conflict
from rangeland.loss import Action, DecidedLoss, LossKind
from rangeland.model import COUNT_NAMES, DataFile, Partition
from rangeland.planning.slice_receipt import RangeResult, Receipt, WrittenFile
from rangeland.record_codec import ColumnType, Record, RecordCodec, Shape
from rangeland.untrusted import JsonFields, Unreadable, whole

_CLASSES: dict[str, type[LedgerEvent]] = {
    EventKind.PLAN: PlanEvent,
    EventKind.OUTCOME: OutcomeEvent,
    EventKind.PART: PartEvent,
    EventKind.LOSS: LossEvent,
}
_EVENTS = {kind: event for event, kind in _CLASSES.items()}


def _instant(time_ms: int) -> dt.datetime:
    return dt.datetime.fromtimestamp(time_ms / 1000, dt.UTC)


def _time_ms(instant: dt.datetime) -> int:
    return round(instant.timestamp() * 1000)


_StoredLoss = tuple[int, int, str, str]
"""From, until, verdict, evidence: a loss within a slice, as stored by every version of the
ledger."""


@dataclass(frozen=True, slots=True)
class _SliceDocument:
    """The fields of a receipt that have no column in its range."""

    slice_index: int
    bytes_read: int = 0
    losses: tuple[_StoredLoss, ...] = ()
    entry_span: int | None = None
    quarantined: tuple[_StoredLoss, ...] = ()
    held: _StoredLoss | None = None
    quarantine_files: tuple[DataFile, ...] = ()
    schema_ids: tuple[tuple[int, int], ...] = ()
    leader_epoch: int | None = None

    @staticmethod
    def of(receipt: Receipt) -> _SliceDocument:
        skipped, quarantined, held = (
            tuple(
                (loss.from_offset, loss.until_offset, loss.kind.value, loss.evidence)
                for loss in receipt.losses_by(action)
            )
            for action in (Action.SKIP, Action.QUARANTINE, Action.HOLD)
        )
        return _SliceDocument(
            slice_index=receipt.slice_index,
            bytes_read=receipt.bytes_read,
            losses=skipped,
            entry_span=receipt.entry_span,
            quarantined=quarantined,
            held=next(iter(held), None),
            quarantine_files=receipt.quarantine_files,
            schema_ids=receipt.schema_ids,
            leader_epoch=receipt.leader_epoch,
        )

    def receipt(self, landed: RangeResult) -> Receipt:
        where = landed.range
        losses = tuple(
            DecidedLoss(where.partition, start, until, _loss_kind(verdict), evidence, action=action)
            for action, losses in (
                (Action.SKIP, self.losses),
                (Action.QUARANTINE, self.quarantined),
                (Action.HOLD, () if self.held is None else (self.held,)),
            )
            for start, until, verdict, evidence in losses
        )
        return Receipt(
            slice_index=self.slice_index,
            partition=where.partition,
            from_offset=where.from_offset,
            until_offset=where.until_offset,
            counts=landed.counts,
            address=landed.address,
            bytes_read=self.bytes_read,
            losses=losses,
            rowless=landed.rowless,
            entry_span=self.entry_span,
            quarantine_files=self.quarantine_files,
            schema_ids=self.schema_ids,
            leader_epoch=self.leader_epoch,
        )


def _loss_kind(text: str) -> LossKind:
    try:
        return LossKind(text)
    except ValueError as error:
        raise Unreadable(str(error)) from error


_IN_EVENT = {"plan_hash": "plan", "written_at_ms": "written_at", "seen_at_ms": "seen_at"}
_INSTANT = ColumnType(UTC_MICROS, _instant, _time_ms)
_RULES: dict[str, Any] = {
    "views": {
        DecidedLoss: "*partition from_offset until_offset width=count kind=verdict action cause "
        "evidence topic_id",
        LogFingerprint: "*partition checksum",
    },
    "names": {
        PlanEvent: {**_IN_EVENT, "unfinished": "live"},
        OutcomeEvent: _IN_EVENT,
        PartEvent: {**_IN_EVENT, "number": "attempt"},
        LossEvent: _IN_EVENT,
        RangeResult: {"address": "leader", "rowless": "gaps", "offsets_are_bytes": "in_bytes"},
        Partition: {"number": "partition"},
        _SliceDocument: {
            "slice_index": "index",
            "entry_span": "taken_up",
            "quarantine_files": "kept",
        },
    },
    "parts": {"gaps": ("from_offset", "until_offset")},
    "columns": {
        "partition": ColumnType(pa.int32(), int, lambda value: whole(value, "partition")),
        "written_at": _INSTANT,
        "seen_at": _INSTANT,
    },
}
_ROWS = RecordCodec(
    **_RULES,
    omitted={
        OutcomeEvent: ["quarantine_files", "schema_json", "schema_ids"],
        PartEvent: ["member", "receipts", "fingerprints"],
        LossEvent: ["epoch"],
        WrittenFile: ["estimated_bytes"],
    },
)
_DOCUMENTS = RecordCodec(
    **_RULES,
    omitted={
        DataFile: ["partition_values"],
    },
)

_ORDER = (
    *("event", "application", "job", "sequence", "entered", "attempt", "plan", "table_version"),
    *("written_at", "ranges", "files", "covered", "live", "document"),
    *("path", "size_bytes", "rows", "stats", "modified_at_ms", "partition_values"),
    *("topic", "partition", "broker", "topic_id", "from_offset", "until_offset"),
    *(*COUNT_NAMES, "leader", "estimated_bytes", "gaps", "in_bytes"),
    *("count", "verdict", "action", "cause", "evidence", "seen_at", "table_id"),
)
"""The order of all columns, in rows and in the structs inside them. New columns go last."""
_ARROW = {str: pa.string(), int: pa.int64(), bool: pa.bool_()}


def _arrow(shape: Shape) -> pa.DataType:
    if isinstance(shape, dict):
        return pa.struct(_arrow_fields(shape))
    if isinstance(shape, list):
        return pa.list_(pa.field("element", _arrow(shape[0])))
    if isinstance(shape, tuple):
        return pa.map_(*map(_arrow, shape))
    return _ARROW.get(shape, shape)


def _arrow_fields(columns: Mapping[str, Shape]) -> list[pa.Field]:
    return [pa.field(name, _arrow(columns[name])) for name in sorted(columns, key=_ORDER.index)]


def _schema() -> pa.Schema:
    columns: dict[str, Shape] = {"event": str}
    for kind in _EVENTS:
        columns |= _ROWS.columns_of(kind)
    return pa.schema(_arrow_fields(columns))


SCHEMA = _schema()
INDEXED = ("event", "application", "job", "sequence", "entered", "attempt", "plan")


def missing_columns_sql(present: Collection[str]) -> list[str]:
    """The columns that a ledger with the columns ``present`` lacks, in SQL."""
    return [f"`{f.name}` {sql_type(delta_type(f.type))}" for f in SCHEMA if f.name not in present]


def is_complete(ledger_schema: str) -> bool:
    """Whether a ledger with this schema, given as Delta's JSON, has exactly the columns of
    ``SCHEMA``, so that its rows can be read and written again unchanged."""
    own_types, ledger_types = (
        {field["name"]: field["type"] for field in fields_of(text)}
        for text in (schema_json(SCHEMA), ledger_schema)
    )
    return own_types == ledger_types


def to_row(event: LedgerEvent) -> Record:
    """The event as a row of ``SCHEMA``. A part stores its number as the attempt."""
    row = {"event": _EVENTS[type(event)], **_ROWS.write(event)}
    if isinstance(event, OutcomeEvent):
        fields = {
            "kept": [_DOCUMENTS.write(file) for file in event.quarantine_files],
            "columns": event.schema_json,
            "schema_ids": event.schema_ids,
        }
        document = {name: value for name, value in fields.items() if value}
        row["document"] = _compact(document) if document else None
    if isinstance(event, LossEvent) and event.epoch is not None:
        row["document"] = _compact({"epoch": event.epoch})
    if isinstance(event, PartEvent):
        row["ranges"] = [_ROWS.write(result) for result in event.ranges]
        slices = [_slice_document(receipt) for receipt in event.receipts]
        fingerprints = [_DOCUMENTS.write(one) for one in event.fingerprints]
        kept = {"fingerprints": fingerprints} if fingerprints else {}
        row["document"] = _compact({"member": event.member, "slices": slices, **kept})
    return row


def _slice_document(receipt: Receipt) -> Record:
    document = _DOCUMENTS.write(_SliceDocument.of(receipt))
    if not receipt.schema_ids:
        del document["schema_ids"]
    if receipt.leader_epoch is None:
        del document["leader_epoch"]
    return document


def from_row(row: Record) -> LedgerEvent:
    """The event that ``to_row`` wrote as this row. Raises Conflict if the row cannot be read:
    anyone may write to the table."""
    try:
        read_document = _IN_DOCUMENT.get(row["event"])
        in_document = read_document(row) if read_document else {}
        return _ROWS.read(_CLASSES[row["event"]], row, **in_document)
    except Unreadable as error:
        raise Conflict(
            f"a row of the ledger cannot be read: {row['event']} {row['sequence']} of "
            f"{row['application']}",
            why=str(error),
            do="restore the folder _rangeland of the table from a backup",
        ) from error


def _of_outcome_document(row: Record) -> Record:
    document = JsonFields.parse(row["document"] or "{}")
    files = tuple(_DOCUMENTS.read(DataFile, file) for file in document.values("kept", ()))
    ids = tuple(_id_and_count(pair) for pair in document.values("schema_ids", ()))
    schema_text = document.text("columns", "")
    schema_text = require_schema(schema_text) if schema_text else ""
    return {"quarantine_files": files, "schema_json": schema_text, "schema_ids": ids}


def _id_and_count(pair: object) -> tuple[int, int]:
    if not isinstance(pair, list) or len(pair) != 2:
        raise Unreadable("schema_ids are not pairs of an id and a count")
    return whole(pair[0], "schema_ids"), whole(pair[1], "schema_ids")


def _of_part_document(row: Record) -> Record:
    document = JsonFields.parse(row["document"] or "")
    slices = document.values("slices")
    ranges = row["ranges"]
    if len(slices) != len(ranges):
        raise Unreadable(f"it has {len(slices)} slices for {len(ranges)} ranges")
    receipts = tuple(
        _DOCUMENTS.read(_SliceDocument, slice_).receipt(_ROWS.read(RangeResult, range_))
        for slice_, range_ in zip(slices, ranges, strict=True)
    )
    stored = document.values("fingerprints", ())
    return {
        "member": document.text("member"),
        "receipts": receipts,
        "fingerprints": tuple(_DOCUMENTS.read(LogFingerprint, one) for one in stored),
    }


def _epoch(row: Record) -> Record:
    document = JsonFields.parse(row.get("document") or "{}")
    return {"epoch": document.number_or_none("epoch")}


_IN_DOCUMENT = {
    EventKind.OUTCOME: _of_outcome_document,
    EventKind.PART: _of_part_document,
    EventKind.LOSS: _epoch,
}


def _compact(document: Record) -> str:
    return json.dumps(document, separators=(",", ":"))


def key_of(row: dict[str, object], path: str) -> EventKey:
    """The key of an event, from the columns of its row in the file ``path``."""
    numbers = {name: row.get(name) or 0 for name in ("sequence", "entered", "attempt")}
    sequence, entered, attempt = (int(str(number)) for number in numbers.values())
    event, application, job = (str(row[name]) for name in ("event", "application", "job"))
    return EventKey(
        event=event,
        application=application,
        job=job,
        sequence=sequence,
        entered=entered,
        path=path,
        attempt=attempt,
    )


def stats_of(rows: Sequence[Record]) -> str:
    """Delta's statistics for a file with these rows, for the indexed columns. Values are not
    truncated, so that readers of the ledger can tell events apart without opening files."""
    columns = {n: [row[n] for row in rows if row.get(n) is not None] for n in INDEXED}
    low, high = ({n: end(values) for n, values in columns.items() if values} for end in (min, max))
    nulls = {name: len(rows) - len(values) for name, values in columns.items()}
    return _compact(
        {"numRecords": len(rows), "minValues": low, "maxValues": high, "nullCount": nulls}
    )
