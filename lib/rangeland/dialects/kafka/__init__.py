"""The Kafka dialect, brokers 0.8.2 to 4.x: what ``contract.Dialect`` asks for, in one place."""

from __future__ import annotations

from rangeland.dialects.kafka.log_history import (
    ask_cleanup,
    ask_epochs,
    ask_retention,
    epoch_of,
    read_cleanup,
    read_epochs,
    read_retention,
)
from rangeland.dialects.kafka.open_transactions import ask_transactions, read_transactions
from rangeland.dialects.kafka.raw_entries import cut_out
from rangeland.dialects.kafka.records import (
    aborted_within,
    decode_chunks,
    entry_around,
    next_offset,
)
from rangeland.dialects.kafka.requests import (
    NATURE,
    ask_offsets,
    ask_records,
    ask_sizes,
    find_leaders,
    read_offsets,
    read_records,
    read_sizes,
)
from rangeland.dialects.kafka.sasl_login import ask_mechanisms, login, read_mechanisms
from rangeland.dialects.kafka.session import KafkaSession as open_session

__all__ = [
    "NATURE",
    "aborted_within",
    "ask_cleanup",
    "ask_epochs",
    "ask_mechanisms",
    "ask_offsets",
    "ask_records",
    "ask_retention",
    "ask_sizes",
    "ask_transactions",
    "cut_out",
    "decode_chunks",
    "entry_around",
    "epoch_of",
    "find_leaders",
    "login",
    "next_offset",
    "open_session",
    "read_cleanup",
    "read_epochs",
    "read_mechanisms",
    "read_offsets",
    "read_records",
    "read_retention",
    "read_sizes",
    "read_transactions",
]
