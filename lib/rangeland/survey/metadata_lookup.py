"""Looks up a cluster's metadata: which broker leads which partition now. It does for all partitions
at once what ``findLeader`` of Kafka's SimpleConsumer does for one.

A dialect describes the requests as values; this module sends them to each address in turn, until
one answers. If that broker tells the client to start again, the servers that the job names are
asked, each on a new connection, since its name may lead to another broker now. Upstream:
NetworkClient.java (``handleRebootstrap``, KIP-1102).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from rangeland.connection.failures import ConnectionLost, NotABroker
from rangeland.connection.pool import ConnectionPool
from rangeland.dialects.cluster_values import (
    ClusterView,
    LeaderRequest,
    NoSeedAnswered,
    RestartRequired,
)
from rangeland.errors import JobFileError
from rangeland.model import Address


def ask_metadata(
    brokers: ConnectionPool, topics: Sequence[str] | None, seeds: Sequence[Address]
) -> ClusterView:
    """The cluster according to its metadata. ``topics`` None: all. Raises Unreachable with every
    address and why it failed, or JobFileError if none of them is a broker."""
    try:
        return _search(brokers, topics, seeds)
    except RestartRequired as error:
        brokers.drop_all()
        servers = brokers.settings.seeds
        for index in range(len(servers)):
            # A server that is not a broker does not end this search: another one has answered.
            with suppress(RestartRequired, JobFileError):
                return _search(brokers, topics, servers[index:])
        raise error


def _search(
    brokers: ConnectionPool, topics: Sequence[str] | None, seeds: Sequence[Address]
) -> ClusterView:
    search = brokers.dialect.find_leaders(
        topics, tuple(dict.fromkeys(seeds)), dict(brokers.settings.named_brokers)
    )
    answered_by: Address | None = None
    try:
        request = next(search)
        while True:
            responses, seed = _ask_in_turn(brokers, request)
            answered_by = seed or answered_by
            request = search.send(responses)
    except StopIteration as done:
        view: ClusterView = done.value
        return replace(view, answered_by=answered_by)


def _ask_in_turn(
    brokers: ConnectionPool, request: LeaderRequest
) -> tuple[list[Any] | NoSeedAnswered, Address | None]:
    """The responses, and the broker that gave them."""
    failures: dict[Address, str] = {}
    not_brokers = 0
    for seed in request.seeds:
        try:
            return brokers.call_all(seed, request.requests), seed
        except ConnectionLost as error:
            failures[seed] = error.why
            not_brokers += isinstance(error, NotABroker) and not brokers.was_served
    return NoSeedAnswered(failures, not_brokers), None
