"""The RocketMQ dialect: name servers, and brokers with queues."""

from __future__ import annotations

from typing import Final

from rangeland.dialects.dialect import Dialect
from rangeland.dialects.rocketmq import log_entries, queue_sizes, records, requests
from rangeland.dialects.rocketmq.session import RocketmqSession


class RocketmqDialect(Dialect):
    """RocketMQ's dialect: each method delegates to a pure function in the module that implements
    its rules."""

    capabilities = requests.CAPABILITIES

    def open_session(self, client_id: str) -> RocketmqSession:
        return RocketmqSession(client_id)

    login = staticmethod(requests.login)

    find_leaders = staticmethod(requests.find_leaders)
    offsets_requests = staticmethod(requests.offsets_requests)
    read_offsets = staticmethod(requests.read_offsets)
    sizes_requests = staticmethod(queue_sizes.sizes_requests)
    read_sizes = staticmethod(queue_sizes.read_sizes)

    records_requests = staticmethod(requests.records_requests)
    read_records = staticmethod(requests.read_records)
    scan = staticmethod(log_entries.scan)
    cut_out = staticmethod(log_entries.cut_out)
    decode_chunks = staticmethod(records.decode_chunks)


DIALECT: Final = RocketmqDialect()
