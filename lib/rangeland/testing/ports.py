"""Free TCP ports on 127.0.0.1.

Binding to port 0 would return ports that are also used for outgoing connections. Then the port of a
broker that is down could be taken, even by a client that keeps trying to reach it and ends up
connected to itself. Ports below that range stay free for a restart.

A port belongs to the process that took it until that process ends, even while nothing listens on
it: a broker takes seconds to start, and tests run in several processes at once.
"""

from __future__ import annotations

import random
import socket
import sys
from pathlib import Path

from rangeland.errors import Unreachable

FIRST_PORT = 15_000
LAST_PORT = 32_000
_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")

_ports: dict[int, int] = {}
"""For each port, the file descriptor that marks it as ours for all processes of this machine."""
_random = random.SystemRandom()  # not the shared generator, because test runs seed that one


def free_ports(count: int) -> list[int]:
    """``count`` distinct ports on which nobody listens; none is returned twice, or to two
    processes."""
    first, last = _bounds()
    ports: list[int] = []
    for _ in range(1000 + 10 * count):
        if len(ports) == count:
            return ports
        port = _random.randint(first, last)
        if take(port):
            ports.append(port)
    reason = f"{len(ports)} of {count} were found in {first}-{last}"
    raise Unreachable(
        "There are no free ports", why=reason, do="stop whatever is listening on them"
    )


def take(port: int) -> bool:
    """Takes a port for this process; False if it is not free."""
    if port in _ports or not is_free(port):
        return False
    # A name without a file; the kernel forgets it when the process ends.
    mark = socket.socket(socket.AF_UNIX)
    try:
        if sys.platform == "linux":
            mark.bind(f"\0rangeland-port-{port}")
    except OSError:
        mark.close()
        return False
    _ports[port] = mark.detach()
    return True


def is_free(port: int) -> bool:
    """Whether a server could listen on this port now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def is_listening(port: int) -> bool:
    """Whether a server accepts connections on this port now."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def _bounds() -> tuple[int, int]:
    try:
        ephemeral = int(_EPHEMERAL.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return FIRST_PORT, LAST_PORT
    if ephemeral - 1 - FIRST_PORT < 1000:
        return FIRST_PORT, LAST_PORT  # a wide range: there is no room below it
    return FIRST_PORT, min(LAST_PORT, ephemeral - 1)
