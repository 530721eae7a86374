"""Records that have no row because of what is in them: what they span, the losses, what is kept.

A loss takes whole entries. In most logs each record is one. Where offsets are bytes, records of an
entry share its offset: one of them can be skipped alone, but it is quarantined with its whole
entry, so that no offset is both landed and in quarantine.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from rangeland.decode.columns import KEY, OFFSET, PARTITION, TOPIC, VALUE
from rangeland.decode.payload.row_format import UndecodableRow
from rangeland.errors import UndecodablePayload
from rangeland.fetch.receipt_builder import LostRecords
from rangeland.model import Partition, QuarantinedBytes
from rangeland.planning.policy import Action, Loss, LossKind
from rangeland.wording import count_noun

SHOWN_BYTES = 40
TRANSFORM = "transform"
"""The part of a row that is to blame where it is neither key nor value."""
REASON = pa.field("reason", pa.string())
SCHEMA_ID = pa.field("schema_id", pa.int32())


@dataclass(frozen=True, slots=True)
class Entries:
    """Where the entries of rows begin and end, and the number of each row's entry, all in the
    order of the log."""

    starts: np.ndarray
    ends: np.ndarray
    of_row: np.ndarray


def entries_of(rows: pa.RecordBatch, until_offset: int, *, in_bytes: bool) -> Entries:
    """``until_offset``: where the rows end. ``in_bytes``: an entry reaches to the next one."""
    starts, of_row = np.unique(rows.column(OFFSET.name).to_numpy(), return_inverse=True)
    ends = np.append(starts[1:], until_offset) if in_bytes else starts + 1
    return Entries(starts, ends, of_row)


def left_out(entries: Entries, found: Sequence[UndecodableRow], action: Action) -> np.ndarray:
    """Which rows have no place in the table: those that were found, or all of their entries."""
    mask = np.zeros(len(entries.of_row), bool)
    mask[[one.row for one in found]] = True
    if action is Action.QUARANTINE:
        mask = np.isin(entries.of_row, entries.of_row[mask])
    return mask


def lost_records(
    partition: Partition,
    rows: pa.RecordBatch,
    entries: Entries,
    found: Sequence[UndecodableRow],
    action: Action,
) -> Iterator[LostRecords]:
    """The losses, one for entries that follow on each other. ``found`` are in order of rows."""
    for members in _runs(entries, found):
        first, last = (int(entries.of_row[one.row]) for one in (members[0], members[-1]))
        ends = int(entries.starts[first]), int(entries.ends[last])
        evidence = evidence_of(rows, members)
        loss = Loss(partition, *ends, LossKind.UNDECODABLE, evidence, action)
        kept = None
        if action is Action.QUARANTINE:
            at, until = np.searchsorted(entries.of_row, [first, last + 1]).tolist()
            kept = _kept(rows, range(at, until), members, evidence)
        yield LostRecords(loss, kept)


def _runs(entries: Entries, found: Sequence[UndecodableRow]) -> Iterator[list[UndecodableRow]]:
    """The records whose entries follow on each other without an offset in between."""
    run: list[UndecodableRow] = []
    end = -1
    for one in found:
        number = entries.of_row[one.row]
        if run and entries.ends[number] != end and entries.starts[number] != end:
            yield run
            run = []
        run.append(one)
        end = entries.ends[number]
    if run:
        yield run


def _kept(
    rows: pa.RecordBatch, which: range, members: Sequence[UndecodableRow], reason: str
) -> QuarantinedBytes:
    """Records of the same entry that are not to blame have no reason."""
    by_row = {one.row: one for one in members}
    blamed = [by_row.get(row) for row in which]
    taken = rows.drop_columns([TOPIC.name, PARTITION.name]).slice(which.start, len(which))
    reasons = pa.array([None if one is None else one.reason for one in blamed], REASON.type)
    ids = pa.array([None if one is None else one.schema_id for one in blamed], SCHEMA_ID.type)
    batch = taken.append_column(REASON, reasons).append_column(SCHEMA_ID, ids)
    return QuarantinedBytes(b"", (), reason, batch)


def undecodable(
    partition: Partition, rows: pa.RecordBatch, one: UndecodableRow, count: int, leader: str
) -> UndecodablePayload:
    """The error that names a record, and begins with its bytes."""
    offset = offset_of(rows, one.row)
    more = f"; nor can {count - 1} more of the records read with it" if count > 1 else ""
    return UndecodablePayload(
        f"{partition}: the {one.part} of the record at offset {offset} cannot be decoded",
        why=f"{reason_of(one)}; it begins with {_shown(rows, one)}{more}",
        do="correct the schema under `decode` in the job file, or choose what happens to such "
        "records with `policy: {undecodable: skip}` or `quarantine`",
        base_offset=offset,
        next_offset=offset + 1,
        topic=partition.topic,
        partition=partition.number,
        broker=partition.broker or None,
        offset=offset,
        part=one.part,
        reason=one.reason,
        schema_id=one.schema_id,
        leader=leader,
    )


def evidence_of(rows: pa.RecordBatch, members: Sequence[UndecodableRow]) -> str:
    first = members[0]
    offset = offset_of(rows, first.row)
    if first.part == TRANSFORM:
        text = f"the transform fails on offset {offset}: {first.reason}; its value"
    else:
        text = f"the {first.part} at offset {offset}: {reason_of(first)}; it"
    text += f" begins with {_shown(rows, first)}"
    return text if len(members) == 1 else f"{count_noun(len(members), 'record')}; {text}"


def reason_of(one: UndecodableRow) -> str:
    return one.reason if one.schema_id is None else f"{one.reason} (schema {one.schema_id})"


def offset_of(rows: pa.RecordBatch, row: int) -> int:
    return int(rows.column(OFFSET.name)[row].as_py())


def _shown(rows: pa.RecordBatch, one: UndecodableRow) -> str:
    """The first bytes, escaped as in Python."""
    column = KEY.name if one.part == KEY.name else VALUE.name
    data: bytes = rows.column(column)[one.row].as_py() or b""
    return repr(data[:SHOWN_BYTES])[1:] + ("..." if len(data) > SHOWN_BYTES else "")
