"""The connections and the clock of a group backend.

A backend has its own connections, so a member's heartbeats continue while another thread reads.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from rangeland.connection.cluster_settings import ClusterSettings
from rangeland.connection.pool import ConnectionPool
from rangeland.dialects.protocol_session import Question
from rangeland.model import Address


class BrokerGroupIO:
    """A ``GroupIO``. Not for several threads at once; close it when done."""

    def __init__(self, settings: ClusterSettings) -> None:
        self._brokers = ConnectionPool(settings)

    @property
    def seeds(self) -> tuple[Address, ...]:
        return self._brokers.settings.seeds

    def ask(self, address: Address, question: Question) -> Any:
        return self._brokers.call(address, question)

    def ask_all(self, address: Address, questions: Sequence[Question]) -> list[Any]:
        return self._brokers.call_all(address, questions)

    def pause(self, pause_ms: int) -> None:
        time.sleep(pause_ms / 1000)

    def now_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def close(self) -> None:
        self._brokers.close()
