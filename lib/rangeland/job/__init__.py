"""The job file: its text, the words in it, its models, and what connections need of it.

``document`` has the whole; the rest of this folder is what it is made of, and made into.
"""

from rangeland.job.document import (
    EXPECTED_BOUND,
    Group,
    Job,
    Sink,
    Source,
    parse_bounds,
    parse_size,
    parse_time_ms,
)

__all__ = [
    "EXPECTED_BOUND",
    "Group",
    "Job",
    "Sink",
    "Source",
    "parse_bounds",
    "parse_size",
    "parse_time_ms",
]
