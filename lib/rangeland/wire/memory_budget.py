"""How much memory one batch may take, whatever its header says.

A few bytes can decompress to gigabytes, and small records, messages and headers take up several
times their size as columns. So a batch has a single budget in bytes, for its decompressed bytes and
for the additional cost of each record and header.
"""

from __future__ import annotations

from typing import Final

MAX_BATCH_BYTES: Final = 128 << 20
"""Brokers accept batches of 1 MiB unless configured otherwise."""

RECORD_BYTES: Final = 32
HEADER_BYTES: Final = 16


def beyond(max_bytes: int, size: int, records: int) -> str | None:
    """Why a batch of ``size`` decompressed bytes and this many ``records`` is too large; None if it
    is not."""
    if size > max_bytes:
        return f"it may unpack to {size} bytes, {memory_text(max_bytes)}"
    if size + records * RECORD_BYTES > max_bytes:
        return f"it has {records} records in {size} bytes, {memory_text(max_bytes)}"
    return None


def memory_text(max_bytes: int) -> str:
    return f"and {max_bytes} bytes are allowed (source.max_batch_bytes)"
