"""The entries of a Jafka log as a fetch returns them: finds them, and opens compressed ones.

An offset is the byte position of an entry in its log. The bytes themselves do not contain it: the
caller must know from where they were fetched. A walk goes from length to length. Inside an entry,
what is read as a length is meaningless, and this shows only in its consequences (an entry that is
too short, an unknown format, a wrong checksum).

A packed entry contains a compressed set of entries. All of them have the offset of the packed
entry. No client nests packed entries, but brokers accept nested ones and upstream's reader opens
them, so they are opened here as well.

Pure functions of bytes. Plain messages are never examined one by one here.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from struct import Struct
from typing import Any, Final

from rangeland.decode import jafka_decoder
from rangeland.decode.jafka.layout import (
    CODEC_MASK,
    HEADER_BYTES,
    MAGIC,
    EntryWalk,
    MessageSet,
    SetFault,
)
from rangeland.dialects.fetch_values import FetchedRecords, Scan
from rangeland.dialects.jafka.messages import ENTRY_HEADER
from rangeland.errors import BadRecord, Damage
from rangeland.wire.bounded_decompression import (
    Codec,
    NotDecompressible,
    check_within_limits,
    decompress,
)
from rangeland.wire.memory_budget import MAX_BATCH_BYTES

LENGTH_BYTES: Final = ENTRY_HEADER.byte_index_of("magic")
KIND_BYTES: Final = ENTRY_HEADER.byte_index_of("crc")
"""How many bytes of an entry are needed to tell its kind."""
_KIND: Final = Struct(">iBB")

CODECS: Final[Mapping[int, Codec]] = {1: Codec.GZIP}
"""The codecs, by their numbers in the attributes of an entry. 0 means none."""
GZIP_MAGIC: Final = b"\x1f\x8b\x08"
MAX_DEPTH: Final = 8


def entry_error(offset: int, why: str, next_offset: int | None = None, **facts: Any) -> BadRecord:
    """The error for an entry. ``next_offset`` is where reading can continue after it; None if its
    end is uncertain."""
    return BadRecord(
        f"the entry at offset {offset} cannot be decoded",
        why=why,
        do="offsets are byte positions in the log: if a range begins here, it may begin inside an "
        "entry. Otherwise restore the log, or go on without the entry with "
        "`policy: {corrupt: skip}`, which records what is lost",
        damage=Damage(offset, next_offset),
        **facts,
    )


def scan(fetched: FetchedRecords) -> Scan:
    """The end of the complete entries, found without opening any. Raises BadRecord."""
    walk = _walk(fetched, len(fetched))
    return Scan(fetched.from_offset + walk.end if walk.entries else None)


def entry_around(fetched: FetchedRecords, target: int) -> tuple[int, int | None]:
    """The beginning and end of the entry that contains ``target``, found by walking from the first
    entry. If the end is None, the walk did not reach it, and the first value is where the walk
    stopped. Raises BadRecord."""
    from_offset = fetched.from_offset
    walk = _walk(fetched, target - from_offset + 1)
    if walk.end > target - from_offset:
        return from_offset + walk.start, from_offset + walk.end
    return from_offset + walk.end, None


def _walk(fetched: FetchedRecords, width: int) -> EntryWalk:
    """A walk over the entries that begin within the first ``width`` bytes. Raises BadRecord."""
    records = fetched.data
    from_offset = fetched.from_offset
    walk = jafka_decoder().walk_entries(records, width)
    if walk.fault is not None:
        raise entry_fault_error(records, walk.end, from_offset, walk.fault)
    if walk.entries == 0:
        check_begins_with_entry(records, from_offset)
    return walk


def check_begins_with_entry(records: memoryview, offset: int) -> None:
    """Raises BadRecord if ``records`` cannot begin with an entry, not even an incomplete one: a
    larger fetch would only return more meaningless bytes."""
    if len(records) >= KIND_BYTES and not _may_begin(records, 0):
        raise entry_fault_error(records, 0, offset, _kind_fault(records, 0))


def entry_fault_error(
    records: memoryview, byte_index: int, from_offset: int, fault: SetFault
) -> BadRecord:
    """The error for the entry at ``byte_index``. Its end is believed if another entry may begin
    there, or if the fetched bytes end there."""
    offset = from_offset + byte_index
    reason = fault.reason
    if byte_index + KIND_BYTES > len(records):
        return entry_error(offset, reason, reason=reason)
    length, magic, codec = _kind_at(records, byte_index)
    end = byte_index + LENGTH_BYTES + length
    is_known = length >= HEADER_BYTES and end <= len(records) and _may_begin(records, end)
    why = f"{reason} (length {length}, magic {magic}, codec {codec})"
    next_offset = from_offset + end if is_known else None
    facts = {"reason": reason, "length": length, "magic": magic, "codec": codec}
    return entry_error(offset, why, next_offset, **facts)


def _kind_at(records: memoryview, byte_index: int) -> tuple[int, int, int]:
    """Length, magic and codec of the entry at a byte index."""
    length, magic, attributes = _KIND.unpack_from(records, byte_index)
    return length, magic, attributes & CODEC_MASK


def _may_begin(records: memoryview, byte_index: int) -> bool:
    if byte_index + KIND_BYTES > len(records):
        return True
    length, magic, codec = _kind_at(records, byte_index)
    return length >= HEADER_BYTES and magic == MAGIC and (codec == 0 or codec in CODECS)


def _kind_fault(records: memoryview, byte_index: int) -> SetFault:
    length, magic, _ = _kind_at(records, byte_index)
    if length < HEADER_BYTES:
        return SetFault.ENTRY_TOO_SHORT
    return SetFault.UNKNOWN_MAGIC if magic != MAGIC else SetFault.NOT_PLAIN


@dataclass(slots=True)
class Unpacked:
    """The contents of a packed entry at ``offset``: plain sets in order, and the number of
    messages. Together they may take up to ``max_bytes``."""

    offset: int
    max_bytes: int = MAX_BATCH_BYTES
    sets: list[MessageSet] = field(default_factory=list)
    messages: int = 0
    size_bytes: int = 0

    def add(self, stored: memoryview, depth: int = 1) -> None:
        """Adds the contents of ``stored``, a complete packed entry. Raises NotDecompressible."""
        data = self._open(stored, depth)
        byte_index = 0
        while byte_index < len(data):
            walk = jafka_decoder().walk_entries(
                data[byte_index:], len(data) - byte_index, plain_only=True
            )
            if walk.entries:
                plain = data[byte_index : byte_index + walk.end]
                self.sets.append(MessageSet(plain, self.offset, True, self.messages))
                self.messages += walk.entries
                check_within_limits(self.messages, self.size_bytes, self.max_bytes)
                byte_index += walk.end
            if walk.fault is SetFault.NOT_PLAIN:
                end = byte_index + LENGTH_BYTES + ENTRY_HEADER.read(data, byte_index).length
                self.add(data[byte_index:end], depth + 1)
                byte_index = end
            elif byte_index < len(data):
                fault = walk.fault or SetFault.ENTRY_PAST_SET
                raise NotDecompressible(f"in its message at byte {byte_index}, {fault.reason}")

    def _open(self, stored: memoryview, depth: int) -> memoryview:
        """The decompressed contents of a packed entry. Raises NotDecompressible."""
        header = ENTRY_HEADER.read(stored)
        payload = stored[ENTRY_HEADER.size :]
        number = header.attributes & CODEC_MASK
        codec = CODECS.get(number)
        if zlib.crc32(payload) != header.crc:
            raise NotDecompressible(f"{SetFault.WRONG_CHECKSUM.reason} (codec {number})")
        if codec is None:
            raise NotDecompressible(f"its codec ({number}) is not known")
        if depth > MAX_DEPTH:
            raise NotDecompressible(f"it is compressed more than {MAX_DEPTH} times")
        data = memoryview(decompress(codec, payload, self.max_bytes - self.size_bytes))
        self.size_bytes += len(data)
        return data.cast("B")


def is_packed_set(value: memoryview) -> bool:
    """Whether these bytes are a compressed set of entries whose checksums are correct."""
    try:
        data = decompress(Codec.GZIP, value)
    except NotDecompressible:
        return False
    walk = jafka_decoder().walk_entries(data, len(data), plain_only=True)
    if walk.entries == 0 or walk.end != len(data):
        return False
    try:
        jafka_decoder().decode_sets([MessageSet(data, 0)])
    except BadRecord:
        return False
    return True


def cut_out(fetched: FetchedRecords, from_offset: int, until_offset: int) -> memoryview:
    """The raw bytes at ``[from_offset, until_offset)``, for quarantine."""
    return fetched.data[from_offset - fetched.from_offset : until_offset - fetched.from_offset]
