"""The Jafka dialect: the Kafka 0.7 line."""

from __future__ import annotations

from typing import Final

from rangeland.dialects.dialect import Dialect
from rangeland.dialects.jafka import log_entries, records, requests
from rangeland.dialects.jafka.session import JafkaSession


class JafkaDialect(Dialect):
    """Jafka's dialect: each method delegates to a pure function in the module that implements its
    rules."""

    capabilities = requests.CAPABILITIES

    def open_session(self, client_id: str) -> JafkaSession:
        return JafkaSession(client_id)

    find_leaders = staticmethod(requests.find_leaders)
    offsets_requests = staticmethod(requests.offsets_requests)
    read_offsets = staticmethod(requests.read_offsets)

    records_requests = staticmethod(requests.records_requests)
    read_records = staticmethod(requests.read_records)
    scan = staticmethod(log_entries.scan)
    entry_around = staticmethod(log_entries.entry_around)
    cut_out = staticmethod(log_entries.cut_out)
    decode_chunks = staticmethod(records.decode_chunks)


DIALECT: Final = JafkaDialect()
