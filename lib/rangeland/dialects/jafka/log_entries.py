"""The entries of a Jafka log as a fetch brings them: finding them, and opening packed ones.

An offset is the place of an entry in its log, and the bytes do not say it: whoever has them
must know where they were fetched. Walking hops from length to length. At an offset inside an
entry the length is rubbish; that is only noticed by what it leads to (too short, an unknown
format, a wrong checksum), and said as such.

A packed entry holds a set of entries, in gzip. All of them have the offset of the one they
came out of. No client packs packed entries again, but a broker takes them and upstream's own
reader follows them, so they are followed here as well.

Rules: pure functions of bytes. Plain messages are never looked at one by one here.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from typing import Any, Final

from rangeland.decode import MessageSet, set_decoder
from rangeland.decode.jafka.layout import CODEC_MASK, HEADER_BYTES, MAGIC, SetFault
from rangeland.dialects.fetch_values import NO_CONTEXT, FetchContext
from rangeland.dialects.jafka.messages import ENTRY_HEADER
from rangeland.dialects.kafka.compression import NotDecompressible, check_records, decompress
from rangeland.errors import BadRecord
from rangeland.wire.memory_budget import MAX_BATCH_BYTES

LENGTH_BYTES: Final = ENTRY_HEADER.position_of("magic")
KIND_BYTES: Final = ENTRY_HEADER.position_of("crc")
"""How much of an entry must be there to tell what kind it is."""

GZIP: Final = 1
GZIP_MAGIC: Final = b"\x1f\x8b\x08"
CODECS: Final = (0, GZIP)
MAX_DEPTH: Final = 8


def bad_entry(offset: int, why: str, **facts: Any) -> BadRecord:
    """``next_offset`` among the facts is where reading could go on behind the entry; it is
    not there where the end of the entry is in doubt."""
    return BadRecord(
        f"the entry at offset {offset} cannot be decoded",
        why=why,
        do="Offsets are places in the log: if a range begins here, this one may lie inside an "
        "entry. Otherwise restore the log, or go on without the entry with "
        "`policy: {corrupt: skip}`, which records what is lost",
        base_offset=offset,
        **facts,
    )


def next_offset(
    records: memoryview, from_offset: int, context: FetchContext = NO_CONTEXT
) -> int | None:
    """The offset behind the last complete entry, found without decoding anything.

    None if there is no complete entry: the fetch was too small for the next one, or brought
    nothing. Raises BadRecord."""
    found = set_decoder().walk_entries(records, len(records))
    if found.fault is not None:
        raise at_fault(records, found.end, from_offset, found.fault)
    if found.entries == 0:
        check_begun(records, from_offset)
        return None
    return from_offset + found.end


def entry_around(records: memoryview, from_offset: int, target: int) -> tuple[int, int | None]:
    """Where the entry begins and ends that ``target`` is in or begins, walking from
    ``from_offset``, at which an entry begins. End None: it was not reached; then the first is
    where the walk stopped. Raises BadRecord."""
    found = set_decoder().walk_entries(records, target - from_offset + 1)
    if found.fault is not None:
        raise at_fault(records, found.end, from_offset, found.fault)
    if found.entries == 0:
        check_begun(records, from_offset)
    if found.end > target - from_offset:
        return from_offset + found.start, from_offset + found.end
    return from_offset + found.end, None


def check_begun(records: memoryview, offset: int) -> None:
    """Raises BadRecord if what begins ``records``, and may not be whole, cannot be an entry:
    a fetch that is made larger for it would only bring more rubbish."""
    if len(records) >= KIND_BYTES and not _may_begin(records, 0):
        raise at_fault(records, 0, offset, _kind_fault(records, 0))


def at_fault(records: memoryview, place: int, from_offset: int, fault: SetFault) -> BadRecord:
    """The error for the entry at ``place``. Its end is believed where another entry may begin
    there, or nothing more was brought."""
    offset = from_offset + place
    facts: dict[str, Any] = {"reason": fault.reason}
    length = int.from_bytes(records[place : place + LENGTH_BYTES], "big", signed=True)
    why = fault.reason
    if len(records) >= place + KIND_BYTES:
        header = records[place + LENGTH_BYTES : place + KIND_BYTES]
        facts |= {"length": length, "magic": header[0], "codec": header[1] & CODEC_MASK}
        why += f" (length {length}, magic {header[0]}, codec {header[1] & CODEC_MASK})"
    end = place + LENGTH_BYTES + length
    if length >= HEADER_BYTES and end <= len(records) and _may_begin(records, end):
        facts["next_offset"] = from_offset + end
    return bad_entry(offset, why, **facts)


def _may_begin(records: memoryview, place: int) -> bool:
    if place + KIND_BYTES > len(records):
        return True
    length = int.from_bytes(records[place : place + LENGTH_BYTES], "big", signed=True)
    magic, attributes = records[place + LENGTH_BYTES], records[place + LENGTH_BYTES + 1]
    return length >= HEADER_BYTES and magic == MAGIC and attributes & CODEC_MASK in CODECS


def _kind_fault(records: memoryview, place: int) -> SetFault:
    length = int.from_bytes(records[place : place + LENGTH_BYTES], "big", signed=True)
    if length < HEADER_BYTES:
        return SetFault.ENTRY_TOO_SHORT
    magic = records[place + LENGTH_BYTES]
    return SetFault.UNKNOWN_MAGIC if magic != MAGIC else SetFault.NOT_PLAIN


@dataclass(slots=True)
class Unpacked:
    """What a packed entry at ``offset`` holds: plain sets in order, and how many messages. All
    of it may take ``max_bytes``."""

    offset: int
    max_bytes: int = MAX_BATCH_BYTES
    sets: list[MessageSet] = field(default_factory=list)
    messages: int = 0
    size_bytes: int = 0

    def add(self, stored: memoryview, depth: int = 1) -> None:
        """All that ``stored``, one whole packed entry, holds. Raises Undecodable."""
        data = self._open(stored, depth)
        place = 0
        while place < len(data):
            found = set_decoder().walk_entries(data[place:], len(data) - place, plain_only=True)
            if found.entries:
                plain = data[place : place + found.end]
                self.sets.append(MessageSet(plain, self.offset, True, self.messages))
                self.messages += found.entries
                check_records(self.messages, self.size_bytes, self.max_bytes)
                place += found.end
            if found.fault is SetFault.NOT_PLAIN:
                end = place + LENGTH_BYTES + ENTRY_HEADER.read(data, place).length
                self.add(data[place:end], depth + 1)
                place = end
            elif place < len(data):
                fault = found.fault or SetFault.ENTRY_PAST_SET
                raise NotDecompressible(f"of the message at byte {place} in it, {fault.reason}")

    def _open(self, stored: memoryview, depth: int) -> memoryview:
        header = ENTRY_HEADER.read(stored)
        payload = stored[ENTRY_HEADER.size :]
        codec = header.attributes & CODEC_MASK
        if zlib.crc32(payload) != header.crc:
            raise NotDecompressible(f"{SetFault.BAD_CHECKSUM.reason} (codec {codec})")
        if codec != GZIP:
            raise NotDecompressible(f"its codec ({codec}) is not known")
        if depth > MAX_DEPTH:
            raise NotDecompressible(f"it is packed more than {MAX_DEPTH} times over")
        data = memoryview(decompress(GZIP, payload, self.max_bytes - self.size_bytes))
        self.size_bytes += len(data)
        return data.cast("B")


def is_packed_set(value: memoryview) -> bool:
    """Whether these bytes are a set of entries as a producer packs it, checksums included."""
    try:
        data = decompress(GZIP, value)
    except NotDecompressible:
        return False
    walked = set_decoder().walk_entries(data, len(data), plain_only=True)
    if walked.entries == 0 or walked.end != len(data):
        return False
    try:
        set_decoder().decode_sets([MessageSet(data, 0)])
    except BadRecord:
        return False
    return True
