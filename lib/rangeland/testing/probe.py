"""Asks a server one question over a plain socket, to find out whether it is up.

This shows the state of test clusters without a client library and without the code under test.
Kafka brokers are asked for metadata (version 0, which 0.8 to 4.x support), and ZooKeeper for its
ephemeral nodes (with its four-letter command `dump`).

The question is always about all topics, never about one by name, because brokers may create a topic
when they are asked about it.
"""

from __future__ import annotations

import socket
import struct

from rangeland.errors import Unreachable, UsageError

_METADATA = 3
_VERSION = 0
_DUMP = "ephemeral nodes dump:"
"""What begins the part of the response that lists nodes, even if there are none."""


def brokers_seen_by(address: str, timeout_s: float = 2) -> dict[int, int]:
    """Broker id -> port, as the broker at ``host:port`` sees the cluster; empty as long as it
    cannot say."""
    response = _ask(address, timeout_s)
    return _brokers(response)[0] if response else {}


def leaders_seen_by(address: str, topic: str) -> dict[int, int] | None:
    """Partition -> leader (-1: none), as the broker at ``host:port`` sees it; empty if it does not
    know the topic, None as long as it cannot say."""
    response = _ask(address)
    return _leaders(response).get(topic, {}) if response else None


def is_registered(zookeeper: str, broker: int) -> bool | None:
    """Whether a session holds the broker's node in the ZooKeeper at ``host:port``, which may have
    a chroot; None while it does not say, as when it starts. Raises `UsageError` if it does not
    allow the question."""
    address, _, chroot = zookeeper.partition("/")
    root = f"/{chroot}".rstrip("/")
    try:
        return f"{root}/brokers/ids/{broker}" in ephemeral_nodes(address)
    except Unreachable:
        return None


def ephemeral_nodes(zookeeper: str) -> set[str]:
    """The paths that sessions of the ZooKeeper at ``host:port`` hold. Raises `Unreachable`, and
    `UsageError` if it does not allow the question."""
    host, _, port = zookeeper.rpartition(":")
    what = f"ZooKeeper at {zookeeper} did not answer"
    try:
        with socket.create_connection((host, int(port)), timeout=5) as connection:
            connection.sendall(b"dump")
            blocks = iter(lambda: connection.recv(65536), b"")
            response = b"".join(blocks).decode(errors="replace")
    except OSError as error:
        raise Unreachable(what, why=str(error), do="check that ZooKeeper is up") from error
    if "is not in the whitelist" in response:
        do = "start it with 4lw.commands.whitelist=dump"
        raise UsageError(f"ZooKeeper at {zookeeper} may not be asked", why=response.strip(), do=do)
    if _DUMP not in response:  # while it starts, and when it has lost its quorum
        raise Unreachable(what, why=response.strip()[:200], do="wait until it serves requests")
    return {line.strip() for line in response.splitlines() if line.startswith("\t/")}


def _ask(address: str, timeout_s: float = 2) -> bytes:
    """The response to a Metadata request; empty if none came: callers ask again until their own
    deadline."""
    host, _, port = address.rpartition(":")
    client = b"rangeland-testing"
    request = struct.pack(">hhih", _METADATA, _VERSION, 0, len(client)) + client
    request += struct.pack(">i", 0)  # an empty list of topics asks for all
    try:
        with (
            socket.create_connection((host, int(port)), timeout_s) as connection,
            connection.makefile("rb") as stream,
        ):
            connection.sendall(struct.pack(">i", len(request)) + request)
            (size,) = struct.unpack(">i", stream.read(4))
            response = stream.read(size)
    except (OSError, struct.error):
        return b""
    return response if len(response) == size else b""


def _brokers(response: bytes) -> tuple[dict[int, int], int]:
    """The brokers, and the position after them."""
    (count,) = struct.unpack_from(">i", response, 4)
    byte_index, ports = 8, {}
    for _ in range(count):
        node, host_size = struct.unpack_from(">ih", response, byte_index)
        byte_index += 6 + host_size
        (ports[node],) = struct.unpack_from(">i", response, byte_index)
        byte_index += 4
    return ports, byte_index


def _leaders(response: bytes) -> dict[str, dict[int, int]]:
    """Topic -> partition -> leader."""
    _, byte_index = _brokers(response)
    (count,) = struct.unpack_from(">i", response, byte_index)
    byte_index += 4
    topics: dict[str, dict[int, int]] = {}
    for _ in range(count):
        _error, size = struct.unpack_from(">hh", response, byte_index)
        byte_index += 4 + size
        topic = response[byte_index - size : byte_index].decode()
        (partitions,) = struct.unpack_from(">i", response, byte_index)
        byte_index, topics[topic] = byte_index + 4, {}
        for _ in range(partitions):
            _error, number, leader, replicas = struct.unpack_from(">hiii", response, byte_index)
            byte_index += 14 + 4 * replicas
            (in_sync,) = struct.unpack_from(">i", response, byte_index)
            byte_index += 4 + 4 * in_sync
            topics[topic][number] = leader
    return topics
