"""The RocketMQ dialect: what ``contract.Dialect`` asks for, in one place."""

from __future__ import annotations

from rangeland.dialects.rocketmq.answers import (
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
from rangeland.dialects.rocketmq.groups import open_home
from rangeland.dialects.rocketmq.records import decode_chunks
from rangeland.dialects.rocketmq.session import Session as open_session
from rangeland.dialects.rocketmq.stored import entry_around, next_offset

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
