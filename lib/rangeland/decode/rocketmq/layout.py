"""Stored messages of RocketMQ: what their decoder gives, and what may be wrong with them.

A pull brings whole messages of one queue, one behind the other, each with its place in the
queue. The slow obvious functions are in ``stored_reference``, the fast ones in
``stored_kernel``; both give the same for any bytes.

Rules: no decoding here. Decoders unpack no bodies: a packed one is a value as it is stored,
and its row says how.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from rangeland.decode import columns
from rangeland.errors import BadRecord

BORN_TIMESTAMP = pa.field("bornTimestamp", columns.TIMESTAMP.type)
STORED = pa.schema([*columns.RECORDS, BORN_TIMESTAMP])
"""Keys are the property KEYS, headers are all properties in their order, timestamps are those
of the broker, null where they do not fit into 64 bits of microseconds."""

NOT_PACKED = -1
LOG_APPEND_TIME = 1

SMALLEST = 91
"""No body, no topic, no properties, hosts of four bytes."""
MAGIC_1, MAGIC_2 = 0xDAA320A7, 0xDAA320AB
PACKED, BORN_V6, STORE_V6, INNER_BATCH = 0x1, 0x10, 0x20, 0x80
NEED_UNWRAP, CODEC_BITS = 0x40, 0x700
"""Brokers set the one together with INNER_BATCH, and clients a codec together with PACKED. No
checksum covers them, so where they contradict each other a bit has been damaged."""
KEYS, TAGS = b"KEYS", b"TAGS"


class StoredFault(IntEnum):
    """Ways in which a message can be malformed. Numbers as in ``stored.h``."""

    TOO_SHORT = 64
    UNKNOWN_MAGIC = 65
    ORDER = 66
    INNER = 67
    FIELD_PAST = 68
    BAD_CHECKSUM = 69
    TOO_LONG = 70
    CUT_SHORT = 72
    """Ends a walk in silence; an error only where a broker gives whole messages alone."""
    FLAGS = 73

    @property
    def reason(self) -> str:
        return _REASONS[self]

    @property
    def is_inside(self) -> bool:
        """Where the message begins and ends is not in doubt, and it takes up its offset."""
        return self not in _OF_A_WALK


_OF_A_WALK = (
    StoredFault.TOO_SHORT,
    StoredFault.UNKNOWN_MAGIC,
    StoredFault.ORDER,
    StoredFault.INNER,
    StoredFault.CUT_SHORT,
)
_REASONS = {
    StoredFault.TOO_SHORT: "its length is below that of its own fields",
    StoredFault.UNKNOWN_MAGIC: "its format (magic) is not known",
    StoredFault.ORDER: "its offset is not behind that of the message before",
    StoredFault.INNER: "it holds a batch, and of how many messages is not told",
    StoredFault.FIELD_PAST: "a field in it is longer than its rest",
    StoredFault.BAD_CHECKSUM: "the checksum of its body is wrong",
    StoredFault.TOO_LONG: "bytes are left over behind its last field",
    StoredFault.FLAGS: "its flags contradict each other",
    StoredFault.CUT_SHORT: "its length is beyond the end of its broker's answer",
}


class MessageWalk(NamedTuple):
    """``messages`` were hopped over, and end at byte ``end``; the last is at ``last_offset``,
    -1 where there is none. ``fault`` is why the walk did not go on, where it is one."""

    messages: int
    end: int
    last_offset: int
    fault: StoredFault | None


class DecodedMessages(NamedTuple):
    """``batch`` has the columns ``STORED``. ``codecs``: for each row how its value is packed,
    ``NOT_PACKED`` where it is not; None where no row is. ``walked``: all messages there were,
    rows or not."""

    batch: pa.RecordBatch
    codecs: np.ndarray[Any, Any] | None
    walked: MessageWalk


class StoredDecoder(Protocol):
    """What both decoders have. Bytes that are no whole message end a walk without a
    fault, a message that holds a batch of others with one."""

    def walk_stored(self, data: Any) -> MessageWalk: ...

    def decode_stored(
        self, data: Any, from_offset: int, until_offset: int, tags: Sequence[bytes] = ()
    ) -> DecodedMessages:
        """Messages in ``[from_offset, until_offset)`` as rows, or those of them that have one
        of the ``tags``; those before are not looked into. Raises BadRecord with the facts
        offset (the message's own, or that of the one before where its own is in doubt),
        position, fault (a number) and reason."""


class UndecodableMessage(BadRecord):
    """The error both decoders raise."""

    def __init__(self, what: str, *, offset: int, position: int, fault: int, **facts: Any) -> None:
        super().__init__(what, **facts, offset=offset, position=position, fault=fault)
        self.offset, self.position, self.fault = offset, position, StoredFault(fault)


def bad_stored(fault: StoredFault, offset: int, position: int) -> UndecodableMessage:
    return UndecodableMessage(
        f"the message at byte {position} cannot be decoded",
        why=fault.reason,
        offset=offset,
        position=position,
        fault=int(fault),
        reason=fault.reason,
    )
