"""Jafka's error codes, one line each: what a number is called and what follows from it.

Numbers are those of ErrorMapping, which Jafka has from Kafka 0.7. There are few: a broker
that cannot make sense of a request closes the connection, which is for the caller to see.

Two answers carry no error and should be known: a topic that is not there reads as an idle
one (0 and no bytes), and so does a partition that nothing was ever written to.
"""

from __future__ import annotations

from typing import Final

from rangeland.dialects.error_meaning import ErrorCode, ErrorMeaning, unlisted

_E, _V = ErrorCode, ErrorMeaning

NONE: Final = 0
OFFSET_OUT_OF_RANGE: Final = 1
WRONG_PARTITION: Final = 3

# fmt: off
CODES: Final[tuple[ErrorCode, ...]] = (
    _E(-1, "UNKNOWN", _V.UNKNOWN, "it failed in a way it has no code for, or the name is bad"),
    _E(0, "NONE", _V.OK, "all is well"),
    _E(1, "OFFSET_OUT_OF_RANGE", _V.OUT_OF_RANGE, "the log does not hold this position"),
    _E(2, "INVALID_MESSAGE", _V.CORRUPT, "a message does not have its checksum"),
    _E(3, "WRONG_PARTITION", _V.FIND_LEADER, "it has no partition of this number"),
    _E(4, "INVALID_FETCH_SIZE", _V.REFUSED, "the fetch size makes no sense"),
)
# fmt: on

_BY_NUMBER: Final = {code.number: code for code in CODES}


def judge(code: int) -> ErrorCode:
    """The line of the table for a number off the wire, or one for numbers that it lacks."""
    return _BY_NUMBER.get(code) or unlisted(code)
