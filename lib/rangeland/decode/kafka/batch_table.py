"""Consecutive batches as rows of numbers, so that Python need not create an object for each batch.

The kernel walks over complete v2 batches whose headers are consistent with each other, and fills a
table, whose columns are named by ``BatchColumn``. The caller reads whatever comes after the end of
the walk entry by entry. ``Payloads`` passes such rows to the decoder: the records of uncompressed
batches are read where they are.

Nothing is decoded or checked against a checksum here: a row contains the values of a plausible
header.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import Any, NamedTuple, overload

import numpy as np
import numpy.typing as npt

from rangeland.decode.kafka.entry_layouts import BATCH_V2
from rangeland.decode.kafka.layout import Payload, RecordFormat

Heads = npt.NDArray[np.int64]
"""One row for each batch, one column for each ``BatchColumn``."""

HEAD_BYTES = BATCH_V2.size
LOG_APPEND = 0x08  # in the attributes of a batch


class BatchColumn(IntEnum):
    """The columns of a batch table. ``BYTE_INDEX`` and ``END`` count bytes from where the walk
    began."""

    BYTE_INDEX = 0
    END = 1
    BASE_OFFSET = 2
    LAST_OFFSET = 3
    RECORD_COUNT = 4
    PRODUCER_ID = 5
    ATTRIBUTES = 6
    BASE_TIMESTAMP_MS = 7
    MAX_TIMESTAMP_MS = 8
    CRC = 9


class BatchWalk(NamedTuple):
    """The result of a walk over batches. It found ``batches`` of them; the last ends at byte
    ``end`` and at offset ``last_offset``. If there is no batch, these are the values that were
    passed in. ``is_all``: no complete entry follows."""

    batches: int
    end: int
    last_offset: int
    is_all: bool


def payload_of(head: Sequence[int], data: Any, max_headers: int) -> Payload:
    """The payload of a batch. ``head`` is its row, ``data`` its decompressed records."""
    _, _, base, last, count, _, attributes, base_ms, max_ms, _ = head
    stamp = max_ms if attributes & LOG_APPEND else None
    return Payload(data, base, base_ms, stamp, count, last - base, max_headers=max_headers)


class Payloads(Sequence[Payload]):
    """The payloads to decode, in order; ``parts`` are payloads or ``StoredBatches``."""

    def __init__(self) -> None:
        self.parts: list[Payload | StoredBatches] = []
        self._count = 0

    def append(self, payload: Payload) -> None:
        self.parts.append(payload)
        self._count += 1

    def extend(self, records: memoryview, heads: Heads, max_headers: int) -> None:
        """Adds uncompressed batches, as they are in ``records``."""
        self.parts.append(StoredBatches(records, heads, max_headers))
        self._count += len(heads)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Payload]:
        for part in self.parts:
            if isinstance(part, StoredBatches):
                yield from (part.payload(row) for row in range(len(part.heads)))
            else:
                yield part

    @overload
    def __getitem__(self, index: int) -> Payload: ...
    @overload
    def __getitem__(self, index: slice) -> list[Payload]: ...
    def __getitem__(self, index: int | slice) -> Payload | list[Payload]:
        return list(self)[index]


class StoredBatches(NamedTuple):
    """Uncompressed batches."""

    records: memoryview
    heads: Heads
    max_headers: int

    def payload(self, row: int) -> Payload:
        head = self.heads[row].tolist()
        return payload_of(head, self.records[head[0] + HEAD_BYTES : head[1]], self.max_headers)

    def table(self, address: int) -> Heads:
        """The payloads in the kernel's form (``payload_t``), equal to what ``payload_of`` makes.
        ``address`` is that of ``records``."""
        columns = self.heads.T
        stamped = (columns[BatchColumn.ATTRIBUTES] & LOG_APPEND) != 0
        rows = np.zeros((len(self.heads), len(Payload._fields) + 2), np.int64)
        rows[:, 0] = columns[BatchColumn.BYTE_INDEX] + (address + HEAD_BYTES)
        rows[:, 1] = columns[BatchColumn.END] - columns[BatchColumn.BYTE_INDEX] - HEAD_BYTES
        rows[:, 2] = columns[BatchColumn.BASE_OFFSET]
        rows[:, 3] = columns[BatchColumn.BASE_TIMESTAMP_MS]
        rows[:, 4] = np.where(stamped, columns[BatchColumn.MAX_TIMESTAMP_MS], 0)
        rows[:, 5] = stamped
        rows[:, 6] = columns[BatchColumn.RECORD_COUNT]
        rows[:, 7] = columns[BatchColumn.LAST_OFFSET] - columns[BatchColumn.BASE_OFFSET]
        rows[:, 8] = RecordFormat.BATCH
        rows[:, 10] = self.max_headers
        return rows
