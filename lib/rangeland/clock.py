"""The two clocks, in milliseconds. Their times must never be compared with each other."""

from __future__ import annotations

import time


def wall_ms() -> int:
    """The time since 1970, which other machines and people also use. It may jump."""
    return time.time_ns() // 1_000_000


def monotonic_ms() -> int:
    """The time since an arbitrary moment, for durations and deadlines in this process."""
    return time.monotonic_ns() // 1_000_000
