"""What a broker's code means for whoever reads: the one vocabulary of all dialects.

A dialect has a table of codes; its ``judge`` turns a number into a line of it, and the fetch
loop turns the verdict there into a step or an error. No number of any protocol is known here,
and no policy.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final


class ErrorMeaning(Enum):
    """What to do next, in one word. The value is for logs."""

    OK = "ok"
    RETRY = "retry"
    """The same broker, after a pause: it is not ready, or was too slow."""
    FIND_LEADER = "find leader"
    """Somebody else serves this now, or it is not known who: ask for the leader, or for the
    group's coordinator, and go there."""
    OUT_OF_RANGE = "out of range"
    """The offset is not in the log: ask where the log begins and ends before judging."""
    CORRUPT = "corrupt"
    """The broker itself cannot read what it stored, or refuses what was sent as damaged."""
    RECREATED = "recreated"
    """The log and the request have different topic ids: the topic was deleted and made again.
    Look up its id and compare before calling anything lost."""
    REJOIN = "rejoin"
    """What a group member holds is void: join the group again before doing anything else."""
    UNSUPPORTED = "unsupported"
    """This broker cannot do it in this way: a version, a format, a codec."""
    REFUSED = "refused"
    """The same request would be refused again: rights, names, settings."""
    UNKNOWN = "unknown"
    """The code says nothing about what to do, so it may pass: it is asked again, as RETRY is."""

    @property
    def may_pass(self) -> bool:
        """Whether the same request may succeed later without anybody changing anything."""
        return self in (ErrorMeaning.RETRY, ErrorMeaning.FIND_LEADER, ErrorMeaning.UNKNOWN)


@dataclass(frozen=True, slots=True)
class ErrorCode:
    """A line of a dialect's table. ``description`` completes "the broker says that"."""

    number: int
    name: str
    verdict: ErrorMeaning
    description: str


UNLISTED: Final = ErrorCode(
    -(2**15), "UNLISTED", ErrorMeaning.UNKNOWN, "something this table does not list"
)
