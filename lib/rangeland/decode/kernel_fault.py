"""The faults that bytes can have: as numbers, shared with the kernel, and in words."""

from __future__ import annotations

from enum import IntEnum
from typing import Self


class KernelFault(IntEnum):
    """The base of each format's faults: a member consists of its number and the reason to give in
    messages."""

    _value_: int
    reason: str

    def __new__(cls, number: int, reason: str = "") -> Self:
        fault = int.__new__(cls, number)
        fault._value_ = number
        fault.reason = reason
        return fault
