"""The records of a single entry of a Kafka log, and the error for a record that cannot be
decoded."""

from __future__ import annotations

import pyarrow as pa

from rangeland.decode import kafka_decoder
from rangeland.decode.kafka.layout import Payload, RecordFormat, UndecodableRecord
from rangeland.dialects.kafka.entry_checks import LogEntry
from rangeland.dialects.kafka.legacy_messages import batch_error, message_error
from rangeland.errors import BadRecord


def records_of(entry: LogEntry, from_offset: int, until_offset: int) -> pa.RecordBatch:
    """The records of an entry, for those few entries whose records matter to the walk."""
    payload = entry.payload()
    try:
        return kafka_decoder().decode_records([payload], from_offset, until_offset)
    except UndecodableRecord as error:
        raise entry_error(error, payload) from None


def entry_error(
    error: UndecodableRecord, payload: Payload, next_offset: int | None = None
) -> BadRecord:
    """Turns the decoder's error, which counts payloads, into one that names the batch by its
    offset. ``next_offset``: where the next entry begins, if known."""
    if payload.form is RecordFormat.PLAIN:
        return message_error(error, payload, next_offset)
    facts = {name: value for name, value in error.facts.items() if name != "payload"}
    return batch_error(
        payload.base_offset,
        f"at byte {error.byte_index} of its record {error.record}, {error.fault.reason}",
        next_offset=payload.base_offset + payload.last_offset_delta + 1,
        **facts,
    )
