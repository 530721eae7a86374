"""The client library that tests and the demo use: confluent-kafka.

Rangeland reads with its own protocol code, so it has to be tested on records that another client
has written. The extras ``demo`` and ``test`` install it. It is imported on first use, and its
exceptions are turned into ours here.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rangeland.errors import Conflict, RangelandError, Unreachable, UsageError

TIMEOUT_S = 60

# The library's own log would repeat the errors on stderr, at greater length.
_QUIET = {"log_level": 0, "log.connection.close": False}


_WITHOUT_VERSIONS = ("0.8.", "0.9.")
_REACHES_BACK = {"api.version.request": False, "broker.version.fallback": "0.8.2.2"}
# Errors that brokers return while leaders change; requests can be retried.
_PASSING = {
    "LEADER_NOT_AVAILABLE",
    "NOT_LEADER_FOR_PARTITION",
    "REQUEST_TIMED_OUT",
    "COORDINATOR_NOT_AVAILABLE",
    "NOT_COORDINATOR",
    "NOT_ENOUGH_REPLICAS",
    "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
    "OFFSET_NOT_AVAILABLE",
    "BROKER_NOT_AVAILABLE",
    "NOT_CONTROLLER",
}

_MAY_NOT_EXIST = {"_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION"}
"""Errors of the library for what brokers do not name: it may have just been created."""


def reaching_back(version: str) -> dict[str, Any]:
    """Client settings for a broker of ``version``: the oldest brokers have no request for their
    supported versions."""
    return dict(_REACHES_BACK) if version.startswith(_WITHOUT_VERSIONS) else {}


def library(module: str = "confluent_kafka") -> Any:
    """confluent-kafka, or one of its modules. Raises `UsageError` if it is not installed."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        remedy = "install it: pip install 'rangeland[demo]'"
        raise UsageError("confluent-kafka is missing", why=str(error), do=remedy) from error


def join_servers(bootstrap: str | Sequence[str]) -> str:
    """``host:port,host:port`` from a list of servers, or from text that is already in that form."""
    return bootstrap if isinstance(bootstrap, str) else ",".join(bootstrap)


def admin(bootstrap: str | Sequence[str]) -> Any:
    """An admin client of confluent-kafka."""
    settings = {"bootstrap.servers": join_servers(bootstrap), **_QUIET}
    return library("confluent_kafka.admin").AdminClient(settings)


def producer(bootstrap: str | Sequence[str], settings: dict[str, Any]) -> Any:
    """A producer of confluent-kafka."""
    return library().Producer({"bootstrap.servers": join_servers(bootstrap), **_QUIET, **settings})


def consumer(bootstrap: str | Sequence[str], settings: dict[str, Any]) -> Any:
    """A consumer of confluent-kafka, which the caller must close."""
    return library().Consumer({"bootstrap.servers": join_servers(bootstrap), **_QUIET, **settings})


@contextmanager
def our_errors(message: str) -> Iterator[None]:
    """Turns the errors of confluent-kafka into `Unreachable`, `Conflict` or `UsageError`."""
    try:
        yield
    except library().KafkaException as error:
        raise client_error(message, error.args[0]) from error


def client_error(message: str, error: Any) -> RangelandError:
    """Our error for a ``KafkaError``: codes below zero are the library's own (no connection, time
    is up), all others came from a broker."""
    code, name = error.code(), error.name()
    if code == library().KafkaError.TOPIC_ALREADY_EXISTS:
        return Conflict(message, why="there is a topic of that name", do="use another", code=code)
    if code < 0 or name in _PASSING or error.retriable():
        remedy = "check that the brokers are up"
        if name in _MAY_NOT_EXIST:
            remedy = "check that the topic and its partition exist, and that the brokers are up"
        return Unreachable(message, why=f"{error.str()} ({name})", do=remedy, code=code)
    reason, remedy = f"the broker refused: {error.str()} ({name})", "ask for what it allows"
    return UsageError(message, why=reason, do=remedy, code=code)
