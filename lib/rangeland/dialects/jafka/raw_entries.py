"""The bytes of an entry that cannot be decoded, out of a fetch: to be kept as they came."""

from __future__ import annotations

from collections.abc import Sequence

from rangeland.dialects.dialect import NO_CONTEXT, FetchContext


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


def aborted_within(
    records: memoryview, first: int, until: int, aborted: Sequence[tuple[int, int]]
) -> tuple[tuple[int, int], ...]:
    """There are no transactions."""
    return ()
