"""The Kafka dialect: brokers 0.8.2 to 4.x."""

from __future__ import annotations

from typing import Final

from rangeland.dialects.dialect import Dialect
from rangeland.dialects.kafka import (
    aborted_transactions,
    entry_scan,
    log_history,
    records,
    requests,
    sasl_mechanisms,
    topic_settings,
)
from rangeland.dialects.kafka.session import KafkaSession


class KafkaDialect(Dialect):
    """Kafka's dialect: each method is a pure function of the module that has its rules."""

    capabilities = requests.CAPABILITIES

    def open_session(self, client_id: str) -> KafkaSession:
        return KafkaSession(client_id)

    login = staticmethod(sasl_mechanisms.login)
    ask_mechanisms = staticmethod(sasl_mechanisms.ask_mechanisms)
    read_mechanisms = staticmethod(sasl_mechanisms.read_mechanisms)

    find_leaders = staticmethod(requests.find_leaders)
    ask_offsets = staticmethod(requests.ask_offsets)
    read_offsets = staticmethod(requests.read_offsets)
    ask_latest_timestamps = staticmethod(requests.ask_latest_timestamps)
    ask_sizes = staticmethod(requests.ask_sizes)
    read_sizes = staticmethod(requests.read_sizes)
    ask_epochs = staticmethod(log_history.ask_epochs)
    read_epochs = staticmethod(log_history.read_epochs)
    epoch_of = staticmethod(log_history.epoch_of)
    ask_transactions = staticmethod(log_history.ask_transactions)
    read_transactions = staticmethod(log_history.read_transactions)
    ask_retention = staticmethod(topic_settings.ask_retention)
    read_retention = staticmethod(topic_settings.read_retention)
    ask_cleanup = staticmethod(topic_settings.ask_cleanup)
    read_cleanup = staticmethod(topic_settings.read_cleanup)

    ask_records = staticmethod(requests.ask_records)
    read_records = staticmethod(requests.read_records)
    next_offset = staticmethod(entry_scan.next_offset)
    first_offset = staticmethod(entry_scan.first_offset)
    unconfirmed_gap = staticmethod(entry_scan.unconfirmed_gap)
    has_certain_end = staticmethod(entry_scan.has_certain_end)
    cut_out = staticmethod(entry_scan.cut_out)
    aborted_within = staticmethod(aborted_transactions.aborted_within)
    decode_chunks = staticmethod(records.decode_chunks)


DIALECT: Final = KafkaDialect()
