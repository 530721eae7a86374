"""How much one batch may take in memory, whatever it says of itself.

A few bytes can unpack to gigabytes, and small records, messages and headers take several times
their bytes as columns. So a batch has one budget in bytes: for what it unpacks to, and for what
each of its records and headers costs beyond that.
"""

from __future__ import annotations

from typing import Final

MAX_BATCH_BYTES: Final = 128 << 20
"""Brokers take batches of 1 MiB unless told otherwise."""

RECORD_BYTES: Final = 32
HEADER_BYTES: Final = 16


def beyond(max_bytes: int, size: int, records: int) -> str | None:
    """Why a batch that unpacks to ``size`` bytes with so many ``records`` is too large; None
    where it is not."""
    if size > max_bytes:
        return f"it may unpack to {size} bytes, {said(max_bytes)}"
    if size + records * RECORD_BYTES > max_bytes:
        return f"it has {records} records in {size} bytes, {said(max_bytes)}"
    return None


def said(max_bytes: int) -> str:
    return f"and {max_bytes} bytes are allowed (source.max_batch_bytes)"
