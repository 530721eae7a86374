"""The format that needs no schema: text, which must be UTF-8."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from rangeland.decode.payload.payload_decoder import (
    DecodedPayloads,
    PayloadArray,
    PayloadDecoder,
    PayloadFormat,
    Undecodable,
)


@dataclass(frozen=True)
class StringFormat(PayloadFormat):
    """Payloads are text in UTF-8. Any character is allowed, including NUL; unpaired surrogates,
    overlong forms and numbers beyond U+10FFFF are not characters."""

    name = "string"

    @property
    def arrow_type(self) -> pa.DataType:
        return pa.string()

    def decoder(self) -> PayloadDecoder:
        return _StringDecoder()


class _StringDecoder(PayloadDecoder):
    arrow_type = pa.string()

    def decode(self, payloads: PayloadArray) -> DecodedPayloads:
        """Checks all bytes at once, and checks single rows only if that fails."""
        payloads = payloads.cast(pa.binary())
        try:
            return DecodedPayloads(payloads.cast(pa.string()))
        except pa.ArrowInvalid:
            pass
        faults = tuple(_faults(payloads, 0))
        undecodable = pa.array([fault.row for fault in faults], pa.int64())
        rows = pa.array(range(len(payloads)), pa.int64())
        keep = pc.invert(pc.is_in(rows, value_set=undecodable))
        decodable = pc.if_else(keep, payloads, pa.scalar(None, pa.binary()))
        return DecodedPayloads(decodable.cast(pa.string()), faults)


def _faults(payloads: pa.BinaryArray, first_row: int) -> Iterator[Undecodable]:
    """Keeps halving the array as long as one half has a row that is not UTF-8."""
    try:
        payloads.cast(pa.string())
        return
    except pa.ArrowInvalid:
        pass
    count = len(payloads)
    if count > 1:
        yield from _faults(payloads.slice(0, count // 2), first_row)
        yield from _faults(payloads.slice(count // 2), first_row + count // 2)
        return
    try:
        payloads[0].as_py().decode()
    except UnicodeDecodeError as error:
        yield Undecodable(first_row, f"it is not UTF-8: {error.reason} at byte {error.start}")
