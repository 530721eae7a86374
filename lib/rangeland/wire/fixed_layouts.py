"""Fixed-size binary layouts, each declared once: the names, types and order of its fields.

A layout is a NamedTuple whose fields carry a ``struct`` code; ``StructLayout`` reads and writes it.
Byte positions are computed from the declaration, so that no other file has to count bytes.

Fixed sizes only, big-endian unless declared otherwise. Values are as stored: checking them is up to
the caller.
"""

from __future__ import annotations

import struct
from typing import Annotated, Any, Generic, TypeVar, get_type_hints

T = TypeVar("T", bound=tuple[Any, ...])

I8 = Annotated[int, "b"]
I16 = Annotated[int, "h"]
I32 = Annotated[int, "i"]
U32 = Annotated[int, "I"]
I64 = Annotated[int, "q"]


class StructLayout(Generic[T]):
    """The byte layout of the NamedTuple ``fields``, big-endian."""

    def __init__(self, fields: type[T]) -> None:
        codes = {
            name: hint.__metadata__[0]
            for name, hint in get_type_hints(fields, include_extras=True).items()
        }
        self._struct = struct.Struct(">" + "".join(codes.values()))
        self._make: Any = fields._make  # type: ignore[attr-defined]
        self._byte_indexes: dict[str, int] = {}
        byte_index = 0
        for name, code in codes.items():
            self._byte_indexes[name] = byte_index
            byte_index += struct.calcsize(">" + code)
        self.size = self._struct.size
        self.unpack_from = self._struct.unpack_from

    def read(self, buffer: Any, byte_index: int = 0) -> T:
        """The fields at ``byte_index``; all ``size`` bytes must be present."""
        fields: T = self._make(self._struct.unpack_from(buffer, byte_index))
        return fields

    def write(self, fields: T) -> bytes:
        return self._struct.pack(*fields)

    def byte_index_of(self, name: str) -> int:
        """The byte index, within the layout, at which the field begins."""
        return self._byte_indexes[name]
