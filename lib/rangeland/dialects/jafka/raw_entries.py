"""The raw bytes of a fetched entry that cannot be decoded, for quarantine."""

from __future__ import annotations

from rangeland.dialects.fetch_values import NO_CONTEXT, FetchContext


def cut_out(
    records: memoryview,
    from_offset: int,
    first: int,
    until: int,
    context: FetchContext = NO_CONTEXT,
) -> memoryview:
    """The bytes at ``[first, until)``; the records begin at ``from_offset``, and offsets are
    positions."""
    return records[first - from_offset : until - from_offset]
