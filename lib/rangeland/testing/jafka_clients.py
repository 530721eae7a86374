"""Clients that write to Jafka brokers and read from them, for tests and the demo.

`JafkaClient` is a socket that uses the dialect's messages; `produce` writes with it. A broker does
not acknowledge writes, so `produce` then asks for the end of the log on the same connection, which
the broker answers only after the write.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterable, Sequence
from typing import Any

from rangeland.dialects.jafka.messages import (
    ENTRY_HEADER,
    LATEST_TIME,
    EntryHeader,
    OffsetsRequest,
    ProduceRequest,
    Request,
)
from rangeland.dialects.jafka.session import JafkaSession
from rangeland.errors import Unreachable
from rangeland.testing.frame_client import FrameClient

_HEADER_BYTES = ENTRY_HEADER.size - 4  # the length does not include itself


def message(value: bytes, *, codec: int = 0) -> bytes:
    """One entry of a log."""
    length = _HEADER_BYTES + len(value)
    return ENTRY_HEADER.write(EntryHeader(length, 1, codec, zlib.crc32(value))) + value


def message_set(values: Iterable[bytes], *, packed: bool = False) -> bytes:
    """Plain entries, or a single entry that contains them compressed with gzip."""
    plain = b"".join(message(value) for value in values)
    return message(gzip.compress(plain), codec=1) if packed else plain


class JafkaClient(FrameClient):
    """A single connection to ``host:port``, to be closed or used in a ``with`` statement."""

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self._session = JafkaSession("testing")

    def send(self, request: Request) -> None:
        self.send_raw(self._session.encode(request)[1])

    def receive(self) -> Any:
        """The response to the oldest unanswered request. Raises `Unreachable` if the broker closes
        the connection."""
        return self._session.decode(self.receive_raw())[1]

    def ask(self, request: Request) -> Any:
        self.send(request)
        return self.receive()

    def end_offset(self, topic: str, partition: int = 0) -> int:
        """The end of the log; 0 if there is none."""
        question = OffsetsRequest(
            topic=topic, partition=partition, time_ms=LATEST_TIME, max_count=1
        )
        return max(self.ask(question).offsets, default=0)


def produce(
    address: str,
    topic: str,
    values: Sequence[bytes],
    partition: int = 0,
    *,
    packed: bool = False,
    batch: int = 200,
) -> int:
    """Appends ``values`` to a partition of one broker, which must be configured to flush every
    write; returns the new end of the log. ``packed``: compressed with gzip, ``batch`` of them per
    entry. Raises `Unreachable` if the broker does not accept them."""
    with JafkaClient(address) as client:
        size = client.end_offset(topic, partition)
        for start in range(0, len(values), batch):
            data = message_set(values[start : start + batch], packed=packed)
            size += len(data)
            client.send(ProduceRequest(topic=topic, partition=partition, messages=memoryview(data)))
        end = client.end_offset(topic, partition)
    if end < size:
        raise Unreachable(
            f"{topic}/{partition} at {address} was not written",
            why=f"its log ends at {end}, not at {size}",
            do="check the broker's log, and that it flushes every write",
        )
    return end
