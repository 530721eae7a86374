"""The bytes of an entry that cannot be decoded, out of a fetch: to be kept as they came.

They are found by the offsets of the walk, which need nothing of the entry but its header, and
not even that: it begins where what is before it ends.
"""

from __future__ import annotations

from rangeland.dialects.fetch_values import NO_CONTEXT, FetchContext
from rangeland.dialects.kafka.entry_scan import first_of, located, spans
from rangeland.errors import BadRecord


def cut_out(
    records: memoryview,
    from_offset: int,
    first: int,
    until: int,
    context: FetchContext = NO_CONTEXT,
) -> memoryview:
    """The whole entries of ``records`` that hold offsets of ``[first, until)``. The bytes say
    their offsets themselves: ``from_offset`` is for dialects whose bytes do not."""
    begins = ends = _begin(records, first, context)
    for start, end in spans(records[begins:]):
        if start > 0 and first_of(records, begins + start) >= until:
            break
        ends = begins + end
    return records[begins:ends]


def _begin(records: memoryview, first: int, context: FetchContext) -> int:
    begins = 0
    try:
        for position, end, entry in located(records, first, context, with_runs=False):
            if entry.last_offset >= first:
                return position
            begins = end
    except BadRecord:  # it is the one
        pass
    return begins
