"""Free TCP ports on 127.0.0.1.

Binding to port 0 would return ports that outgoing connections use as well. Then the port of a
broker that is down could be taken, even by a client that keeps trying to reach it and ends up
connected to itself. Ports below that range stay free for a restart.
"""

from __future__ import annotations

import random
import socket
from pathlib import Path

from rangeland.errors import Unreachable

FIRST_PORT = 15_000
LAST_PORT = 32_000
_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")

_given: set[int] = set()
_random = random.SystemRandom()  # not the shared generator: test runs seed that one


def free_ports(count: int) -> list[int]:
    """``count`` distinct ports nobody listens on; none is given twice by one process."""
    first, last = _bounds()
    found: list[int] = []
    for _ in range(1000 + 10 * count):
        if len(found) == count:
            return found
        port = _random.randint(first, last)
        if port not in _given and is_free(port):
            _given.add(port)
            found.append(port)
    why = f"{len(found)} of {count} were found in {first}-{last}"
    raise Unreachable("There are no free ports", why=why, do="End what is listening on them")


def is_free(port: int) -> bool:
    """Whether a server could listen there now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def is_listening(port: int) -> bool:
    """Whether a server accepts connections there now."""
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
