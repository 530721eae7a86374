"""Record bytes to Arrow: the compiled kernel, and the reference decoder that it must equal.

Every function here uses the kernel, and raises UsageError if this installation has none. With
``RANGELAND_DECODER=reference`` in the environment the reference decodes instead, about 100 times
slower: tests compare the two.
"""

from __future__ import annotations

import ctypes
import os
import sys
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
    "kernel_error",
    "kernel_library",
    "set_decoder",
    "stored_decoder",
    "walk_batches",
    "walk_messages",
]

DECODER_VARIABLE = "RANGELAND_DECODER"

_Decoder = Callable[[Sequence[Payload], int, int, int], pa.RecordBatch]


def decode_records(
    payloads: Sequence[Payload],
    from_offset: int,
    until_offset: int,
    max_headers: int = sys.maxsize,
) -> pa.RecordBatch:
    """The records with ``from_offset <= offset < until_offset``, in order, with the columns
    ``columns.RECORDS``: key, value, offset, timestamp, timestampType, headers.

    Raises BadRecord with the facts payload, record (indexes from 0), position (bytes into
    the payload's data) and reason; TooManyHeaders if they have more than ``max_headers`` together,
    before the headers take memory; Bug if the payloads exceed 2 GiB together."""
    return _decoder()(payloads, from_offset, until_offset, max_headers)


def walk_messages(data: Any, max_bytes: int) -> MessageRun:
    """The uncompressed messages of format 0 or 1 at the start of ``data``, as long as their
    offsets rise, up to the first that ends past ``max_bytes``. Only their lengths are checked."""
    return _walker()(data, max_bytes)


def walk_batches(
    data: Any, begin: int = 0, last_offset: int = -1, heads: Heads | None = None
) -> BatchRun:
    """The consecutive v2 batches from byte ``begin`` on, with offsets above ``last_offset``, whose
    headers are consistent in themselves and with the next entry; the reference finds none.
    ``heads``: a table for their rows; the walk ends when it is full."""
    return _batch_walker()(data, begin, last_offset, heads)


@cache
def set_decoder() -> SetDecoder:
    """The decoder of Jafka's message sets."""
    loaded = kernel_library()
    return JafkaReference() if loaded is None else JafkaKernel(loaded)


@cache
def stored_decoder() -> StoredDecoder:
    """The decoder of RocketMQ's stored messages."""
    loaded = kernel_library()
    return stored_reference.RocketmqReference() if loaded is None else RocketmqKernel(loaded)


@cache
def _decoder() -> _Decoder:
    loaded = kernel_library()
    return reference.decode_records if loaded is None else KafkaKernel(loaded).decode_records


@cache
def _walker() -> Callable[[Any, int], MessageRun]:
    loaded = kernel_library()
    return legacy_reference.walk_messages if loaded is None else KafkaKernel(loaded).walk_messages


@cache
def _batch_walker() -> Callable[[Any, int, int, Heads | None], BatchRun]:
    loaded = kernel_library()
    return no_batches if loaded is None else KafkaKernel(loaded).walk_batches


def kernel_error() -> str:
    """Why records cannot be decoded in this process; empty if they can."""
    try:
        kernel_library()
    except UsageError as error:
        return error.why or error.what
    return ""


def kernel_library() -> ctypes.CDLL | None:
    """The compiled kernel; None: decode with the reference. Raises UsageError if the kernel cannot
    be loaded."""
    wanted = os.environ.get(DECODER_VARIABLE, "")
    if wanted not in ("", "kernel", "reference"):
        raise UsageError(
            f"{DECODER_VARIABLE} is {wanted!r}",
            do="Set it to kernel or reference, or leave it unset",
            value=wanted,
        )
    return None if wanted == "reference" else native_library.load_library()
