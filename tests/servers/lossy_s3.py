"""A proxy in front of an S3 server that loses responses of conditional writes, by a seed.

What the server does stays done. So a writer whose request was carried out may see a closed
connection or an error, and its retry is then refused because of its own first request.
Bytes are passed on as they are, since requests are signed.
"""

from __future__ import annotations

import random
import socket
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from typing import Self

from rangeland.testing.context_managers import Startable

_END_OF_HEAD = b"\r\n\r\n"
_DONE = b'HTTP/1.1 200 OK\r\nETag: "0"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n'
_UNAVAILABLE = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
_IN_PROGRESS = (
    b"<Error><Code>ConditionalRequestConflict</Code><Message>Another one is under way</Message>"
    b"<RequestId>0</RequestId></Error>"
)
_CONFLICT = (
    b"HTTP/1.1 409 Conflict\r\nContent-Type: application/xml\r\nConnection: close\r\n"
    + f"Content-Length: {len(_IN_PROGRESS)}\r\n\r\n".encode()
    + _IN_PROGRESS
)


class Loss(StrEnum):
    """What a writer sees of a request."""

    REFUSED = "closed before the server had the request"
    UNHEARD = "closed as soon as the server had the request, which it answers later"
    CUT = "closed after the server's response, which is not passed on"
    FAILED = "503 instead of the server's response"
    CONFLICT = "409 of a request that the server never had"


class LossyS3(Startable):
    """``port`` is the proxy's. ``share``, from 0 to 1, of the conditional writes lose their
    response in one of the ways of ``losses``; ``done`` counts how many did. ``claims_all``: a
    refused one is answered as if the store had ignored its condition. ``on_created`` is called with
    the path of each object that was created, before its writer hears of it."""

    def __init__(self, server_port: int, seed: int) -> None:
        self._server = ("127.0.0.1", server_port)
        self._chance = random.Random(seed)
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self.losses: tuple[Loss, ...] = tuple(Loss)
        self.share = 0.0
        self.claims_all = False
        self.on_created: Callable[[str], None] | None = None
        self.done: Counter[str] = Counter()
        self.port = 0

    def start(self) -> Self:
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self._socket.getsockname()[1]
        accept = threading.Thread(target=self._accept, args=(self._socket,), daemon=True)
        accept.start()
        return self

    def close(self) -> None:
        if self._socket is not None:
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
            self._socket.close()

    def _accept(self, listening: socket.socket) -> None:
        while True:
            try:
                client, _ = listening.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with suppress(OSError), client, socket.create_connection(self._server) as server:
            for end in (client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while self._exchange(_Side(client), _Side(server)):
                pass

    def _exchange(self, client: _Side, server: _Side) -> bool:
        """One request and its response; whether the connection can be used again."""
        head = client.head()
        if not head:
            return False
        loss = self._loss(head)
        if loss is Loss.REFUSED:
            return False
        if loss is Loss.CONFLICT:
            client.to.sendall(_CONFLICT)
            return False
        server.to.sendall(head)
        if b"\r\nexpect: 100-continue" in head.lower():
            response = server.head()
            if not response.startswith(b"HTTP/1.1 100"):
                client.to.sendall(response + server.body(response))
                return False
            client.to.sendall(response)
        server.to.sendall(client.body(head))
        if loss is Loss.UNHEARD:
            client.to.shutdown(socket.SHUT_RDWR)
        response = server.head()
        response += server.body(response, is_head=head.startswith(b"HEAD "))
        if self.claims_all and response.startswith(b"HTTP/1.1 412"):
            client.to.sendall(_DONE)
            return False
        if self.on_created and _is_conditional(head) and response.startswith(b"HTTP/1.1 200"):
            self.on_created(head.split(b" ", 2)[1].decode())
        if loss is Loss.FAILED:
            client.to.sendall(_UNAVAILABLE)
        if loss is not None:
            return False
        client.to.sendall(response)
        return b"\r\nconnection: close" not in response.lower()

    def _loss(self, head: bytes) -> Loss | None:
        with self._lock:
            if not _is_conditional(head):
                return None
            loss = self._chance.choice(self.losses) if self._chance.random() < self.share else None
            self.done["passed on" if loss is None else loss.name] += 1
            return loss


def _is_conditional(head: bytes) -> bool:
    return b"\r\nif-none-match: *" in head.lower()


class _Side:
    """Reads messages of HTTP from one end of a connection. Nothing is sent before it is its turn,
    so nothing is read beyond a message."""

    def __init__(self, to: socket.socket) -> None:
        self.to = to

    def head(self) -> bytes:
        found = b""
        while not found.endswith(_END_OF_HEAD):
            byte = self.to.recv(1)
            if not byte:
                return b""
            found += byte
        return found

    def body(self, head: bytes, *, is_head: bool = False) -> bytes:
        fields = dict(
            line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:] if b": " in line
        )
        if is_head or head.startswith((b"HTTP/1.1 204", b"HTTP/1.1 304")):
            return b""
        if fields.get(b"transfer-encoding") == b"chunked":
            return self._chunks()
        return self._exactly(int(fields.get(b"content-length", b"0")))

    def _exactly(self, size: int) -> bytes:
        found = b""
        while len(found) < size:
            piece = self.to.recv(size - len(found))
            if not piece:
                raise ConnectionError("closed within a message")
            found += piece
        return found

    def _chunks(self) -> bytes:
        found = b""
        while True:
            line = b""
            while not line.endswith(b"\r\n"):
                line += self._exactly(1)
            size = int(line.split(b";")[0], 16)
            found += line + self._exactly(size + 2)
            if size == 0:
                return found
