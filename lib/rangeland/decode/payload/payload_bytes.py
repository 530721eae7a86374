"""An array of payloads as the decoders see it: one buffer, and the place of each payload in it.

Nothing is copied. A payload's fault is a number in a parallel array, so that framing and decoders
can judge all payloads at once, and only faulty ones become Python objects.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from rangeland.decode.native.kernel_arrays import check_fits_in_one_call
from rangeland.decode.payload.payload_decoder import PayloadArray
from rangeland.decode.payload.payload_faults import PayloadFault, fault_reason


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
