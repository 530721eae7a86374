"""The bytes of an entry that cannot be decoded, out of a fetch: to be kept as they came.

They are found by the offsets of the walk, which need nothing of the entry but its header.
"""

from __future__ import annotations

from rangeland.dialects.kafka.batches import entries, spans
from rangeland.errors import BadRecord


def cut_out(records: memoryview, from_offset: int, first: int, until: int) -> memoryview:
    """The whole entries of ``records`` that hold offsets of ``[first, until)``. The bytes say
    their offsets themselves: ``from_offset`` is for dialects whose bytes do not."""
    begins: int | None = None
    ends = 0
    for position, end in spans(records):
        base, last = _offsets(records[position:end], first, until)
        if begins is None and last >= first:
            begins = position
        if begins is not None and base < until:
            ends = end
        if base >= until:
            break
    return records[begins:ends] if begins is not None else records[:0]


def _offsets(stored: memoryview, first: int, until: int) -> tuple[int, int]:
    """Of an entry, as far as its header can be believed."""
    try:
        entry = next(entries(stored))
        return entry.base_offset, entry.last_offset
    except BadRecord as error:
        after = error.facts.get("next_offset", until)
        return error.facts["base_offset"], after - 1
