"""Handles rows whose key or value cannot be decoded: which offsets are lost or quarantined with
them, which records are kept, and how this is reported.

Adjacent offsets are one loss. Quarantine keeps the intact records, not the bytes of their entry, so
that each record can be landed separately.

A loss covers whole entries. In most logs, each record counts as one. Where offsets are bytes, the
records of an entry share its offset: a single record can be skipped, but it is quarantined with its
whole entry, so that no offset is both landed and in quarantine.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from rangeland.decode.columns import KEY, OFFSET, PARTITION, TOPIC, VALUE
from rangeland.decode.payload.row_format import UndecodableRow
from rangeland.errors import Damage, DamagedLog, UndecodablePayload
from rangeland.fetch.chunk_parts import offset_of
from rangeland.fetch.slice_chunks import LostOffsets
from rangeland.loss import Action, DecidedLoss, LossKind, UndecodableRecords
from rangeland.model import Partition
from rangeland.wording import count_noun

SHOWN_BYTES = 40
TRANSFORM = "transform"
"""The field of a row that failed in the transform, not in its key or value."""
REASON = pa.field("reason", pa.string())
SCHEMA_ID = pa.field("schema_id", pa.int32())


@dataclass(frozen=True, slots=True)
class Entries:
    """The entries of rows: their first and end offsets, and the index of each row's entry, all in
    the order of the log."""

    starts: np.ndarray
    ends: np.ndarray
    of_row: np.ndarray


def entries_of(rows: pa.RecordBatch, until_offset: int, *, adjacent: bool) -> Entries:
    """The entries of rows that end at ``until_offset``. ``adjacent``: each entry ends where the
    next one begins."""
    starts, of_row = np.unique(rows.column(OFFSET.name).to_numpy(), return_inverse=True)
    ends = np.append(starts[1:], until_offset) if adjacent else starts + 1
    return Entries(starts, ends, of_row)


def lost_row_mask(
    entries: Entries, undecodable: Sequence[UndecodableRow], action: Action
) -> np.ndarray:
    """A mask of the rows that do not go to the table: the undecodable ones, and all other rows of
    their entries if these are quarantined."""
    mask = np.zeros(len(entries.of_row), bool)
    mask[[failure.row for failure in undecodable]] = True
    if action is Action.QUARANTINE:
        mask = np.isin(entries.of_row, entries.of_row[mask])
    return mask


def lost_offsets(
    partition: Partition,
    rows: pa.RecordBatch,
    entries: Entries,
    undecodable: Sequence[UndecodableRow],
    action: Action,
) -> Iterator[LostOffsets]:
    """The losses, one for each group of adjacent entries. ``undecodable`` is sorted by row."""
    for group in _adjacent_records(entries, undecodable):
        first, last = (int(entries.of_row[failure.row]) for failure in (group[0], group[-1]))
        evidence = evidence_of(rows, group)
        loss = DecidedLoss(
            partition,
            from_offset=int(entries.starts[first]),
            until_offset=int(entries.ends[last]),
            kind=LossKind.UNDECODABLE,
            evidence=evidence,
            action=action,
        )
        records = None
        if action is Action.QUARANTINE:
            start, end = np.searchsorted(entries.of_row, [first, last + 1]).tolist()
            records = _rows_to_keep(rows, range(start, end), group, evidence)
        yield LostOffsets(loss, records)


def _adjacent_records(
    entries: Entries, undecodable: Sequence[UndecodableRow]
) -> Iterator[list[UndecodableRow]]:
    """Groups of records whose entries are adjacent, without an offset in between."""
    group: list[UndecodableRow] = []
    end = -1
    for failure in undecodable:
        number = entries.of_row[failure.row]
        if group and entries.ends[number] != end and entries.starts[number] != end:
            yield group
            group = []
        group.append(failure)
        end = entries.ends[number]
    if group:
        yield group


def _rows_to_keep(
    rows: pa.RecordBatch, row_range: range, group: Sequence[UndecodableRow], reason: str
) -> UndecodableRecords:
    """The rows of whole entries, with the reason for each row that cannot be decoded; the other
    rows of its entry have no reason."""
    by_row = {failure.row: failure for failure in group}
    blamed = [by_row.get(row) for row in row_range]
    records = rows.drop_columns([TOPIC.name, PARTITION.name]).slice(row_range.start, len(row_range))
    reasons = pa.array(
        [None if failure is None else failure.reason for failure in blamed], REASON.type
    )
    ids = pa.array(
        [None if failure is None else failure.schema_id for failure in blamed], SCHEMA_ID.type
    )
    kept = records.append_column(REASON, reasons).append_column(SCHEMA_ID, ids)
    return UndecodableRecords(kept, reason)


def undecodable_error(
    partition: Partition, rows: pa.RecordBatch, failure: UndecodableRow, count: int, address: str
) -> UndecodablePayload:
    """The error that names a record and shows its first bytes."""
    offset = offset_of(rows, failure.row)
    more = ""
    if count > 1:
        more = f"; {count_noun(count - 1, 'more record')} read with it cannot be decoded either"
    return UndecodablePayload(
        f"{partition}: the {failure.field} of the record at offset {offset} cannot be decoded",
        why=f"{reason_of(failure)}; it begins with {_first_bytes(rows, failure)}{more}",
        do="correct the schema under `decode` in the job file, or choose what happens to such "
        "records with `policy: {undecodable: skip}` or `quarantine`",
        damage=Damage(offset, offset + 1),
        log=DamagedLog(partition),
        offset=offset,
        part=failure.field,
        reason=failure.reason,
        schema_id=failure.schema_id,
        leader=address,
    )


def evidence_of(rows: pa.RecordBatch, group: Sequence[UndecodableRow]) -> str:
    first = group[0]
    offset = offset_of(rows, first.row)
    if first.field == TRANSFORM:
        text = f"the transform fails on offset {offset}: {first.reason}; its value"
    else:
        text = f"the {first.field} at offset {offset}: {reason_of(first)}; it"
    text += f" begins with {_first_bytes(rows, first)}"
    return text if len(group) == 1 else f"{count_noun(len(group), 'record')}; {text}"


def reason_of(failure: UndecodableRow) -> str:
    return (
        failure.reason
        if failure.schema_id is None
        else f"{failure.reason} (schema {failure.schema_id})"
    )


def _first_bytes(rows: pa.RecordBatch, failure: UndecodableRow) -> str:
    """The first bytes, escaped as in Python."""
    column = KEY.name if failure.field == KEY.name else VALUE.name
    data: bytes = rows.column(column)[failure.row].as_py() or b""
    return repr(data[:SHOWN_BYTES])[1:] + ("..." if len(data) > SHOWN_BYTES else "")
