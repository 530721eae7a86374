"""An array of payloads as the decoders see it: one buffer, the place of each payload in it, and
the faults that payloads can have.

Nothing is copied. A payload's fault is a number in a parallel array, so that framing and decoders
can judge all payloads at once, and only faulty ones become Python objects.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from rangeland.decode.kernel_fault import KernelFault
from rangeland.decode.native.kernel_arrays import check_fits_in_one_call
from rangeland.decode.payload.payload_decoder import PayloadArray


class PayloadFault(KernelFault):
    """A reason why a payload has no value. Numbers from 64 on are the same as in
    ``payload_columns.h``."""

    NULL_PAYLOAD = 1
    """Not an error: the payload is null."""
    NOT_FRAMED = 2, "it does not begin with the magic byte 0 of a registry's format"
    FRAME_TOO_SHORT = 3, "it is too short for a magic byte and a schema id"
    SCHEMA_ID_NOT_POSITIVE = 4, "its schema id is not positive"
    UNKNOWN_SCHEMA_ID = 5, "its schema id is unknown"
    DAMAGED_MESSAGE_INDEXES = 6, "the message indexes after its schema id are damaged"
    OTHER_MESSAGE = 7, "its message indexes name another message"
    AMBIGUOUS_MESSAGE = 8, "its message indexes may mean another message as well"
    PAYLOAD_ENDS = 64, "it ends inside a value"
    PAYLOAD_TRAILING = 65, "there are more bytes after its last value"
    NUMBER_TOO_LONG = 66, "a number has too many bytes"
    NUMBER_RANGE = 67, "a number is out of range"
    LENGTH_NEGATIVE = 68, "a length is negative"
    LENGTH_PAST_END = 69, "a length or a count exceeds the payload"
    NOT_UTF8 = 70, "a string is not valid UTF-8"
    NOT_BOOLEAN = 71, "a boolean is neither 0 nor 1"
    NO_SUCH_SYMBOL = 72, "an enum's number has no symbol in its schema"
    NO_SUCH_BRANCH = 73, "a union's number has no branch in its schema"
    BLOCK_SIZE_WRONG = 74, "a block of items does not have the size that it names"
    TOO_MANY_EMPTY = 75, "it claims too many items that take no bytes"
    TOO_MUCH_MEMORY = 76, "it would take far more memory than its length allows for"
    DECIMAL_RANGE = 77, "a decimal has more digits than its type"
    UNRESOLVED = 78, "its schema cannot be read as the table's"
    IMPOSSIBLE_TAG = 79, "a field has an impossible number or wire type"
    MISPLACED_GROUP = 80, "a group does not end where it should"
    REQUIRED_MISSING = 81, "a required field is missing"
    TOO_DEEP = 82, "groups or values are nested too deeply"
    MERGE_TOO_LARGE = 83, "one message is split into too many parts"
    PAYLOAD_TOO_LARGE = 84, "it would take more than 256 MiB of memory"
    OTHER_WIRE_TYPE = 85, "a field was written with a different type from the schema's"


def fault_reason(fault: int, byte_index: int = -1, place: str = "", detail: str = "") -> str:
    """The reason on one line. ``place``: the path of the field; ``detail`` replaces the general
    wording."""
    words = detail or PayloadFault(fault).reason
    where = [f"byte {byte_index}"] if byte_index >= 0 else []
    where += [f"field {place}"] if place else []
    return f"{words} ({', '.join(where)})" if where else words


@dataclass(frozen=True, eq=False)
class PayloadBytes:
    """Many payloads in one buffer. ``starts`` and ``ends`` are positions in ``data``; ``faults``
    has a number for each payload, 0 for none."""

    data: pa.Buffer
    begins: np.ndarray
    """The beginnings of the payloads. The bytes up to ``starts`` have been read."""
    starts: np.ndarray
    ends: np.ndarray
    faults: np.ndarray
    """A ``PayloadFault`` for each payload; NULL_PAYLOAD if the payload is null."""
    positions: np.ndarray
    """The byte index of the fault, counted from ``starts``; -1 if it has none."""
    places: np.ndarray
    """The part of the schema at which the fault is; -1 if there is none."""

    @property
    def count(self) -> int:
        return len(self.starts)

    def fail(self, rows: np.ndarray, fault: PayloadFault) -> None:
        self.faults[rows] = fault

    def undecodable_rows(self, count: int) -> list[int]:
        """The payloads among the first ``count`` that have a fault and are not null."""
        faults = self.faults[:count]
        is_undecodable = (faults != 0) & (faults != PayloadFault.NULL_PAYLOAD)
        rows: list[int] = np.flatnonzero(is_undecodable).tolist()
        return rows

    def reason(self, row: int, path: str = "", detail: str = "") -> str:
        """The reason why a payload is undecodable; see ``fault_reason``."""
        at = int(self.positions[row])
        if at >= 0:
            at += int(self.starts[row] - self.begins[row])
        return fault_reason(int(self.faults[row]), at, path, detail)

    def sound_rows(self) -> np.ndarray:
        return np.flatnonzero(self.faults == 0)


def data_and_offsets(payloads: PayloadArray) -> tuple[pa.Buffer, np.ndarray]:
    """The buffer that contains the payloads, and where in it each begins, as int64; the last number
    is where they end. Raises Bug if they exceed what one call of the kernel can take."""
    _, offsets, data = payloads.buffers()
    width = np.int64 if pa.types.is_large_binary(payloads.type) else np.int32
    places = np.zeros(1, np.int64)
    if count := len(payloads):
        begin = payloads.offset
        places = np.frombuffer(offsets, width)[begin : begin + count + 1].astype(np.int64)
    check_fits_in_one_call(int(places[-1] - places[0]))
    return data or pa.py_buffer(b""), places


def payload_bytes(payloads: PayloadArray) -> PayloadBytes:
    """The payloads of an array of binary or large binary values."""
    count = len(payloads)
    data, ends = data_and_offsets(payloads)
    faults = np.zeros(count, np.int64)
    if payloads.null_count:
        missing = payloads.is_null().to_numpy(zero_copy_only=False)
        faults[missing] = PayloadFault.NULL_PAYLOAD
    return PayloadBytes(
        data,
        ends[:-1],
        ends[:-1].copy(),
        ends[1:].copy(),
        faults,
        np.full(count, -1, np.int64),
        np.full(count, -1, np.int64),
    )
