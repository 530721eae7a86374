"""The Kafka dialect, brokers 0.11 to 4.x: what ``contract.Dialect`` asks for, in one place."""

from __future__ import annotations

from rangeland.dialects.kafka.answers import (
    ask_cluster,
    ask_coordinator,
    ask_group_offsets,
    ask_offsets,
    ask_records,
    ask_sizes,
    login,
    read_cluster,
    read_coordinator,
    read_group_offsets,
    read_offsets,
    read_records,
    read_sizes,
)
from rangeland.dialects.kafka.records import decode_chunks, next_offset
from rangeland.dialects.kafka.session import Session as open_session

__all__ = [
    "ask_cluster",
    "ask_coordinator",
    "ask_group_offsets",
    "ask_offsets",
    "ask_records",
    "ask_sizes",
    "decode_chunks",
    "login",
    "next_offset",
    "open_session",
    "read_cluster",
    "read_coordinator",
    "read_group_offsets",
    "read_offsets",
    "read_records",
    "read_sizes",
]
