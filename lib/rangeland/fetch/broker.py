"""The only file with a socket: one connection to one broker.

It sends what a session says and receives whole frames, each within a deadline. Foreign
errors (OSError, ssl) end here and become ``Lost``, which says what was tried. It decides
nothing: reconnecting and failing over are the callers' business.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections import deque
from typing import Any

import pyarrow as pa

from rangeland.dialects.contract import Credentials, Dialect, Question
from rangeland.errors import JobFileError, RangelandError, RemoteProtocolError, Unreachable
from rangeland.fetch.settings import ClusterSettings, TlsSettings
from rangeland.model import Address
from rangeland.wire.frames import FrameReader

MAX_FRAME_BYTES = 1 << 31
# Until a peer has shown that it is a broker: "HTTP" read as a length is more than a gigabyte.
MAX_OPENING_BYTES = 1 << 20
RECEIVE_BUFFER_BYTES = 4 << 20
# Where nothing is said before the first request, its answer may be records: but not so many.
MAX_FIRST_BYTES = 1 << 30
POOLED_BYTES = 1 << 16


class Lost(Unreachable):
    """This connection is no good: refused, broken, or silent for too long."""


class NoBroker(Lost):
    """Whoever listens there speaks another protocol."""


class Connection:
    """Connected and negotiated when made; not for several threads at once.

    Answers are given in the order of the requests, in whatever order they come. After any
    error it is closed for good."""

    def __init__(self, address: Address, dialect: Dialect, settings: ClusterSettings) -> None:
        self.address = address
        self._settings = settings
        self._session = dialect.open_session(settings.client_id)
        self._frames = FrameReader(MAX_OPENING_BYTES)
        self._unanswered: deque[int] = deque()
        self._early: dict[int, Any] = {}
        self._socket = self._connect()
        try:
            self._open(dialect)
        except BaseException:
            self.close()
            raise

    def _connect(self) -> socket.socket:
        timeout = self._settings.connect_ms / 1000
        try:
            plain = socket.create_connection((self.address.host, self.address.port), timeout)
        except OSError as error:
            raise self._lost("connect to", error) from error
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
        if self._settings.tls is None:
            return plain
        try:
            context = tls_context(self._settings.tls)
            return context.wrap_socket(plain, server_hostname=self.address.host)
        except RangelandError:
            plain.close()
            raise
        except OSError as error:
            plain.close()
            raise self._lost("shake hands over TLS with", error) from error

    def _open(self, dialect: Dialect) -> None:
        question: bytes | None = self._session.open()
        self._is_known = bool(question)
        try:
            while question:
                self._send(question)
                question = self._session.negotiated(self._receive(self._settings.request_ms))
        except RemoteProtocolError as error:
            raise self._stranger(error) from error
        limit = MAX_FRAME_BYTES if self._is_known else MAX_FIRST_BYTES
        self._frames = FrameReader(limit, _pooled)
        sasl = self._settings.sasl
        if sasl is None:
            return
        login = dialect.login(Credentials(sasl.mechanism, sasl.username, sasl.password))
        try:
            step = next(login)
            while True:
                step = login.send(self.call(step))
        except StopIteration:
            return

    def call(self, question: Question) -> Any:
        """Sends and waits. Raises Lost, or RemoteProtocolError for bytes that make no sense."""
        self.send(question)
        return self.receive(question.wait_ms)

    def send(self, question: Question) -> None:
        """Sends without waiting for the answer, which ``receive`` gives later."""
        request_id, data = self._session.encode(question.request, question.max_version)
        self._send(data)
        self._unanswered.append(request_id)

    def receive(self, wait_ms: int | None = None) -> Any:
        """The answer to the oldest request that has none yet, waited for as long as any, or
        for ``wait_ms`` if that is longer."""
        wanted = self._unanswered.popleft()
        try:
            wait_ms = max(self._settings.request_ms, wait_ms or 0)
            deadline = time.monotonic() + wait_ms / 1000
            while wanted not in self._early:
                answered = self._session.decode(self._receive(wait_ms, deadline))
                if answered is not None:
                    self._early[answered[0]] = answered[1]
        except RangelandError as error:
            self.close()
            if isinstance(error, RemoteProtocolError) and not self._is_known:
                raise self._stranger(error) from error
            error.facts.setdefault("broker", str(self.address))
            raise
        self._is_known = True
        return self._early.pop(wanted)

    def _stranger(self, error: RemoteProtocolError) -> NoBroker:
        return NoBroker(
            f"{self.address} does not answer as a broker does",
            why="; ".join(part for part in (error.what, error.why, error.do) if part),
            do="check host, port and source.security",
            broker=str(self.address),
        )

    def close(self) -> None:
        self._socket.close()

    def _send(self, data: bytes) -> None:
        try:
            self._socket.settimeout(self._settings.request_ms / 1000)
            self._socket.sendall(data)
        except OSError as error:
            self.close()
            raise self._lost("send to", error) from error

    def _receive(self, wait_ms: int, deadline: float | None = None) -> memoryview:
        """The next frame. ``deadline`` is that of whoever waits for more than this one."""
        deadline = deadline or time.monotonic() + wait_ms / 1000
        while True:
            left = deadline - time.monotonic()
            try:
                if left <= 0:
                    raise TimeoutError
                self._socket.settimeout(left)
                count = self._socket.recv_into(self._frames.buffer())
                if count == 0:
                    raise ConnectionError("the broker closed the connection")
            except TimeoutError as error:
                self.close()
                silence = TimeoutError(f"no whole answer in {wait_ms} ms")
                raise self._lost("receive from", silence) from error
            except OSError as error:
                self.close()
                raise self._lost("receive from", error) from error
            frame = self._frames.advance(count)
            if frame is not None:
                return frame

    def _lost(self, doing: str, error: OSError) -> Lost:
        why = str(error) or type(error).__name__
        hint = ""
        if isinstance(error, ssl.SSLError):
            why = f"{error.reason or error}"
            hint = "check source.security.tls and that the port speaks TLS"
        return Lost(f"could not {doing} {self.address}", why=why, do=hint, broker=str(self.address))


def _pooled(size: int) -> memoryview:
    """Memory of Arrow's pool: it is used again, where fresh memory would be zeroed first."""
    if size < POOLED_BYTES:
        return memoryview(bytearray(size))
    return memoryview(pa.allocate_buffer(size)).cast("B")


def tls_context(tls: TlsSettings) -> ssl.SSLContext:
    """Raises JobFileError for a PEM file that cannot be used."""
    try:
        context = ssl.create_default_context(cafile=tls.ca)
        context.check_hostname = tls.verify_hostname
        if tls.certificate:
            context.load_cert_chain(tls.certificate, tls.key, tls.key_password)
        return context
    except OSError as error:
        raise JobFileError(
            "the TLS files of the job cannot be used",
            why=str(error),
            do="check ca, certificate, key and key_password in source.security.tls",
        ) from error
