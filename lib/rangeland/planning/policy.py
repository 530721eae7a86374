"""What to do about each kind of loss, as a value; judged here and nowhere else.

There is no boolean for "data loss". Each verdict has its own policy: *fail* ends the run,
*skip* goes on and records the lost offsets, *hold* leaves that partition alone and lands
the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from rangeland.model import Partition


class Verdict(StrEnum):
    """Why offsets that were asked for are not there."""

    EXPIRED = "expired"
    RECREATED = "recreated"
    TRUNCATED = "truncated"
    VANISHED = "vanished"
    CORRUPT = "corrupt"
    UNREACHABLE = "unreachable"
    """Not lost: nobody serves the partition now. Never skipped."""


class Action(StrEnum):
    FAIL = "fail"
    SKIP = "skip"
    HOLD = "hold"
    QUARANTINE = "quarantine"


@dataclass(frozen=True, slots=True)
class Policy:
    """One action per verdict, and one for records that cannot be decoded."""

    expired: Action = Action.FAIL
    recreated: Action = Action.FAIL
    truncated: Action = Action.FAIL
    vanished: Action = Action.FAIL
    corrupt: Action = Action.FAIL
    unreachable: Action = Action.FAIL

    def of(self, verdict: Verdict) -> Action:
        action: Action = getattr(self, verdict.value)
        return action


@dataclass(frozen=True, slots=True)
class Loss:
    """Offsets ``[from_offset, until_offset)`` that cannot be had, why, and what the survey saw."""

    partition: Partition
    from_offset: int
    until_offset: int
    verdict: Verdict
    evidence: str

    @property
    def width(self) -> int:
        return max(0, self.until_offset - self.from_offset)

    def __str__(self) -> str:
        return f"{self.partition} [{self.from_offset}, {self.until_offset}) is {self.verdict}"
