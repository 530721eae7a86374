"""Fixed-size layouts of the wire, each declared once: names, types and order of its fields.

A layout is a NamedTuple whose fields carry a ``struct`` code; ``StructLayout`` reads and writes
it. Byte positions are computed from the declaration, so that no other file counts bytes.

Rules: fixed sizes only, big-endian unless said; no meaning beyond names. Values are what
the wire says: checks belong to whoever reads them.
"""

from __future__ import annotations

import struct
from typing import Annotated, Any, Generic, NamedTuple, TypeVar, get_type_hints

T = TypeVar("T", bound=tuple[Any, ...])

I8 = Annotated[int, "b"]
I16 = Annotated[int, "h"]
I32 = Annotated[int, "i"]
U32 = Annotated[int, "I"]
I64 = Annotated[int, "q"]


class StructLayout(Generic[T]):
    """How the NamedTuple ``fields`` lies in bytes. ``order`` is a ``struct`` byte order."""

    def __init__(self, fields: type[T], order: str = ">") -> None:
        codes = {
            name: hint.__metadata__[0]
            for name, hint in get_type_hints(fields, include_extras=True).items()
        }
        self._struct = struct.Struct(order + "".join(codes.values()))
        self._make: Any = fields._make  # type: ignore[attr-defined]
        self._positions: dict[str, int] = {}
        position = 0
        for name, code in codes.items():
            self._positions[name] = position
            position += struct.calcsize(order + code)
        self.size = self._struct.size
        self.unpack_from = self._struct.unpack_from

    def read(self, buffer: Any, position: int = 0) -> T:
        """The fields at ``position``, of which all ``size`` bytes must be there."""
        made: T = self._make(self._struct.unpack_from(buffer, position))
        return made

    def write(self, fields: T) -> bytes:
        return self._struct.pack(*fields)

    def position_of(self, name: str) -> int:
        """Where the field begins, from the beginning of the layout."""
        return self._positions[name]


class BatchPrefix(NamedTuple):
    """What begins every entry of a log, whatever its magic. ``length`` counts what follows
    itself, so an entry has ``BATCH_PREFIX.size + length`` bytes."""

    base_offset: I64
    length: I32


class BatchHeader(NamedTuple):
    """Before the records of a v2 batch (DefaultRecordBatch). ``crc`` is CRC-32C of all that
    follows it, from ``attributes`` to the end of the batch, as stored."""

    base_offset: I64
    length: I32
    leader_epoch: I32
    magic: I8
    crc: U32
    attributes: I16
    last_offset_delta: I32
    base_timestamp_ms: I64
    max_timestamp_ms: I64
    producer_id: I64
    producer_epoch: I16
    base_sequence: I32
    record_count: I32


class MessageV0(NamedTuple):
    """Before the key of a message of format 0. ``length`` counts what follows it; ``crc`` is
    CRC-32 of what follows itself. Behind the key is another length, and the value."""

    offset: I64
    length: I32
    crc: U32
    magic: I8
    attributes: I8
    key_length: I32


class MessageV1(NamedTuple):
    """As ``MessageV0``, in format 1."""

    offset: I64
    length: I32
    crc: U32
    magic: I8
    attributes: I8
    timestamp_ms: I64
    key_length: I32


class ControlKey(NamedTuple):
    """The key of a transaction marker."""

    version: I16
    kind: I16


BATCH_PREFIX = StructLayout(BatchPrefix)
BATCH_V2 = StructLayout(BatchHeader)
MESSAGE_V0 = StructLayout(MessageV0)
MESSAGE_V1 = StructLayout(MessageV1)
CONTROL_KEY = StructLayout(ControlKey)
