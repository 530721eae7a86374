"""How long a slice waits between two attempts. Pure.

The state of a slice (``slice_state``) counts its failures and adds this to the time; ``throttle``
decides how long a broker is left alone, whatever is to be read from it.
"""

from __future__ import annotations

from rangeland.fetch.fetch_steps import FetchLimits

SHORT_END_PAUSE_MS = 500
"""Before a log that ends too early is asked again."""
_MOST_DOUBLINGS = 10


def retry_delay_ms(failures: int, limits: FetchLimits) -> int:
    """After so many failures in a row, at least one: twice as long each time, up to a maximum."""
    doubled = limits.backoff_ms << min(failures - 1, _MOST_DOUBLINGS)
    return min(doubled, limits.max_backoff_ms)
