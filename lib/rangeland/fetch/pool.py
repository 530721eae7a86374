"""Connections by broker, and the old rule of SimpleConsumer: reconnect once, then give up.

A broken connection may only mean that the broker closed an idle one, so each call is tried
a second time on a fresh connection. A second failure is the caller's to judge.
"""

from __future__ import annotations

from typing import Any

from rangeland.dialects.contract import Dialect, Question, load_dialect
from rangeland.fetch.broker import Connection, Lost
from rangeland.fetch.settings import ClusterSettings
from rangeland.model import Address


class Brokers:
    """Open connections, at most one per broker. Close it when done."""

    def __init__(self, settings: ClusterSettings) -> None:
        self.settings = settings
        self.dialect: Dialect = load_dialect(settings.dialect)
        self.requests = 0
        self._open: dict[Address, Connection] = {}

    def call(self, address: Address, question: Question) -> Any:
        """Raises Lost after the second failure, and what the answer itself raises."""
        fresh = address not in self._open
        try:
            return self._call(address, question)
        except Lost:
            self.drop(address)
            if fresh:
                raise
        try:
            return self._call(address, question)
        except Lost:
            self.drop(address)
            raise

    def _call(self, address: Address, question: Question) -> Any:
        connection = self.connect(address)
        self.requests += 1
        return connection.call(question)

    def connect(self, address: Address) -> Connection:
        """The open connection to a broker, or a new one. Raises Lost."""
        if address not in self._open:
            self._open[address] = Connection(address, self.dialect, self.settings)
        return self._open[address]

    def drop(self, address: Address) -> None:
        """Forgets a connection that is no good."""
        connection = self._open.pop(address, None)
        if connection is not None:
            connection.close()

    def close(self) -> None:
        for address in list(self._open):
            self.drop(address)

    def __enter__(self) -> Brokers:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
