"""The only module with a socket to brokers: bytes out, whole frames in, each within a deadline.

No foreign error (OSError, ssl) leaves this module. It becomes ``ConnectionLost``, which says what
was attempted, or an error about the mistake in the job that caused it (``diagnosis``). After any
error, the socket is closed for good. ``broker_connection`` decides what the bytes mean, and what to
do about a lost peer.
"""

from __future__ import annotations

import socket
import ssl
import time
from typing import Any

import pyarrow as pa

from rangeland.cluster_settings import ClusterSettings
from rangeland.connection import diagnosis
from rangeland.connection.failures import ConnectionClosed, ConnectionLost, ResponseTimedOut
from rangeland.connection.tls import openssl_failure, tls_context
from rangeland.errors import RangelandError
from rangeland.model import Address
from rangeland.wire.framing import FrameReader

# Until a peer has shown that it is a broker: "HTTP" read as a length is more than a gigabyte.
MAX_OPENING_BYTES = 1 << 20
RECEIVE_BUFFER_BYTES = 4 << 20
"""Large enough that the broker can continue to send while received data is decoded, even over a
network with high latency."""
POOLED_BYTES = 1 << 16
"""Smaller buffers are quickly zeroed, and not worth an allocation from the pool."""
AHEAD_BYTES = 1 << 18
"""Lets many small frames, such as those of pulls, arrive in one read."""
PROBE_MS = 2_000
"""A probe only improves the message of an error that has already occurred, so it must be short."""
LAST_READS = 16
"""A mebibyte at most, so that a peer that never stops sending cannot keep this going forever."""


class Stream:
    """A socket to a broker: connected when constructed, unencrypted until the TLS handshake. It
    accepts only small frames until the peer is known to be a broker."""

    def __init__(self, address: Address, settings: ClusterSettings) -> None:
        self._address = address
        self._settings = settings
        # Missing files are reported before a connection is made.
        self._tls = None if settings.tls is None else tls_context(settings.tls)
        self._peer_has_responded = False
        self._frames = FrameReader(MAX_OPENING_BYTES)
        self._socket = self._connect()

    def _connect(self) -> socket.socket:
        host_and_port = (self._address.host, self._address.port)
        try:
            plain = socket.create_connection(host_and_port, self._settings.connect_ms / 1000)
        except OSError as error:
            raise self._lost_error("connect to", error) from error
        except (ValueError, OverflowError) as error:
            # Raised by idna for an empty label, and by sockets for NUL and for port 99999.
            named = (address for _, address in self._settings.named_brokers)
            if self._address in {*self._settings.seeds, *named}:
                raise diagnosis.host_name_error(self._address) from error
            raise ConnectionLost(
                f"could not connect to {self._address}",
                why="it is not a valid host and port; another broker advertised it",
                do="check the advertised listeners of the brokers",
                broker=str(self._address),
            ) from error
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
        return plain

    def start_tls(self) -> None:
        """Starts TLS, if the job uses it."""
        if self._tls is None:
            return
        plain = self._socket
        try:
            self._socket = self._tls.wrap_socket(plain, server_hostname=self._address.host)
        except OSError as error:
            plain.close()
            raise self._lost_error("complete the TLS handshake with", error) from error
        except ValueError as error:
            plain.close()
            raise diagnosis.host_name_error(self._address) from error

    def take_large_frames(self) -> None:
        """Accepts frames as large as the job allows, with read-ahead, once the peer is known to be
        a broker."""
        self._frames = FrameReader(self._settings.max_answer_bytes, _pooled_buffer, AHEAD_BYTES)

    def close(self) -> None:
        self._socket.close()

    def send(self, data: bytes) -> None:
        """Sends all of it, within ``request_ms``."""
        try:
            self._socket.settimeout(self._settings.request_ms / 1000)
            self._socket.sendall(data)
        except OSError as error:
            cause = self._close_error(error)
            self.close()
            raise self._lost_error("send to", cause) from error

    def receive(self, wait_ms: int, deadline: float | None = None) -> memoryview:
        """The next frame. ``deadline`` is for callers that wait for more than one frame."""
        frame = self._frames.next()
        if frame is not None:
            return frame
        deadline = deadline or time.monotonic() + wait_ms / 1000
        while True:
            remaining = deadline - time.monotonic()
            try:
                if remaining <= 0:
                    raise TimeoutError
                self._socket.settimeout(remaining)
                count = self._socket.recv_into(self._frames.buffer())
                if count == 0:
                    raise ConnectionResetError("the broker closed the connection")
            except TimeoutError as error:
                self.close()
                silence = TimeoutError(f"no complete response in {wait_ms} ms")
                raise self._lost_error("receive from", silence) from error
            except OSError as error:
                self.close()
                raise self._lost_error("receive from", error) from error
            frame = self._frames.advance(count)
            if frame is not None:
                self._peer_has_responded = True
                return frame

    def _close_error(self, error: OSError) -> OSError:
        """Why the peer closed the connection while data was being sent: it may have sent a TLS
        alert before, for example about a missing client certificate."""
        if not isinstance(self._socket, ssl.SSLSocket) or isinstance(error, TimeoutError):
            return error
        try:
            self._socket.settimeout(PROBE_MS / 1000)
            for _ in range(LAST_READS):  # skips data sent before the alert
                if not self._socket.recv(POOLED_BYTES):
                    break
        except OSError as alert:
            return alert if getattr(alert, "reason", None) else error
        return error

    def _lost_error(self, doing: str, error: OSError) -> RangelandError:
        why, do = str(error) or type(error).__name__, ""
        tls = self._settings.tls
        if tls is not None and isinstance(error, ssl.SSLError):
            failure = openssl_failure(error)
            mistake = diagnosis.tls_error(self._address, failure, tls)
            if mistake is not None and not self._peer_has_responded:
                return mistake
            # An alert on a connection that has worked has another cause.
            why = failure.reason
            do = (
                ""
                if self._peer_has_responded
                else "check source.security.tls and that the port speaks TLS"
            )
        what = f"could not {doing} {self._address}"
        is_end = isinstance(error, (ConnectionResetError, BrokenPipeError, ssl.SSLEOFError))
        facts: dict[str, Any] = {"broker": str(self._address)}
        if is_end:
            return ConnectionClosed(what, why=why, do=do, closed=True, **facts)
        kind = ResponseTimedOut if isinstance(error, TimeoutError) else ConnectionLost
        return kind(what, why=why, do=do, **facts)


def speaks_tls(address: Address) -> bool:
    """Whether the peer answers a TLS handshake with TLS. Nothing else is sent or trusted."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    host_and_port = (address.host, address.port)
    try:
        with (
            socket.create_connection(host_and_port, PROBE_MS / 1000) as plain,
            context.wrap_socket(plain, server_hostname=address.host),
        ):
            return True
    except ssl.SSLError as error:
        return "ALERT" in (error.reason or "")
    except (OSError, ValueError, OverflowError):
        return False


def _pooled_buffer(size: int) -> memoryview:
    """A buffer from Arrow's pool, which is reused; fresh memory would have to be zeroed first."""
    if size < POOLED_BYTES:
        return memoryview(bytearray(size))
    return memoryview(pa.allocate_buffer(size)).cast("B")
