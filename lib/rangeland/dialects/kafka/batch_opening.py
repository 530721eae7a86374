"""Opens many consecutive batches in one step: verifies checksums and decompresses.

An uncompressed batch becomes a row of numbers and nothing else, so that a log of small batches is
read as fast as one of large batches. Transaction markers are verified, but have nothing to
decompress.

Pure functions of bytes. A damaged batch raises the same error as if it had been opened alone; if
there are several, the first is reported.
"""

from __future__ import annotations

from typing import NoReturn

import numpy as np
import numpy.typing as npt
from crc32c import crc32c

from rangeland.decode.kafka.batch_table import HEAD_BYTES, BatchColumn, Heads, Payloads, payload_of
from rangeland.dialects.kafka.compression import CODEC_MASK
from rangeland.dialects.kafka.log_entries import BatchGroup
from rangeland.dialects.kafka.record_batch import CHECKED, CONTROL, unpack_records
from rangeland.errors import Bug
from rangeland.wire.bounded_decompression import NotDecompressible
from rangeland.wire.memory_budget import HEADER_BYTES, RECORD_BYTES


def open_group(
    group: BatchGroup, payloads: Payloads, max_bytes: int, max_batch_bytes: int
) -> tuple[int, int]:
    """Adds the contents of the batches to ``payloads``, up to and including the one with which
    ``max_bytes`` are reached; none may take more than ``max_batch_bytes``. Returns how many batches
    were opened and how much memory they take, not counting headers: the decompressed bytes, and
    ``RECORD_BYTES`` for each record. Raises BadRecord."""
    if (group.heads[:, BatchColumn.ATTRIBUTES] & CODEC_MASK).any():
        return _open_packed(group, payloads, max_bytes, max_batch_bytes)
    return _open_stored(group, payloads, max_bytes, max_batch_bytes)


def is_control(heads: Heads) -> npt.NDArray[np.bool_]:
    """Which of these batches are transaction markers."""
    flags: npt.NDArray[np.bool_] = (heads[:, BatchColumn.ATTRIBUTES] & CONTROL) != 0
    return flags


def _open_stored(
    group: BatchGroup, payloads: Payloads, max_bytes: int, max_batch_bytes: int
) -> tuple[int, int]:
    """Adds uncompressed batches, whose records stay where they are."""
    records, heads = group
    sizes = heads[:, BatchColumn.END] - heads[:, BatchColumn.BYTE_INDEX] - HEAD_BYTES
    costs = sizes + RECORD_BYTES * heads[:, BatchColumn.RECORD_COUNT]
    totals = np.cumsum(np.where(is_control(heads), 0, costs))
    heads = heads[: int(np.searchsorted(totals, max_bytes)) + 1]
    places = (
        heads[:, column].tolist()
        for column in (BatchColumn.BYTE_INDEX, BatchColumn.END, BatchColumn.CRC)
    )
    for row, (byte_index, end, crc) in enumerate(zip(*places, strict=True)):
        if crc32c(records[byte_index + CHECKED : end]) != crc:
            _raise_damage(group, row, max_batch_bytes)
    for full in np.flatnonzero(
        heads[:, BatchColumn.RECORD_COUNT] > max_batch_bytes // RECORD_BYTES
    ):
        _raise_damage(group, int(full), max_batch_bytes)
    payloads.extend(records, heads[~is_control(heads)], max_batch_bytes // HEADER_BYTES)
    return len(heads), int(totals[len(heads) - 1])


def _open_packed(
    group: BatchGroup, payloads: Payloads, max_bytes: int, max_batch_bytes: int
) -> tuple[int, int]:
    """Adds batches, some of which are compressed."""
    records, heads = group
    size = 0
    max_headers = max_batch_bytes // HEADER_BYTES
    for row, head in enumerate(heads.tolist()):
        byte_index, end, _, _, count, _, attributes, _, _, crc = head
        if crc32c(records[byte_index + CHECKED : end]) != crc:
            _raise_damage(group, row, max_batch_bytes)
        if attributes & CONTROL:
            continue
        body = records[byte_index + HEAD_BYTES : end]
        try:
            data = unpack_records(attributes & CODEC_MASK, body, count, max_batch_bytes)
        except NotDecompressible:
            _raise_damage(group, row, max_batch_bytes)
        payloads.append(payload_of(head, data, max_headers))
        size += len(data) + RECORD_BYTES * count
        if size >= max_bytes:
            break
    return row + 1, size


def _raise_damage(group: BatchGroup, row: int, max_batch_bytes: int) -> NoReturn:
    """Raises the error for a batch that is damaged or too large, the same as if it had been opened
    alone."""
    entry = group.entry(row)
    entry.payload(max_batch_bytes)
    raise Bug(f"a batch at offset {entry.base_offset} is damaged, and opening it alone is not")
