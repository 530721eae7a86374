"""Estimates which ranges retention may remove before they are read, and why. Pure.

Retention removes a log from its start, one segment at a time: when the segment's newest record is
too old, or when the log is too large. So a range is at risk if its first records will be too old
by the time reading is expected to end, or if its log is nearly as large as it may be. This is an
estimate: such ranges are read first, with a warning, and nothing else depends on it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rangeland.model import LogState, OffsetInterval, Partition, Range, Retention, Survey

ASSUMED_BYTES_PER_SECOND = 8 << 20
"""The assumed speed of a job without measured runs."""
MEASURED_RUNS = 3
"""How many of the newest runs are measured."""
LEAST_MEASURED_BYTES = 64 << 20
"""The minimum that a run must have read to be measured: the duration of a smaller run shows how
long it takes to start, not how fast it reads."""
STARTING_MS = 60_000
"""The time between a survey and the first byte: workers have to start, other plans to finish."""
NEARLY_FULL = 0.9
"""A log is at risk from this share of ``retention.bytes`` on: producers soon fill the rest."""


@dataclass(frozen=True, slots=True)
class ReadSpeed:
    """The speed at which a run is expected to read. ``is_measured``: whether it was measured in an
    earlier run of the job."""

    bytes_per_second: int = ASSUMED_BYTES_PER_SECOND
    is_measured: bool = False

    def __str__(self) -> str:
        shown = f"{self.bytes_per_second / (1 << 20):.3g} MiB/s"
        return f"{shown}, as a recent run" if self.is_measured else f"an assumed {shown}"


@dataclass(frozen=True, slots=True)
class RetentionRisk(OffsetInterval):
    """The first offsets of a range, up to ``until_offset``."""

    partition: Partition
    from_offset: int
    until_offset: int
    why: str

    def __str__(self) -> str:
        return f"{OffsetInterval.__str__(self)}: {self.why}"


def speed_of(runs: Sequence[tuple[int, float]]) -> ReadSpeed:
    """The speed of the fastest of these (bytes, seconds) that read enough to be measured."""
    speeds = [
        int(size / seconds)
        for size, seconds in runs
        if size >= LEAST_MEASURED_BYTES and seconds > 0
    ]
    return ReadSpeed(max(1, *speeds), True) if speeds else ReadSpeed()


def reading_ms(
    logs: Mapping[Partition, LogState], begins: Mapping[Partition, int], speed: ReadSpeed
) -> int:
    """The expected time to read the logs from these beginnings to their ends."""
    total = 0
    for partition, log in logs.items():
        log_width = log.end_offset - log.start_offset
        unread = log.end_offset - max(log.start_offset, begins.get(partition, log.start_offset))
        if log_width > 0 and log.size_bytes:
            total += log.size_bytes * max(0, unread) // log_width
    return STARTING_MS + total * 1000 // speed.bytes_per_second


def expiry_times(retention: Mapping[str, Retention], now_ms: int, read_ms: int) -> dict[str, int]:
    """The time, by topic, before which records will have expired when they are read."""
    return {
        topic: now_ms - kept.ms + read_ms
        for topic, kept in retention.items()
        if kept.ms is not None
    }


def at_risk(ranges: Sequence[Range], survey: Survey) -> tuple[RetentionRisk, ...]:
    """The ranges whose first offsets may be gone before they are read."""
    risks = (_risk(r, survey) for r in ranges if r.partition in survey.logs and r.width > 0)
    return tuple(risk for risk in risks if risk is not None)


def risk_warnings(risks: Sequence[RetentionRisk], speed: ReadSpeed) -> tuple[str, ...]:
    """One warning for all risks, before the plan is entered."""
    if not risks:
        return ()
    more = f" and {len(risks) - 1} more" if len(risks) > 1 else ""
    first = OffsetInterval.__str__(risks[0])
    return (
        f"{first}{more} may expire before they can be read (reading at {speed}), so they are "
        f"read first: {risks[0].why}",
    )


def _risk(r: Range, survey: Survey) -> RetentionRisk | None:
    retention = survey.retention.get(r.partition.topic)
    if retention is None:
        return None
    log = survey.logs[r.partition]
    until = min(log.expires_until or 0, r.until_offset)
    if until > r.from_offset and retention.ms is not None:
        why = (
            f"these records are older than retention.ms = {retention.ms} allows, or will be "
            f"when they are read"
        )
        return RetentionRisk(r.partition, r.from_offset, until, why)
    return _too_large(r, log, retention)


def _too_large(r: Range, log: LogState, retention: Retention) -> RetentionRisk | None:
    """The risk that the next writes remove the start of a log that is nearly full."""
    size = log.size_bytes
    most = retention.bytes
    if most is None or size is None or size < most * NEARLY_FULL:
        return None
    share = (size - most * NEARLY_FULL) / max(1, size)
    head = log.start_offset + max(1, int(share * (log.end_offset - log.start_offset)))
    if head <= r.from_offset:
        return None
    why = f"the log has {size} bytes, and retention.bytes = {most}"
    return RetentionRisk(r.partition, r.from_offset, min(head, r.until_offset), why)
