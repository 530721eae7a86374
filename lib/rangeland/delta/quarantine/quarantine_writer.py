"""Writes bytes that an executor cannot decode to files of the quarantine.

The receipts name the files, and the driver commits them with the outcome; until then nobody sees
them. Only a bounded amount is buffered before it is written out.
"""

from __future__ import annotations

import datetime as dt
import logging
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, assert_never

import numpy as np
import pyarrow as pa

from rangeland.clock import wall_ms
from rangeland.decode.columns import HEADER
from rangeland.delta.parquet_files.data_files import write_whole_file
from rangeland.delta.stores.store_access import StoreSettings, has_folders
from rangeland.delta.stores.store_errors import as_own_errors
from rangeland.delta.table_schema.arrow_schema import UTC_MICROS
from rangeland.logging_setup import partition_fields
from rangeland.loss import DamagedBytes, QuarantinedBytes, UndecodableRecords
from rangeland.model import DataFile, Range
from rangeland.planning.slice_receipt import Receipt

_ABORTED = pa.struct([pa.field("producer_id", pa.int64()), pa.field("first_offset", pa.int64())])
RECORD = pa.struct(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", UTC_MICROS),
        pa.field("timestampType", pa.int32()),
        pa.field("headers", pa.list_(pa.field("element", HEADER))),
        pa.field("bornTimestamp", UTC_MICROS),
        pa.field("reason", pa.string()),
        pa.field("schema_id", pa.int32()),
        pa.field("position", pa.int32()),
    ]
)
"""The columns of an intact record whose key or value cannot be decoded. The names are those used in
``decode.columns`` and by the dialects."""
SCHEMA = pa.schema(
    [
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("broker", pa.string()),
        pa.field("topic_id", pa.string()),
        pa.field("from_offset", pa.int64()),
        pa.field("until_offset", pa.int64()),
        pa.field("job", pa.string()),
        pa.field("application", pa.string()),
        pa.field("sequence", pa.int64()),
        pa.field("plan", pa.string()),
        pa.field("reason", pa.string()),
        pa.field("leader", pa.string()),
        pa.field("kept_at", UTC_MICROS),
        pa.field("aborted", pa.list_(pa.field("element", _ABORTED))),
        pa.field("records", pa.binary()),
        pa.field("undecodable", pa.list_(pa.field("element", RECORD))),
    ]
)


FILE_BYTES = 8 << 20
"""A slice's buffer is written to a file once it reaches this size."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class QuarantineWriterSettings:
    """The settings with which the tasks of one plan write bytes that they cannot decode."""

    table: StoreSettings
    job: str
    application: str
    sequence: int
    plan: str


class QuarantineWriter:
    """The quarantined bytes of one task. Use it once: ``add``, then ``close`` or ``abort``."""

    def __init__(self, settings: QuarantineWriterSettings) -> None:
        self._settings = settings
        self._rows: dict[int, list[dict[str, object]]] = {}
        self._sizes: dict[int, int] = {}
        self._files: dict[int, list[DataFile]] = {}

    def add(self, index: int, where: Range, kept: QuarantinedBytes, leader: str) -> None:
        """Adds the bytes of a range. Raises StorageFailed and TableRefused, as writing rows
        does."""
        row: dict[str, object] = {
            "topic": where.partition.topic,
            "partition": where.partition.number,
            "broker": where.partition.broker or None,
            "topic_id": where.topic_id,
            "from_offset": where.from_offset,
            "until_offset": where.until_offset,
            "job": self._settings.job,
            "application": self._settings.application,
            "sequence": self._settings.sequence,
            "plan": self._settings.plan,
            "reason": kept.reason,
            "leader": leader or None,
            "kept_at": dt.datetime.fromtimestamp(time.time(), dt.UTC),
            **_content(kept),
        }
        fields = partition_fields(where.partition, where.from_offset)
        fields["until_offset"] = where.until_offset
        logger.info("Quarantined bytes that cannot be decoded: %s", kept.reason, extra=fields)
        self._rows.setdefault(index, []).append(row)
        self._sizes[index] = self._sizes.get(index, 0) + kept.size_bytes
        if self._sizes[index] >= FILE_BYTES:
            self._write(index)

    def close(self, receipts: Sequence[Receipt]) -> tuple[Receipt, ...]:
        """The receipts, each with the files that contain the quarantined bytes of its slice."""
        for index in list(self._rows):
            self._write(index)
        files_of = {index: tuple(files) for index, files in self._files.items()}
        return tuple(replace(r, quarantine_files=files_of.get(r.slice_index, ())) for r in receipts)

    def abort(self) -> None:
        """Removes the files that were written: no receipt will name them."""
        if not self._files:
            return
        store, root = self._settings.table.open()
        for file in [file for files in self._files.values() for file in files]:
            with as_own_errors(file.path):
                store.delete_file(f"{root}/{file.path}")

    def _write(self, index: int) -> None:
        rows = self._rows.pop(index)
        self._sizes[index] = 0
        store, root = self._settings.table.open()
        name = f"{prefix_of(self._settings.plan)}{uuid.uuid4()}.zstd.parquet"
        if has_folders(store):
            with as_own_errors(root):
                store.create_dir(root, recursive=True)
        size = write_whole_file(store, f"{root}/{name}", _table(rows))
        stats = f'{{"numRecords":{len(rows)}}}'
        file = DataFile(name, size, len(rows), stats, wall_ms())
        self._files.setdefault(index, []).append(file)


def _content(kept: QuarantinedBytes) -> dict[str, object]:
    match kept:
        case DamagedBytes(records, aborted):
            transactions = [{"producer_id": a, "first_offset": b} for a, b in aborted]
            return {"records": records, "aborted": transactions, "undecodable": None}
        case UndecodableRecords(rows):
            return {"records": b"", "aborted": [], "undecodable": rows}
        case _:
            assert_never(kept)


def _table(rows: Sequence[Mapping[str, object]]) -> pa.Table:
    """The rows. Intact records stay in Arrow, because Python has no times after 9999."""
    *plain, nested = SCHEMA
    batches: list[Any] = [row[nested.name] for row in rows]
    records = [pa.array([], RECORD) if b is None else _structs(b) for b in batches]
    offsets = np.cumsum([0, *map(len, records)])
    lists = pa.ListArray.from_arrays(
        pa.array(offsets, pa.int32()),
        pa.concat_arrays(records),
        type=nested.type,
        mask=pa.array([b is None for b in batches]),
    )
    table = pa.Table.from_pylist([dict(row) for row in rows], schema=pa.schema(plain))
    return table.append_column(nested, lists)


def _structs(rows: pa.RecordBatch) -> pa.StructArray:
    columns = [
        rows.column(f.name).cast(f.type)
        if f.name in rows.schema.names
        else pa.nulls(rows.num_rows, f.type)
        for f in RECORD
    ]
    return pa.StructArray.from_arrays(columns, fields=list(RECORD))


def prefix_of(plan_hash: str) -> str:
    """The prefix of the names of a plan's files."""
    return f"part-{plan_hash[:12]}-"
