"""The fast decoder of RocketMQ's stored messages: one call of the compiled kernel for all of them.

The kernel verifies checksums and parses properties too. Only ``stored.h`` knows the format; the
structs here mirror the ones there.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from rangeland.decode import columns
from rangeland.decode.native.kernel_arrays import (
    INT64,
    POINTER,
    SLACK,
    KernelFunction,
    allocate,
    as_int64,
    binary_array,
    check_fits_in_one_call,
    header_column,
    number_array,
    struct_of,
)
from rangeland.decode.rocketmq.layout import (
    BORN_TIMESTAMP,
    LOG_APPEND_TIME,
    SMALLEST,
    STORED,
    DecodedMessages,
    MessageWalk,
    StoredFault,
    UndecodableMessage,
)

_MAX_INT64 = (1 << 63) - 1
_SMALLEST_PROPERTY = 2  # a key of one byte and its separator


class _Decoded(NamedTuple):
    """The kernel's result; the fields are in its order."""

    messages: int
    end: int
    last_offset: int
    rows: int
    packed: int
    key_bytes: int
    value_bytes: int
    key_nulls: int
    headers: int
    header_key_bytes: int
    header_value_bytes: int
    header_value_nulls: int
    rows_without_headers: int
    keys_beyond_ascii: int
    timestamp_nulls: int
    born_nulls: int


class RocketmqKernel:
    """The functions of one loaded library. An incomplete message ends a walk without a fault; a
    message that contains a batch of others ends it with one."""

    def __init__(self, library: ctypes.CDLL) -> None:
        arguments = [POINTER, *[INT64] * 3, *[POINTER] * 2]
        self._decode = KernelFunction(library, "rangeland_decode_stored", arguments, _Decoded)

    def walk_stored(self, data: Any) -> MessageWalk:
        buffer = pa.py_buffer(data)
        return _walk_result(*self._decode(buffer.address, buffer.size, 0, _MAX_INT64, None, None))

    def decode_stored(
        self, data: Any, from_offset: int, until_offset: int, tags: Sequence[bytes] = ()
    ) -> DecodedMessages:
        """Messages in ``[from_offset, until_offset)`` as rows; if ``tags`` are given, only messages
        with one of them. Earlier messages are not read. Raises UndecodableMessage, with an offset
        (the message's own, or the previous message's if its own is uncertain) and the byte
        index."""
        buffer = pa.py_buffer(data)
        check_fits_in_one_call(buffer.size)
        output = _OutputBuffers(buffer.size)
        names = pa.py_buffer(b"".join(tags) + b"\0")  # never empty: the kernel reads it
        ends = np.cumsum([len(tag) for tag in tags], dtype=np.int32)
        tag_filter = struct_of([len(tags)], [names, pa.py_buffer(ends)])
        result, fault = self._decode(
            buffer.address,
            buffer.size,
            max(0, as_int64(from_offset)),
            max(0, as_int64(until_offset)),
            tag_filter,
            output.struct,
        )
        if fault:
            raise UndecodableMessage(StoredFault(fault), result.last_offset, result.end)
        return DecodedMessages(output.batch(result), output.codecs(result), _walk_result(result, 0))


def _walk_result(result: _Decoded, fault: int) -> MessageWalk:
    return MessageWalk(
        result.messages, result.end, result.last_offset, StoredFault(fault) if fault else None
    )


class _OutputBuffers:
    """Buffers for as many rows and headers as ``size`` bytes can contain."""

    def __init__(self, size: int) -> None:
        rows = size // SMALLEST
        headers = size // _SMALLEST_PROPERTY + 1
        data = size + SLACK
        bits = rows // 8 + 1
        self._key = allocate(4 * rows + 4, data, bits)
        self._value = allocate(4 * rows + 4, data)
        self._numbers = allocate(8 * rows, 8 * rows, 8 * rows, bits, bits, rows)
        self._lists = allocate(4 * rows + 4, bits)
        self._header_key = allocate(4 * headers + 4, data)
        self._header_value = allocate(4 * headers + 4, data, headers // 8 + 1)
        buffers = [*self._key, *self._value, *self._numbers, *self._lists]
        buffers += [*self._header_key, *self._header_value]
        self.struct = struct_of([rows, headers, size], buffers)

    def batch(self, result: _Decoded) -> pa.RecordBatch:
        rows = result.rows
        offsets, timestamps, born, stamped, is_born, _ = self._numbers
        arrays = [
            binary_array(columns.KEY.type, rows, self._key, result.key_bytes, result.key_nulls),
            binary_array(columns.VALUE.type, rows, self._value, result.value_bytes),
            number_array(columns.OFFSET, rows, offsets),
            number_array(columns.TIMESTAMP, rows, timestamps, result.timestamp_nulls, stamped),
            pa.repeat(pa.scalar(LOG_APPEND_TIME, columns.TIMESTAMP_TYPE.type), rows),
            header_column(result, self._lists, self._header_key, self._header_value),
            number_array(BORN_TIMESTAMP, rows, born, result.born_nulls, is_born),
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=STORED)

    def codecs(self, result: _Decoded) -> np.ndarray[Any, Any] | None:
        if not result.packed:
            return None
        return np.frombuffer(self._numbers[-1], np.int8, result.rows)
