"""Message sets of the oldest log format: the input of their decoder, and the faults it may find.

An entry is ``int32 length | int8 magic | int8 attributes | uint32 crc | payload``. It has no key,
no timestamp and no offset: the offset is the byte position of the entry in the log. A set is a
sequence of entries.

Nothing is decoded here. Compressed entries are only recognised: the walk over a log decompresses
them and passes on the sets inside.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import pyarrow as pa

from rangeland.decode import columns
from rangeland.decode.kernel_fault import KernelFault
from rangeland.errors import BadRecord

POSITION = pa.field("position", pa.int32())
MESSAGES = pa.schema([*columns.RECORDS, POSITION])
"""The decoded columns: of those in ``RECORDS``, only value and offset are filled; the others are
null."""

LENGTH_BYTES = 4
HEADER_BYTES = 6
"""Magic, attributes and checksum, which the length includes."""
MAGIC = 1
CODEC_MASK = 3


class MessageSet(NamedTuple):
    """Uncompressed entries. ``data`` is anything that supports the buffer protocol.

    For entries that are stored directly in the log, ``base_offset`` is the offset of the first
    byte, each entry's offset is its position in the log, and the column ``position`` is 0.
    ``is_packed``: the entries were inside a compressed entry at ``base_offset``, which is the
    offset of all of them; positions count up from ``first_position``.
    """

    data: Any
    base_offset: int
    is_packed: bool = False
    first_position: int = 0


class SetFault(KernelFault):
    """Ways in which an entry can be malformed. The numbers are those in ``sets.h``, and differ from
    those of Kafka's ``Fault``."""

    ENTRY_TOO_SHORT = 32, "its length is below that of an entry's header"
    ENTRY_PAST_SET = 33, "it is longer than the rest of its set"
    UNKNOWN_MAGIC = 34, "its format (magic) is not known"
    NOT_PLAIN = 35, "it is compressed where an uncompressed message is expected"
    WRONG_CHECKSUM = 36, "its checksum is wrong"


class EntryWalk(NamedTuple):
    """The walk passed ``entries``; the last begins at ``start`` and ends at ``end``, counted in
    bytes from the first. ``fault``: why the walk stopped at ``end``, if the reason was a fault."""

    entries: int
    start: int
    end: int
    fault: SetFault | None


class UndecodableEntry(BadRecord):
    """An entry that cannot be decoded. Indexes count from 0; ``byte_index`` counts bytes within the
    set."""

    def __init__(self, fault: SetFault, set: int, record: int, byte_index: int) -> None:
        super().__init__(
            f"entry {record} of set {set} cannot be decoded at byte {byte_index}",
            why=fault.reason,
            set=set,
            record=record,
            byte_index=byte_index,
            fault=int(fault),
            reason=fault.reason,
        )
        self.set = set
        self.record = record
        self.byte_index = byte_index
        self.fault = fault


def messages_batch(values: pa.Array, offsets: pa.Array, positions: pa.Array) -> pa.RecordBatch:
    """A batch of ``MESSAGES``."""
    filled = {
        columns.VALUE.name: values,
        columns.OFFSET.name: offsets,
        POSITION.name: positions,
    }
    arrays = [
        filled[field.name] if field.name in filled else pa.nulls(len(values), field.type)
        for field in MESSAGES
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=MESSAGES)
