"""The interface of an entry of a Kafka log, as far as its header describes it.

Checksum and decompression wait until an entry is opened; entries before the wanted offsets and
aborted ones never are.
"""

from __future__ import annotations

from typing import Protocol

from rangeland.decode.kafka.layout import Payload
from rangeland.wire.memory_budget import MAX_BATCH_BYTES


class LogEntry(Protocol):
    """One entry of a log, described by its header. ``last_offset`` includes compacted offsets;
    ``record_count`` does not. The header of a wrapper shows only ``last_offset``: reading the other
    properties opens it, and may raise BadRecord."""

    @property
    def base_offset(self) -> int: ...
    @property
    def last_offset(self) -> int: ...
    @property
    def record_count(self) -> int: ...
    @property
    def producer_id(self) -> int: ...
    @property
    def transactional(self) -> bool: ...
    @property
    def control(self) -> bool: ...
    def check(self) -> None:
        """Raises BadRecord if the stored bytes do not have their checksum."""

    def payload(self, max_bytes: int = MAX_BATCH_BYTES) -> Payload:
        """Checked and decompressed, within ``max_bytes``. Raises BadRecord."""
