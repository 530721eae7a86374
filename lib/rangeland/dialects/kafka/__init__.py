"""The Kafka dialect: brokers 0.8.2 to 4.x."""

from __future__ import annotations

from typing import Final

from rangeland.dialects.dialect import Dialect
from rangeland.dialects.kafka import (
    aborted_transactions,
    log_entries,
    log_history,
    records,
    requests,
    sasl_mechanisms,
    topic_settings,
)
from rangeland.dialects.kafka.session import KafkaSession


class KafkaDialect(Dialect):
    """Kafka's dialect: each method delegates to a pure function in the module that implements its
    rules."""

    capabilities = requests.CAPABILITIES

    def open_session(self, client_id: str) -> KafkaSession:
        return KafkaSession(client_id)

    login = staticmethod(sasl_mechanisms.login)
    mechanisms_requests = staticmethod(sasl_mechanisms.mechanisms_requests)
    read_mechanisms = staticmethod(sasl_mechanisms.read_mechanisms)

    find_leaders = staticmethod(requests.find_leaders)
    offsets_requests = staticmethod(requests.offsets_requests)
    read_offsets = staticmethod(requests.read_offsets)
    latest_timestamps_requests = staticmethod(requests.latest_timestamps_requests)
    sizes_requests = staticmethod(requests.sizes_requests)
    read_sizes = staticmethod(requests.read_sizes)
    epochs_requests = staticmethod(log_history.epochs_requests)
    read_epochs = staticmethod(log_history.read_epochs)
    epoch_of = staticmethod(log_history.epoch_of)
    transactions_requests = staticmethod(log_history.transactions_requests)
    read_transactions = staticmethod(log_history.read_transactions)
    retention_requests = staticmethod(topic_settings.retention_requests)
    read_retention = staticmethod(topic_settings.read_retention)
    cleanup_requests = staticmethod(topic_settings.cleanup_requests)
    read_cleanup = staticmethod(topic_settings.read_cleanup)

    records_requests = staticmethod(requests.records_requests)
    read_records = staticmethod(requests.read_records)
    scan = staticmethod(log_entries.scan)
    first_offset = staticmethod(log_entries.first_offset)
    cut_out = staticmethod(log_entries.cut_out)
    aborted_within = staticmethod(aborted_transactions.aborted_within)
    decode_chunks = staticmethod(records.decode_chunks)


DIALECT: Final = KafkaDialect()
