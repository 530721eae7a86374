"""Record bytes to Arrow: the slow obvious reference, and the kernel that must equal it.

``decode_records`` is the kernel where a library for this platform is at hand. Where none
is, it is the reference, with one warning per process. ``RANGELAND_DECODER`` set to
``kernel`` or ``reference`` forces one of them; a forced kernel that is not there is an
error. ``set_decoder`` is the same for the message sets of the oldest log format,
``stored_decoder`` for the stored messages of RocketMQ.
"""

from __future__ import annotations

import ctypes
import os
import warnings
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import pyarrow as pa

from rangeland.decode.jafka.kernel import JafkaKernel
from rangeland.decode.jafka.layout import MessageSet, SetDecoder
from rangeland.decode.jafka.reference import JafkaReference
from rangeland.decode.kafka import legacy_reference, reference
from rangeland.decode.kafka.batch_table import BatchRun, Heads, Payloads, no_batches
from rangeland.decode.kafka.kernel import KafkaKernel
from rangeland.decode.kafka.layout import MessageRun, Payload, RecordFormat
from rangeland.decode.native import native_library
from rangeland.decode.rocketmq import reference as stored_reference
from rangeland.decode.rocketmq.kernel import RocketmqKernel
from rangeland.decode.rocketmq.layout import StoredDecoder
from rangeland.errors import UsageError

__all__ = [
    "BatchRun",
    "Heads",
    "MessageRun",
    "MessageSet",
    "Payload",
    "Payloads",
    "RecordFormat",
    "decode_records",
    "set_decoder",
    "stored_decoder",
    "walk_batches",
    "walk_messages",
]

DECODER_VARIABLE = "RANGELAND_DECODER"

_Decoder = Callable[[Sequence[Payload], int, int], pa.RecordBatch]


def decode_records(
    payloads: Sequence[Payload], from_offset: int, until_offset: int
) -> pa.RecordBatch:
    """The records with ``from_offset <= offset < until_offset``, in order, with the columns
    ``columns.RECORDS``: key, value, offset, timestamp, timestampType, headers.

    Raises BadRecord with the facts payload, record (indexes from 0), position (bytes into
    the payload's data) and reason; Bug if the payloads pass 2 GiB together."""
    return _decoder()(payloads, from_offset, until_offset)


def walk_messages(data: Any, max_bytes: int) -> MessageRun:
    """The plain messages of format 0 or 1 that ``data`` begins with, in a row with rising
    offsets, until ``max_bytes`` are passed. Nothing is checked but their lengths."""
    return _walker()(data, max_bytes)


def walk_batches(
    data: Any, begin: int = 0, last_offset: int = -1, heads: Heads | None = None
) -> BatchRun:
    """The v2 batches in a row from the byte ``begin`` on, with offsets above ``last_offset``,
    that neither their own header nor the next entry contradicts; none where there is no kernel.
    ``heads``: a table that takes their rows, and ends the walk when it is full."""
    return _batch_walker()(data, begin, last_offset, heads)


@cache
def set_decoder() -> SetDecoder:
    """The decoder of message sets, which is chosen in the same way."""
    loaded = _library()
    return JafkaReference() if loaded is None else JafkaKernel(loaded)


@cache
def stored_decoder() -> StoredDecoder:
    """The decoder of stored messages, which is chosen in the same way."""
    loaded = _library()
    return stored_reference.RocketmqReference() if loaded is None else RocketmqKernel(loaded)


@cache
def _decoder() -> _Decoder:
    loaded = _library()
    return reference.decode_records if loaded is None else KafkaKernel(loaded).decode_records


@cache
def _walker() -> Callable[[Any, int], MessageRun]:
    loaded = _library()
    return legacy_reference.walk_messages if loaded is None else KafkaKernel(loaded).walk_messages


@cache
def _batch_walker() -> Callable[[Any, int, int, Heads | None], BatchRun]:
    loaded = _library()
    return no_batches if loaded is None else KafkaKernel(loaded).walk_batches


def _library() -> ctypes.CDLL | None:
    """None: decode by reference."""
    wanted = os.environ.get(DECODER_VARIABLE, "")
    if wanted not in ("", "kernel", "reference"):
        raise UsageError(
            f"{DECODER_VARIABLE} is {wanted!r}",
            do="Set it to kernel or reference, or leave it unset",
            value=wanted,
        )
    if wanted == "reference":
        return None
    try:
        return native_library.load_library()
    except native_library.Missing as missing:
        if wanted == "kernel":
            raise UsageError(
                f"{DECODER_VARIABLE} is 'kernel', and there is none",
                why=str(missing),
                do=_REMEDY,
                library=native_library.library_name(),
            ) from None
        warnings.warn(
            f"Records are decoded by the slow reference decoder, about {_SLOWER} times slower "
            f"than the compiled one: {missing}. {_REMEDY}.",
            RuntimeWarning,
            stacklevel=3,
        )
        return None


_SLOWER = 100
_REMEDY = (
    "Install rangeland with pip on this platform (it compiles its kernel), "
    "or add the library for this platform to the archive that is sent to the workers"
)
