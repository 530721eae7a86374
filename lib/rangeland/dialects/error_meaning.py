"""What a broker's error code means for the caller, in the same terms for all dialects.

Each dialect has a table of codes; its ``error_code_of`` looks up the line for a number, and the
fetch loop turns the meaning on that line into an action or an error. This module knows no
protocol's numbers, and no policy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from rangeland.errors import (
    BROKER_OPERATOR,
    AccessDenied,
    JobFileError,
    MissingRequirement,
    RangelandError,
)


class ErrorMeaning(Enum):
    """What an error code tells the caller to do next. The value is for logs."""

    OK = "ok"
    RETRY = "retry"
    """Ask the same broker after a pause: it is not ready, or was too slow."""
    FIND_LEADER = "find leader"
    """Another broker serves this now, or nobody knows which one does: find the leader, or the
    group's coordinator, and ask there."""
    OUT_OF_RANGE = "out of range"
    """The offset is not in the log: ask where the log begins and ends before deciding."""
    CORRUPT = "corrupt"
    """The broker cannot read its own log, or rejects the request as damaged."""
    RECREATED = "recreated"
    """The log and the request have different topic ids: the topic was deleted and created again.
    Compare the current id before reporting a loss."""
    REJOIN = "rejoin"
    """The group membership is no longer valid: join the group again first."""
    UNSUPPORTED = "unsupported"
    """This broker does not support something in the request: a version, a format, a codec."""
    DENIED = "denied"
    """This client lacks a permission."""
    REFUSED = "refused"
    """The same request would be refused again, for some other reason: names, settings."""
    UNKNOWN = "unknown"
    """The code does not say what to do, so the error may be temporary: it is retried, like
    RETRY."""

    @property
    def is_retriable(self) -> bool:
        """Whether the same request may succeed later without any change."""
        return self in (ErrorMeaning.RETRY, ErrorMeaning.FIND_LEADER, ErrorMeaning.UNKNOWN)

    @property
    def is_final(self) -> bool:
        """Whether the same request would be refused again."""
        return self in (ErrorMeaning.DENIED, ErrorMeaning.REFUSED, ErrorMeaning.UNSUPPORTED)

    def refusal_error(self, what: str, *, why: str, do: str, **facts: Any) -> RangelandError:
        """The error for a request that would be refused again. Permissions and versions are for the
        brokers' operator to change, names and settings for the owner of the job."""
        match self:
            case ErrorMeaning.DENIED:
                return AccessDenied(what, why=why, do=do, operator=BROKER_OPERATOR, **facts)
            case ErrorMeaning.UNSUPPORTED:
                lacking = MissingRequirement(what, why=why, do=do, **facts)
                return lacking.with_answers(acts=BROKER_OPERATOR)
            case _:
                return JobFileError(what, why=why, do=do, **facts)


class GroupMeaning(Enum):
    """What an error code tells those who join a group or ask about one, where that is more than its
    ``ErrorMeaning`` tells them. The value is for logs."""

    OTHER = "other"
    """Nothing more than the ``ErrorMeaning``."""
    MEMBER_ID_REQUIRED = "member id required"
    """The coordinator has assigned a member id: join again with it."""
    REBALANCING = "rebalancing"
    """The members have to join again."""
    GENERATION_OVER = "generation over"
    """The group has a newer generation; it may still know the member."""
    MEMBER_UNKNOWN = "member unknown"
    INSTANCE_ID_TAKEN = "instance id taken"
    """Another member has this instance id."""
    NO_SUCH_GROUP = "no such group"
    NO_MEMBERS = "no members"
    """The group has no member at this broker."""
    NO_OFFSET = "no offset"
    """The group has no offset for this partition."""
    PROTOCOL_MISMATCH = "protocol mismatch"
    """The group's members use another protocol or assignment than the member that is joining."""
    GROUP_FULL = "group full"

    @property
    def ends_membership(self) -> bool:
        """Whether a member that gets the code no longer holds its partitions."""
        return self in (
            GroupMeaning.GENERATION_OVER,
            GroupMeaning.MEMBER_UNKNOWN,
            GroupMeaning.INSTANCE_ID_TAKEN,
            GroupMeaning.NO_SUCH_GROUP,
        )


@dataclass(frozen=True, slots=True)
class ErrorCode:
    """A line of a dialect's table. ``description`` completes the sentence "the broker says that
    ...". The name is for people: callers branch on the meanings and on the other properties of the
    code."""

    number: int
    name: str
    meaning: ErrorMeaning
    description: str
    group_meaning: GroupMeaning = GroupMeaning.OTHER
    is_unknown_topic: bool = False
    """The broker knows no such topic."""
    is_before_log_start: bool = False
    """The log begins after the requested offset."""

    def describe(self, remark: str = "") -> str:
        """The code's name with the broker's remark, or else with the code's own description."""
        return f"{self.name}: {remark or self.description}"


def error_code_lookup(codes: Iterable[ErrorCode]) -> Callable[[int], ErrorCode]:
    """Returns a function that looks up a number from the wire; a number that is not in the table
    gets a line of its own."""
    by_number = {code.number: code for code in codes}
    return lambda number: by_number.get(number) or unlisted_code(number)


def unlisted_code(number: int) -> ErrorCode:
    """The line for a number that is not in a dialect's table; newer brokers may send such
    numbers."""
    return ErrorCode(
        number,
        f"error code {number}",
        ErrorMeaning.UNKNOWN,
        "a code that this release does not know",
    )
