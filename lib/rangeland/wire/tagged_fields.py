"""Tagged fields: the optional fields at the end of a struct in flexible versions (KIP-482).

As in ``primitives``: whatever the bytes are, a reader returns a value or raises
``UnreadableBytes``, and a length is checked before that much memory is allocated.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rangeland.wire.codec_errors import BAD_TAGS, decode_error, take
from rangeland.wire.primitives import Buffer, FieldCodec, read_uvarint, uvarint_bytes


def read_tags(
    buffer: memoryview, offset: int, known: Mapping[int, FieldCodec]
) -> tuple[dict[int, Any], int]:
    """The tagged fields at the end of a struct, by tag. Fields that are not in ``known`` are
    skipped.

    Tags must rise, so none occurs twice, and a known field must fill its size exactly.
    """
    count, offset = read_uvarint(buffer, offset)
    values: dict[int, Any] = {}
    last = -1
    for _ in range(count):
        start = offset
        tag, offset = read_uvarint(buffer, offset)
        if tag <= last:
            why = f"tag {tag} at byte {start} follows tag {last}"
            raise decode_error(BAD_TAGS, why, buffer, start)
        last = tag
        size, offset = read_uvarint(buffer, offset)
        end = take(buffer, offset, size)
        if codec := known.get(tag):
            # The slice begins where the buffer begins, so offsets in errors stay the same.
            values[tag], value_end = codec.read(buffer[:end], offset)
            if value_end != end:
                why = f"tag {tag} at byte {start} has {end - value_end} bytes too many"
                raise decode_error(BAD_TAGS, why, buffer, start)
        offset = end
    return values, offset


def write_tags(tagged: list[tuple[int, FieldCodec, Any]], buffers: list[Buffer]) -> None:
    """Writes tagged fields in ascending order of their tags; an empty list is a single zero
    byte."""
    buffers.append(uvarint_bytes(len(tagged)))
    for tag, codec, value in tagged:
        inner: list[Buffer] = []
        codec.write(value, inner)
        data = b"".join(inner)
        buffers.append(uvarint_bytes(tag) + uvarint_bytes(len(data)))
        buffers.append(data)
