"""A pool of connections, one per broker, with the rule of Kafka's SimpleConsumer: reconnect once,
then give up.

A connection may break just because the broker closed it while it was idle, so its requests are sent
once more on a new connection. The caller decides what a second failure means.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from rangeland.cluster_settings import ClusterSettings
from rangeland.connection.broker_connection import BrokerConnection
from rangeland.connection.diagnosis import missing_login_error
from rangeland.connection.failures import (
    ClientUnwelcome,
    ConnectionClosed,
    ConnectionLost,
    ResponseTimedOut,
)
from rangeland.dialects.dialect import Dialect, load_dialect
from rangeland.dialects.protocol_session import BrokerRequest
from rangeland.errors import RangelandError
from rangeland.model import Address

logger = logging.getLogger(__name__)

AHEAD = 256
"""Requests that are sent to one broker before a response is read."""


class ConnectionPool:
    """Open connections, at most one per broker. Close it when done."""

    def __init__(self, settings: ClusterSettings) -> None:
        self.settings = settings
        self.dialect: Dialect = load_dialect(settings.dialect)
        self.requests = 0
        self._open: dict[Address, BrokerConnection] = {}
        self._reports_versions: dict[Address, bool] = dict(settings.reports_versions)
        self._served: set[Address] = set()
        self._closed = False

    @property
    def reports_versions(self) -> dict[Address, bool]:
        """Whether each broker reports its API versions, if known. A survey passes this on to the
        group and the tasks, so that they do not send this request again to a broker that does not
        support it."""
        return dict(self._reports_versions)

    @property
    def was_served(self) -> bool:
        """Whether any broker has answered a request: then the settings are right, and a later
        failure does not show a mistake in them."""
        return bool(self._served)

    def call(self, address: Address, request: BrokerRequest) -> Any:
        """Sends a request and returns its response. Raises ConnectionLost after the second failure,
        and the errors of reading the response."""
        return self._call_twice(address, (request,))[0]

    def call_all(self, address: Address, requests: Sequence[BrokerRequest]) -> list[Any]:
        """The responses to all requests, in order. Up to ``AHEAD`` requests are sent before their
        responses are read. Raises ConnectionLost if they fail twice."""
        responses: list[Any] = []
        for start in range(0, len(requests), AHEAD):
            responses += self._call_twice(address, requests[start : start + AHEAD])
        return responses

    def _call_twice(self, address: Address, requests: Sequence[BrokerRequest]) -> list[Any]:
        fresh = address not in self._open
        is_unwelcome = False
        try:
            return self._call(address, requests)
        except ConnectionLost as error:
            self.drop(address)
            is_unwelcome = fresh and isinstance(error, ClientUnwelcome)
            if fresh and not is_unwelcome:
                raise
        logger.info("Reconnecting to %s", address)
        try:
            return self._call(address, requests)
        except ConnectionLost as error:
            self.drop(address)
            if is_unwelcome and isinstance(error, ClientUnwelcome):
                self._check_login_is_optional(address, error)
            raise

    def _check_login_is_optional(self, address: Address, closed: ClientUnwelcome) -> None:
        """Raises JobFileError if the listener itself reports that it requires a login. A closed
        connection alone proves nothing: busy brokers and load balancers also close connections."""
        requests = self.dialect.mechanisms_requests()
        if address in self._served or not requests:
            return
        try:
            mechanisms = self.dialect.read_mechanisms(self._call(address, requests))
        except RangelandError:
            return
        finally:
            self.drop(address)
            self._served.discard(address)
        if mechanisms is not None:
            raise missing_login_error(address, mechanisms) from closed

    def _call(self, address: Address, requests: Sequence[BrokerRequest]) -> list[Any]:
        self.send_all(address, requests)
        return self._receive_all(address, requests)

    def send_all(self, address: Address, requests: Sequence[BrokerRequest]) -> None:
        """Sends without waiting for the responses; ``receive_or_call_again`` returns them."""
        connection = self.connect(address)
        self.requests += len(requests)
        for request in requests:
            connection.send(request)

    def receive_or_call_again(
        self, address: Address, requests: Sequence[BrokerRequest]
    ) -> list[Any]:
        """The responses to the requests that ``send_all`` has sent. If the connection breaks, they
        are sent once more on a new one. Raises ConnectionLost if that fails as well."""
        try:
            return self._receive_all(address, requests)
        except ConnectionLost as error:
            logger.info("Reconnecting to %s: %s", address, error.why)
            self.drop(address)
        return self.call_all(address, requests)

    def _receive_all(self, address: Address, requests: Sequence[BrokerRequest]) -> list[Any]:
        connection = self.connect(address)
        responses = [connection.receive(request.wait_ms) for request in requests]
        self._served.add(address)
        return responses

    def connect(self, address: Address) -> BrokerConnection:
        """The open connection to a broker, or a new one. Raises ConnectionLost."""
        self._check_is_open(address)
        connection = self._open.get(address)
        if connection is None:
            connection = self._open[address] = self._open_connection(address)
            try:
                self._check_is_open(address)  # another thread may have closed the pool meanwhile
            except ConnectionLost:
                self.drop(address)
                raise
        return connection

    def _check_is_open(self, address: Address) -> None:
        if self._closed:
            raise ConnectionLost(f"{address} was not asked", why="the connection pool is closed")

    def _open_connection(self, address: Address) -> BrokerConnection:
        """A new connection. The pool remembers whether its broker reports its versions, for as long
        as the broker answers."""
        reported = self._reports_versions.get(address)
        try:
            connection = BrokerConnection(
                address,
                self.dialect,
                self.settings,
                reported_versions=reported,
                was_served=self.was_served,
                answers_plainly=address in self._served,
            )
        except (ResponseTimedOut, ConnectionClosed):
            self._reports_versions.pop(address, None)  # another version may be running there now
            raise
        self._reports_versions[address] = connection.reports_versions
        return connection

    def drop(self, address: Address) -> None:
        """Closes and forgets a failed connection."""
        connection = self._open.pop(address, None)
        if connection is not None:
            connection.close()

    def drop_all(self) -> None:
        for address in list(self._open):
            self.drop(address)

    def close(self) -> None:
        """Closes all connections for good: a thread that still uses the pool gets ConnectionLost,
        not a new connection."""
        self._closed = True
        self.drop_all()

    def __enter__(self) -> ConnectionPool:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
