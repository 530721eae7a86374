"""The wire format of Confluent's serializers: a magic byte 0, the schema's id, then the body.

The id is a big-endian int32. In Protobuf payloads it is followed by the indexes of the message in
its file: their count and each index as zigzag varints, except that ``[0]``, the first message, is
written as a single 0 byte. All payloads are read together; one that is not framed gets a fault and
never causes an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from rangeland.decode.payload.payload_bytes import PayloadBytes, PayloadFault, payload_bytes
from rangeland.decode.payload.payload_decoder import PayloadArray
from rangeland.wire.codec_errors import UnreadableBytes
from rangeland.wire.primitives import read_uvarint, uvarint_bytes

FRAME_BYTES = 5
MAX_INDEXES = 32
"""How deeply a message may be nested in a Protobuf file; a longer list of indexes is taken for
damage."""


def count_schema_ids(payloads: PayloadArray) -> dict[int, int]:
    """Counts how often the payloads name each schema id in their first five bytes."""
    return count_ids(read_schema_ids(payload_bytes(payloads)))


def count_ids(ids: np.ndarray) -> dict[int, int]:
    """Counts how often each id occurs; 0 is not an id."""
    values, counts = np.unique(ids[ids != 0], return_counts=True)
    return dict(zip(values.tolist(), counts.tolist(), strict=True))


def read_schema_ids(payloads: PayloadBytes) -> np.ndarray:
    """The schema id of each payload, 0 if it has none. Moves the start of framed payloads to their
    body, and marks the others as faulty."""
    ids = np.zeros(payloads.count, np.int64)
    rows = payloads.sound_rows()
    if not len(rows):
        return ids
    data = np.frombuffer(payloads.data, np.uint8)
    starts, lengths = payloads.starts[rows], payloads.ends[rows] - payloads.starts[rows]
    is_framed = np.zeros(len(rows), bool)
    has_bytes = lengths > 0
    is_framed[has_bytes] = data[starts[has_bytes]] == 0
    payloads.fail(rows[has_bytes & ~is_framed], PayloadFault.NOT_FRAMED)
    is_short = lengths < FRAME_BYTES
    payloads.fail(rows[~has_bytes | is_framed & is_short], PayloadFault.FRAME_TOO_SHORT)
    is_whole = is_framed & ~is_short
    rows = rows[is_whole]
    starts = starts[is_whole]
    numbers = np.zeros(len(rows), np.int64)
    for at in range(1, FRAME_BYTES):
        numbers = numbers << 8 | data[starts + at]
    is_positive = (numbers > 0) & (numbers < 1 << 31)
    payloads.fail(rows[~is_positive], PayloadFault.SCHEMA_ID_NOT_POSITIVE)
    rows = rows[is_positive]
    ids[rows] = numbers[is_positive]
    payloads.starts[rows] += FRAME_BYTES
    return ids


def encode_indexes(indexes: Sequence[int]) -> bytes:
    """Message indexes as Confluent's serializers write them."""
    return b"\0" if list(indexes) == [0] else _as_list(indexes)


def _as_list(indexes: Sequence[int]) -> bytes:
    return b"".join(uvarint_bytes(2 * number) for number in (len(indexes), *indexes))


def skip_message_indexes(
    payloads: PayloadBytes,
    rows: np.ndarray,
    likely: Iterable[Sequence[int]],
    fault_of: Callable[[Sequence[int]], PayloadFault | None],
) -> None:
    """Moves the start of these framed payloads past their message indexes. ``fault_of``: the fault
    of a payload with these indexes, if any. Damaged indexes are a fault as well. ``likely``: the
    indexes that most payloads have, which are looked for in all of them at once."""
    rest = rows
    expected = [indexes for indexes in likely if fault_of(indexes) is None]
    for encoded in {form(indexes) for indexes in expected for form in (encode_indexes, _as_list)}:
        is_match = _begins_with(payloads, rest, encoded)
        payloads.starts[rest[is_match]] += len(encoded)
        rest = rest[~is_match]
    for row in rest.tolist():
        found = read_message_indexes(payloads, row)
        if found is None:
            payloads.fail(np.array([row]), PayloadFault.DAMAGED_MESSAGE_INDEXES)
            continue
        indexes, length_bytes = found
        if (fault := fault_of(indexes)) is not None:
            payloads.fail(np.array([row]), fault)
        else:
            payloads.starts[row] += length_bytes


def read_message_indexes(payloads: PayloadBytes, row: int) -> tuple[list[int], int] | None:
    """The message indexes at the start of a payload, and how many bytes they take; None if they are
    damaged."""
    begin, end = int(payloads.starts[row]), int(payloads.ends[row])
    return _read_indexes(payloads.data[begin : min(end, begin + 10 * MAX_INDEXES)])


def _begins_with(payloads: PayloadBytes, rows: np.ndarray, expected: bytes) -> np.ndarray:
    data = np.frombuffer(payloads.data, np.uint8)
    is_match: np.ndarray = payloads.ends[rows] - payloads.starts[rows] >= len(expected)
    for at, byte in enumerate(expected):
        starts = payloads.starts[rows[is_match]] + at
        is_match[is_match] = data[starts] == byte
    return is_match


def _read_indexes(data: object) -> tuple[list[int], int] | None:
    raw = memoryview(data).cast("B")  # type: ignore[arg-type]
    numbers: list[int] = []
    length, at = 1, 0
    while len(numbers) < length:
        try:
            value, at = read_uvarint(raw, at)
        except UnreadableBytes:
            return None
        number = value >> 1 ^ -(value & 1)
        numbers.append(number)
        if len(numbers) == 1:
            length = 1 + number
        if number < 0 or length > MAX_INDEXES:
            return None
    return numbers[1:] or [0], at
