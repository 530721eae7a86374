"""The bytes of an entry that cannot be decoded, out of a fetch: to be kept as they came."""

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
