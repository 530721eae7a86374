"""Jafka's error codes, one per line: the name of a number and what it means for a reader.

The numbers are those of ErrorMapping, which Jafka inherited from Kafka 0.7. There are few, because
a broker closes the connection if it does not understand a request.

Two cases have no error code, although one might expect it: a topic that does not exist looks like
an idle one (code 0, no bytes), and so does a partition that was never written to.
"""

from __future__ import annotations

from typing import Final

from rangeland.dialects.error_meaning import ErrorCode, ErrorMeaning, error_code_lookup

_E = ErrorCode
_V = ErrorMeaning

NONE: Final = 0
OFFSET_OUT_OF_RANGE: Final = 1
WRONG_PARTITION: Final = 3

# fmt: off
CODES: Final[tuple[ErrorCode, ...]] = (
    _E(-1, "UNKNOWN", _V.UNKNOWN, "it failed for a reason without a code, or the name is invalid"),
    _E(0, "NONE", _V.OK, "the request succeeded"),
    _E(1, "OFFSET_OUT_OF_RANGE", _V.OUT_OF_RANGE, "the log does not contain this position"),
    _E(2, "INVALID_MESSAGE", _V.CORRUPT, "a message has a wrong checksum"),
    _E(3, "WRONG_PARTITION", _V.FIND_LEADER, "it has no partition of this number"),
    _E(4, "INVALID_FETCH_SIZE", _V.REFUSED, "the fetch size is invalid"),
)
# fmt: on

error_code_of: Final = error_code_lookup(CODES)
