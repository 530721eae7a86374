"""The Jafka dialect (the Kafka 0.7 line): what ``contract.Dialect`` asks for, in one place."""

from __future__ import annotations

from rangeland.dialects.defaults import (
    ask_cleanup,
    ask_epochs,
    ask_mechanisms,
    ask_retention,
    ask_transactions,
    epoch_of,
    read_cleanup,
    read_epochs,
    read_mechanisms,
    read_retention,
    read_transactions,
)
from rangeland.dialects.jafka.log_entries import entry_around, next_offset
from rangeland.dialects.jafka.raw_entries import aborted_within, cut_out
from rangeland.dialects.jafka.records import decode_chunks
from rangeland.dialects.jafka.requests import (
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
from rangeland.dialects.jafka.session import JafkaSession as open_session

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
