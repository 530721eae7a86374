"""Stored messages of RocketMQ: the output of their decoder, and the faults it may find.

A pull returns consecutive complete messages of one queue, each with its queue offset.

Nothing is decoded here. Bodies are not decompressed: a compressed body is returned as it is stored,
with its codec.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from rangeland.decode import columns
from rangeland.decode.kernel_fault import KernelFault
from rangeland.errors import BadRecord

BORN_TIMESTAMP = pa.field("bornTimestamp", columns.TIMESTAMP.type)
STORED = pa.schema([*columns.RECORDS, BORN_TIMESTAMP])
"""The key is the property KEYS, the headers are all properties in order, and the timestamps are the
broker's, or null if they do not fit in 64 bits as microseconds."""

NOT_PACKED = -1
LOG_APPEND_TIME = 1

SMALLEST = 91
"""The size of a message without body, topic and properties, with IPv4 hosts."""
MAGIC_1, MAGIC_2 = 0xDAA320A7, 0xDAA320AB
PACKED, BORN_V6, STORE_V6, INNER_BATCH = 0x1, 0x10, 0x20, 0x80
NEED_UNWRAP, CODEC_BITS = 0x40, 0x700
"""Brokers set NEED_UNWRAP together with INNER_BATCH, and clients set a codec together with PACKED.
No checksum covers these bits, so a contradiction means that one of them is damaged."""


class StoredFault(KernelFault):
    """Ways in which a message can be malformed. The numbers are those in ``stored.h``."""

    TOO_SHORT = 64, "its length is below that of its own fields"
    UNKNOWN_MAGIC = 65, "its format (magic) is not known"
    ORDER = 66, "its offset is not after that of the message before"
    INNER = 67, "it contains a batch of an unknown number of messages"
    FIELD_PAST = 68, "a field in it is longer than the rest of the message"
    WRONG_CHECKSUM = 69, "the checksum of its body is wrong"
    TOO_LONG = 70, "it extends past its last field"
    CUT_SHORT = 72, "its length is beyond the end of its broker's response"
    """This ends a walk without an error, unless brokers send only complete messages."""
    FLAGS = 73, "its flags contradict each other"

    @property
    def is_inside(self) -> bool:
        """Whether the beginning, the end and the offset of the message are certain."""
        return self not in _OF_A_WALK


_OF_A_WALK = (
    StoredFault.TOO_SHORT,
    StoredFault.UNKNOWN_MAGIC,
    StoredFault.ORDER,
    StoredFault.INNER,
    StoredFault.CUT_SHORT,
)


class MessageWalk(NamedTuple):
    """The walk passed ``messages``, which end at byte ``end``; the last is at ``last_offset``, or
    -1 if there is none. ``fault``: why the walk stopped, if the reason was a fault."""

    messages: int
    end: int
    last_offset: int
    fault: StoredFault | None


class DecodedMessages(NamedTuple):
    """The rows that the decoder has made of stored messages."""

    batch: pa.RecordBatch
    """A RecordBatch with the columns ``STORED``."""
    codecs: np.ndarray[Any, Any] | None
    """The compression of each row's value, or ``NOT_PACKED``; None if no value is compressed."""
    walked: MessageWalk
    """All messages, including those that did not become rows."""


class UndecodableMessage(BadRecord):
    def __init__(self, fault: StoredFault, offset: int, byte_index: int) -> None:
        super().__init__(
            f"the message at byte {byte_index} cannot be decoded",
            why=fault.reason,
            offset=offset,
            byte_index=byte_index,
            fault=int(fault),
            reason=fault.reason,
        )
        self.offset = offset
        self.byte_index = byte_index
        self.fault = fault
