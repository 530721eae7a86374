"""A single connection to a server that uses length-prefixed frames, for tests that send raw
requests.

It is independent of the library's own connections. Any failure, and any wait of more than half a
minute, is an error.
"""

from __future__ import annotations

import socket

from rangeland.errors import Unreachable
from rangeland.testing.context_managers import Closing
from rangeland.wire.framing import FrameReader

TIMEOUT_S = 30
MAX_FRAME_BYTES = 1 << 30


class FrameClient(Closing):
    """A connection to ``host:port``. Any failure raises `Unreachable`."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self.address = address
        self._frames = FrameReader(MAX_FRAME_BYTES)
        try:
            self._socket = socket.create_connection((host, int(port)), TIMEOUT_S)
        except OSError as error:
            raise _no_response_error(address, str(error)) from error

    def send_raw(self, data: bytes) -> None:
        try:
            self._socket.sendall(data)
        except OSError as error:
            raise _no_response_error(self.address, str(error)) from error

    def receive_raw(self) -> memoryview:
        """The next frame, without its length."""
        while True:
            try:
                count = self._socket.recv_into(self._frames.buffer())
            except OSError as error:
                raise _no_response_error(self.address, str(error)) from error
            if count == 0:
                raise _no_response_error(self.address, "it closed the connection")
            if (whole := self._frames.advance(count)) is not None:
                return whole

    def close(self) -> None:
        self._socket.close()


def _no_response_error(address: str, why: str) -> Unreachable:
    return Unreachable(f"{address} does not answer", why=why, do="check that it is up")
