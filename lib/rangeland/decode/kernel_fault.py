"""The faults that bytes can have, as numbers that the kernel shares, and in words."""

from __future__ import annotations

from enum import IntEnum
from typing import Self


class KernelFault(IntEnum):
    """The base of the faults of each format: a member has its number and the reason for
    messages."""

    _value_: int
    reason: str

    def __new__(cls, number: int, reason: str = "") -> Self:
        fault = int.__new__(cls, number)
        fault._value_ = number
        fault.reason = reason
        return fault
