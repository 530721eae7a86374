"""The Kafka dialect, brokers 0.11 to 4.x: what ``contract.Dialect`` asks for, in one place."""

from __future__ import annotations

from rangeland.dialects.kafka.answers import (
    NATURE,
    ask_offsets,
    ask_records,
    ask_sizes,
    find_leaders,
    login,
    read_offsets,
    read_records,
    read_sizes,
)
from rangeland.dialects.kafka.groups import open_home
from rangeland.dialects.kafka.records import decode_chunks, entry_around, next_offset
from rangeland.dialects.kafka.session import Session as open_session

__all__ = [
    "NATURE",
    "ask_offsets",
    "ask_records",
    "ask_sizes",
    "decode_chunks",
    "entry_around",
    "find_leaders",
    "login",
    "next_offset",
    "open_home",
    "open_session",
    "read_offsets",
    "read_records",
    "read_sizes",
]
