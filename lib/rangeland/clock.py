"""The two clocks, in milliseconds: they are never compared with each other."""

from __future__ import annotations

import time


def wall_ms() -> int:
    """The time of day, since 1970, as other machines and people know it. It may jump."""
    return time.time_ns() // 1_000_000


def monotonic_ms() -> int:
    """Since any moment, for durations and deadlines in this process."""
    return time.monotonic_ns() // 1_000_000
