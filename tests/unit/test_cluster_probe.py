"""What a server's answer shows of a cluster that tests have started."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from rangeland.errors import Unreachable, UsageError
from rangeland.testing.probe import ephemeral_nodes, is_registered

Serve = Callable[[bytes], str]
DUMP = (
    b"SessionTracker dump:\nSession Sets (1):\n0 expire at never\nephemeral nodes dump:\n"
    b"Sessions with Ephemerals (1):\n0x15:\n\t/brokers/ids/1\n"
)


@pytest.fixture
def serve() -> Iterator[Serve]:
    """A ZooKeeper that answers each connection with these bytes; returns its address."""
    servers: list[socket.socket] = []

    def start(response: bytes) -> str:
        server = socket.create_server(("127.0.0.1", 0))
        servers.append(server)

        def answer() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(4)
                    connection.sendall(response)

        threading.Thread(target=answer, daemon=True).start()
        return f"127.0.0.1:{server.getsockname()[1]}"

    yield start
    for server in servers:
        server.shutdown(socket.SHUT_RDWR)
        server.close()


def test_the_nodes_of_sessions_are_read(serve: Serve) -> None:
    address = serve(DUMP)
    assert ephemeral_nodes(address) == {"/brokers/ids/1"}
    assert [is_registered(address, broker) for broker in (1, 2)] == [True, False]
    assert is_registered(f"{address}/jafka", 1) is False


def test_a_zookeeper_that_serves_nothing_yet_does_not_show_that_a_node_is_gone(
    serve: Serve,
) -> None:
    address = serve(b"This ZooKeeper instance is not currently serving requests\n")
    with pytest.raises(Unreachable, match="not currently serving"):
        ephemeral_nodes(address)
    assert is_registered(address, 1) is None


def test_a_zookeeper_that_may_not_say_is_a_usage_error(serve: Serve) -> None:
    address = serve(b"dump is not executed because it is not in the whitelist.\n")
    with pytest.raises(UsageError, match=r"4lw\.commands\.whitelist"):
        is_registered(address, 1)


def test_the_host_of_the_address_is_asked() -> None:
    with pytest.raises(Unreachable, match=r"no-such-host\.invalid:2181"):
        ephemeral_nodes("no-such-host.invalid:2181")
