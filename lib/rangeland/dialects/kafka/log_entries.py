"""An entry of a Kafka log, in any format, as far as its header describes it.

Checksum and decompression wait until an entry is opened; entries before the wanted offsets and
aborted ones never are.
"""

from __future__ import annotations

from typing import TypeAlias

from rangeland.dialects.kafka.legacy_messages import StoredMessages, Wrapper
from rangeland.dialects.kafka.record_batch import BatchV2

LogEntry: TypeAlias = BatchV2 | StoredMessages | Wrapper
"""``last_offset`` includes compacted offsets, ``record_count`` does not. ``check`` raises BadRecord
if the stored bytes do not have their checksum. ``payload`` is checked, and decompressed within
``max_bytes``; it raises BadRecord too. The header of a wrapper shows only ``last_offset``: reading
anything else opens it, and may raise BadRecord."""
