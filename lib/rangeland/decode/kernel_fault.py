"""What can be wrong with bytes, as numbers that the kernel shares, and in words."""

from __future__ import annotations

from enum import IntEnum
from typing import Self


class KernelFault(IntEnum):
    """The base of the faults of each format: a member has its number and the reason that messages
    give for it."""

    _value_: int
    reason: str

    def __new__(cls, number: int, reason: str = "") -> Self:
        made = int.__new__(cls, number)
        made._value_ = number
        made.reason = reason
        return made
