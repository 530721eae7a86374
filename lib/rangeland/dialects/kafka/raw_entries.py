"""The raw bytes of a fetched entry that cannot be decoded, for quarantine.

They are found by walking over offsets, which needs at most the header of the entry: it begins
where the entry before it ends.
"""

from __future__ import annotations

from rangeland.dialects.fetch_values import NO_CONTEXT, FetchContext
from rangeland.dialects.kafka.entry_scan import located
from rangeland.dialects.kafka.entry_spans import first_of, spans
from rangeland.errors import BadRecord


def cut_out(
    records: memoryview,
    from_offset: int,
    first: int,
    until: int,
    context: FetchContext = NO_CONTEXT,
) -> memoryview:
    """The complete entries of ``records`` with offsets in ``[first, until)``. The bytes contain
    their offsets; ``from_offset`` is for dialects whose bytes do not."""
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
    except BadRecord:  # this is the bad entry
        pass
    return begins
