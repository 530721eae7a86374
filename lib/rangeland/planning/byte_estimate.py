"""Estimates the bytes of a range before anything is read.

A partition's size on disk over its width gives bytes per offset. Where the size is unknown (an old
broker, no permission), a record is assumed to have ``ASSUMED_RECORD_BYTES``. Estimates only decide
where slices are cut; no proof depends on them.
"""

from __future__ import annotations

from dataclasses import replace

from rangeland.model import LogState, Range

ASSUMED_RECORD_BYTES = 1024
MOST_BYTES = 1 << 50
"""More than any broker stores: a larger estimate is meaningless."""


def with_estimate(r: Range, log: LogState) -> Range:
    """The range with ``estimated_bytes`` filled in from what the survey saw of its log."""
    there = log.end_offset - log.start_offset
    if log.size_bytes is None or there <= 0:
        return replace(r, estimated_bytes=_within(r.width * ASSUMED_RECORD_BYTES))
    return replace(r, estimated_bytes=_within(log.size_bytes * r.width // there))


def _within(estimate: int) -> int:
    return max(0, min(estimate, MOST_BYTES))
